"""``foretaste demo``: the whole path on generated data, from a file to recommendations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, say_next, stdout_console
from foretaste.data.config import GenerateConfig
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.training.config import TrainingConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.data import Dataset
    from foretaste.evaluation.result import Evaluation
    from foretaste.runs import Run

OUTPUT = Path("foretaste-demo")

_NUM_RECOMMENDED = 8


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """One training of the demonstration."""

    model: str
    model_config: Any = None
    config: TrainingConfig | None = None


# Small models and large steps: minutes of laptop time bought nothing more on data of this size.
LESSONS = (
    Lesson(model="popularity"),
    Lesson(model="ease"),
    Lesson(
        model="neumf",
        model_config=NeuMFConfig(factors=16, layers=(64, 32, 16)),
        config=TrainingConfig(epochs=15, batch_size=8192, learning_rate=0.005, eval_every=1),
    ),
    Lesson(
        model="vae",
        model_config=VAEConfig(hidden=(200,), latent=64),
        config=TrainingConfig(epochs=20, batch_size=256, learning_rate=0.003, eval_every=1),
    ),
)


def demo(
    *,
    output: Path = OUTPUT,
    config: Annotated[GenerateConfig | None, Parameter(name="*", group="Generated data")] = None,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """The whole path on generated data: about a minute.

    Args:
        output: Directory of the data and the runs; what an earlier demo left there is kept.
        quiet: Print the table that compares the models and nothing else.
    """
    console = stdout_console(quiet=quiet)
    source, items = _generate(output, config or GenerateConfig(), console)
    dataset = _prepare(source, items, output / "dataset", console)
    runs = [_train(lesson, dataset, output / "runs", console) for lesson in LESSONS]
    _compare(runs, console)
    _recommend(runs[-1], console)
    _say_next(runs, source, items, console)


def _generate(output: Path, config: GenerateConfig, console: Console) -> tuple[Path, Path]:
    """Write made-up interactions and titles as a customer would have them."""
    import pyarrow.csv

    from foretaste.data import generate

    source, items = output / "interactions.csv", output / "items.csv"
    _title(console, "Make up people with tastes, and what they watched")
    generated = generate(config)
    output.mkdir(parents=True, exist_ok=True)
    for table, path in ((generated.table, source), (generated.items, items)):
        pyarrow.csv.write_csv(table, path)
        say(console, f"{path}: {table.num_rows:,} rows of {', '.join(table.column_names)}")
    return source, items


def _prepare(source: Path, items: Path, output: Path, console: Console) -> Dataset:
    from foretaste.data import prepare

    _title(console, "Prepare: hold out each person's last item to test on, the one before to tune")
    dataset = prepare(str(source), output, items=items, overwrite=True)
    manifest = dataset.manifest
    say(
        console,
        f"{output}: {manifest.num_users:,} users, {manifest.num_items:,} items, "
        f"{manifest.num_interactions:,} interactions to learn from ({manifest.protocol})",
    )
    return dataset


def _train(lesson: Lesson, dataset: Dataset, root: Path, console: Console) -> Run:
    from foretaste.runs import unused_run_path
    from foretaste.training import train
    from foretaste.training.display import TrainingDisplay

    say(console)
    asked = lesson.config or TrainingConfig()
    with TrainingDisplay(console, asked) as display:
        return train(
            lesson.model,
            dataset,
            model_config=lesson.model_config,
            config=asked,
            run_path=unused_run_path(root, lesson.model),
            progress=display,
        )


def _compare(runs: list[Run], console: Console) -> None:
    """One table of all the runs, and whether each interval lies clear of popularity's."""
    from foretaste.report import compare_runs
    from foretaste.report.tables import HEADLINE, comparison_grid

    _title(console, "Compare on the held-out items, with 95 % intervals over users")
    evaluations = compare_runs(runs).evaluations
    stdout_console().print(comparison_grid(evaluations, HEADLINE).to_rich())
    floor, *others = evaluations.items()
    for label, evaluation in others:
        say(console, _verdict(label, evaluation, floor[1]))
    say(console)
    for line in floor[1].definitions(HEADLINE):
        say(console, line, "dim", folded=True)


def _verdict(label: str, evaluation: Evaluation, floor: Evaluation) -> str:
    ours, theirs = evaluation.metrics["ndcg@10"], floor.metrics["ndcg@10"]
    if ours.low is None or theirs.high is None:
        return f"{label}: too few users to tell"
    if ours.low <= theirs.high:
        return f"{label}: its interval of ndcg@10 does not lie above popularity's"
    times = f", {ours.value / theirs.value:.1f} times as good" if theirs.value else ""
    return f"{label}: its interval of ndcg@10 lies above popularity's{times}"


def _recommend(run: Run, console: Console) -> None:
    """Lists for a user of the data and for a new one, beside what each has."""
    from foretaste.cli.demo_people import side_by_side, some_fan, some_user
    from foretaste.recommend import Recommender

    recommender = Recommender.open(run.path)
    _title(console, f"Recommend with {run.config.model}")
    user_id, known = some_user(run)
    (answer,) = recommender.recommend([user_id], k=_NUM_RECOMMENDED)
    console.print(side_by_side(run, f"User {user_id}, known from training,", known, answer))
    new = some_fan(run)
    (answer,) = recommender.recommend_for([new], k=_NUM_RECOMMENDED)
    console.print(side_by_side(run, "Someone new", new, answer))


def _say_next(runs: list[Run], source: Path, items: Path, console: Console) -> None:
    """How to ask more of these runs, and how to begin with other data."""
    run = runs[-1]
    (user_id,), (item_id,) = run.users.ids()[:1], run.items.ids()[:1]
    say(console)
    say_next(
        console,
        ("foretaste", "recommend", run.path, "--user", user_id),
        ("foretaste", "similar", run.path, "--item", item_id),
        ("foretaste", "compare", *(run.path for run in runs)),
        ("foretaste", "train", "vae", source, "--items", items),
    )
    say(console, "The last one takes a file of your own just as well.")


def _title(console: Console, text: str) -> None:
    say(console, f"\n{text}", "bold")
