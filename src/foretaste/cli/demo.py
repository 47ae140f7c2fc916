"""``foretaste demo``: the whole path on generated data, from a file to recommendations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foretaste._util.files import unwritable_message
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, say_next, stdout_console
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.errors import SettingError
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.data import Dataset
    from foretaste.recommend import Answer
    from foretaste.runs import Run

OUTPUT = Path("foretaste-demo")

_NUM_RECOMMENDED = 8
_SHORTEST_HISTORY = 8
_NEW_HISTORY = 4


# Small models and large steps: more minutes on a laptop gained nothing on data of this size.
TRAININGS = (
    ("popularity", None, TrainingConfig()),
    (
        "neumf",
        NeuMFConfig(factors=16, layers=(64, 32, 16)),
        TrainingConfig(epochs=15, batch_size=8192, learning_rate=0.005, eval_every=1),
    ),
    (
        "vae",
        VAEConfig(hidden=(200,), latent=64),
        TrainingConfig(epochs=20, batch_size=256, learning_rate=0.003, eval_every=1),
    ),
    ("ease", None, TrainingConfig()),
)
"""The models of the demonstration, with their settings and their training's; the last one
recommends."""


def demo(
    *,
    output: Path = OUTPUT,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """The whole path on generated data: about a minute.

    Args:
        output: Directory of the data and the runs. Runs of an earlier demo are kept.
        quiet: Print the table that compares the models and nothing else.
    """
    from foretaste.runs import unused_run_path
    from foretaste.training import TrainRequest, train_run
    from foretaste.training.display import TrainingDisplay

    console = stdout_console(quiet=quiet)
    source, items = output / "interactions.csv", output / "items.csv"
    dataset = _prepare(source, items, output / "dataset", console)
    runs = []
    for model, model_config, training in TRAININGS:
        say(console)
        with TrainingDisplay(console, training) as display:
            request = TrainRequest.of(
                model,
                dataset,
                model_config=model_config,
                config=training,
                run=unused_run_path(output / "runs", model),
            )
            run = train_run(request, display)
        runs.append(run)
    _compare(runs, console)
    _recommend(run, console)
    (user_id,), (item_id,) = run.users.ids()[:1], run.items.ids()[:1]
    say(console)
    say_next(
        console,
        ("foretaste", "recommend", run.path, "--user", user_id),
        ("foretaste", "similar", run.path, "--item", item_id),
        ("foretaste", "compare", *(run.path for run in runs)),
        ("foretaste", "train", "ease", source, "--items", items),
    )
    say(console, "The last one takes a file of your own just as well.")


def _prepare(source: Path, items: Path, output: Path, console: Console) -> Dataset:
    """Write generated interactions and titles as CSV files, and prepare them."""
    import pyarrow.csv

    from foretaste.data import generate, prepare

    _title(console, "Make up people with tastes, and what they watched")
    generated = generate(GenerateConfig())
    earlier = ", in place of an earlier demo's" if source.exists() else ""
    try:
        source.parent.mkdir(parents=True, exist_ok=True)
        source.touch()
    except OSError as error:
        reason = unwritable_message(error, "name another directory with --output")
        raise SettingError(f"output {source.parent} {reason}") from error
    for table, path in ((generated.table, source), (generated.items, items)):
        pyarrow.csv.write_csv(table, path)
        say(console, f"{path}: {table.num_rows:,} rows of {', '.join(table.column_names)}{earlier}")
    _title(console, "Prepare: hold out each person's last item to test on, the one before to tune")
    dataset = prepare(str(source), output, items=items, overwrite=True)
    manifest = dataset.manifest
    say(
        console,
        f"{output}: {manifest.num_users:,} users, {manifest.num_items:,} items, "
        f"{manifest.num_interactions:,} interactions to learn from ({manifest.protocol})",
    )
    return dataset


def _compare(runs: list[Run], console: Console) -> None:
    """Print one table of all runs."""
    from foretaste.measure import compare_runs
    from foretaste.measure.tables import HEADLINE, comparison_grid

    _title(console, "Compare on the held-out items, with 95 % intervals over users")
    evaluations = compare_runs(runs).evaluations
    stdout_console().print(comparison_grid(evaluations, HEADLINE).to_rich())
    say(console)
    for line in next(iter(evaluations.values())).definitions(HEADLINE):
        say(console, line, "dim", folded=True)


def _recommend(run: Run, console: Console) -> None:
    """Print the items and the list of a known user, then of a new one."""
    import numpy as np

    from foretaste.recommend import Recommender

    recommender = Recommender.open(run.path)
    _title(console, f"Recommend with {run.config.model}")

    # The user with the shortest history that shows a taste.
    histories = run.histories
    lengths = histories.lengths()
    rich_enough = np.flatnonzero(lengths >= min(_SHORTEST_HISTORY, lengths.max()))
    user = rich_enough[[lengths[rich_enough].argmin()]]
    (user_id,) = run.users.ids(user)
    known = run.items.titles(histories.rows(user).item_index) or []
    (answer,) = recommender.recommend([user_id], k=_NUM_RECOMMENDED)
    _say_list(console, f"User {user_id}, known from training,", known, answer)

    # The new user has the most popular items of the largest genre.
    genre_I = np.array(run.items.column("genre"))
    genres, num_items = np.unique(genre_I, return_counts=True)
    of_genre = np.flatnonzero(genre_I == genres[num_items.argmax()])
    num_users_I = np.bincount(histories.item_index, minlength=len(genre_I))
    best_first = of_genre[np.argsort(-num_users_I[of_genre], kind="stable")]
    new = best_first[:_NEW_HISTORY]
    (answer,) = recommender.recommend_for([run.items.ids(new)], k=_NUM_RECOMMENDED)
    _say_list(console, "Someone new", run.items.titles(new) or [], answer)


def _say_list(console: Console, who: str, titles: Sequence[str | None], answer: Answer) -> None:
    say(console, f"{who} has {'; '.join(map(str, titles))}", folded=True)
    say(console, f"{answer}\n")


def _title(console: Console, text: str) -> None:
    say(console, f"\n{text}", "bold")
