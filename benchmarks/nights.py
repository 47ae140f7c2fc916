"""A shop's nights, simulated: ``python -m benchmarks.nights``.

Each night trains a model on earlier data, prepares tonight's data with protocol unseen, trains a
trial by the settings of the first model, and compares both, with the functions behind the commands.
The trial is a twin: equal settings, and data that lack nothing. Models that lost a tenth or a fifth
of its value are made of it: a random share of the users gets the list of popularity. Prints a row
for each world, size and model, with the gate's verdicts.

In a generated world the night is the newest one to three items of a random third of the people, and
all items of a random twentieth, who are strangers.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.typing import NDArray

from foretaste.data import GenerateConfig, generate, prepare
from foretaste.data.preparation import splitting
from foretaste.data.request import PrepareRequest
from foretaste.errors import DataWarning, NothingLeftError
from foretaste.evaluation.gate import Verdict, judge
from foretaste.measure import compare_runs
from foretaste.models.registry import config_class
from foretaste.runs import Run
from foretaste.training import Callback, train
from foretaste.training.api import train_run
from foretaste.training.request import TrainRequest, rerun_request

LOSSES = (0.1, 0.2)
DRAWS = 20
"""Number of random draws of users in each night and for each loss."""

STEP_SETTINGS: dict[str, dict[str, Any]] = {
    "vae": {"epochs": 40, "hidden": (100,), "latent": 32},
    "gmf": {"epochs": 20},
    "sasrec": {"epochs": 20},
}

Rows = NDArray[np.int64]
"""Users, items and times: [N, 3], the rows of each user in their order."""


def catalogue_of(num_people: int) -> int:
    return min(3000, num_people + 200)


def walkers(num_people: int, seed: int) -> Rows:
    """People who walk from item to item along a few paths, to an earlier item, or anywhere."""
    rng = np.random.default_rng(seed)
    num_items = catalogue_of(num_people)
    popularity = rng.permutation((np.arange(1, num_items + 1) + 20.0) ** -0.9)
    chances = (popularity / popularity.sum()).cumsum()
    ways = np.searchsorted(chances, rng.random((num_items, 6))).clip(max=num_items - 1)

    def anywhere() -> int:
        return int(np.searchsorted(chances, rng.random()).clip(max=num_items - 1))

    rows = []
    for user in range(num_people):
        length = int(np.clip(rng.lognormal(2.3, 0.7), 5, num_items // 3))
        taken, item = [anywhere()], 0
        while len(taken) < length:
            way = rng.random()
            if way < 0.55:
                item = int(ways[taken[-1], min(int(rng.exponential(1.3)), 5)])
            elif way < 0.75:
                before = min(int(rng.exponential(3)), len(taken) - 1)
                item = int(ways[taken[-1 - before], rng.integers(6)])
            if way >= 0.75 or item in taken:
                item = anywhere()
            if item not in taken:
                taken.append(item)
        rows += [(user, item, time) for time, item in enumerate(taken)]
    return np.array(rows)


def tastes(num_people: int, seed: int) -> Rows:
    """People with tastes and without an order, like the demo's."""
    config = GenerateConfig(
        num_users=num_people,
        num_items=catalogue_of(num_people),
        num_interactions=15 * num_people,
        num_genres=12,
        seed=seed,
    )
    return _rows_of(generate(config).table)


def _rows_of(table: pa.Table) -> Rows:
    rows = np.stack(
        [table[name].to_numpy() for name in ("user_id", "item_id", "timestamp")], axis=1
    ).astype(np.int64)
    return rows[np.lexsort((rows[:, 2], rows[:, 0]))]


def movies(folder: Path) -> Rows:
    """MovieLens 100K."""
    return _rows_of(pa_csv.read_csv(folder / "ml-100k" / "ratings.csv"))


def beauty(folder: Path) -> Rows:
    """Amazon reviews of beauty products, in order."""
    lines = (folder / "beauty" / "sequences.txt").read_text().splitlines()
    taken = [list(map(int, line.split())) for line in lines]
    return np.array([(user, item, place) for user, *items in taken
                     for place, item in enumerate(items)])  # fmt: skip


def newest_of_a_third(rows: Rows, rng: np.random.Generator) -> NDArray[np.bool_]:
    """A mask of the night: the newest one to three items of a third of the people, and all items of
    a twentieth of them."""
    users, first, lengths = np.unique(rows[:, 0], return_index=True, return_counts=True)
    kind = rng.random(len(users))
    num_new = np.where(kind < 1 / 3, rng.integers(1, 4, len(users)), 0)
    num_new = np.where(kind > 1 - 1 / 20, lengths, np.minimum(num_new, lengths - 1))
    place = np.arange(len(rows)) - np.repeat(first, lengths)
    mask: NDArray[np.bool_] = place >= np.repeat(lengths - num_new, lengths)
    return mask


def nights_of_times(rows: Rows, share: float = 0.01) -> Iterator[tuple[Rows, NDArray[np.bool_]]]:
    """Nights by the times of the rows: each is the next ``share`` of all rows, and the rows later
    than the night are left out. The first night begins in the middle."""
    rows = rows[np.argsort(rows[:, 2], kind="stable")]
    size = int(share * len(rows))
    for end in range(len(rows) // 2 + size, len(rows) + 1, size):
        yield rows[:end], np.arange(end) >= end - size


@dataclass
class Night:
    """Results of one night."""

    has_other_weights: bool
    """True if the trial's weights differ from the served model's."""
    verdict: Verdict | None = None
    """None if there was nothing to compare."""
    at_ten: Verdict | None = None
    """The verdict by ndcg@10 in place of ndcg@100."""
    refused: dict[float, float] = field(default_factory=dict)
    """The share of the models with this loss that were refused."""


def table_of(rows: Rows) -> pa.Table:
    return pa.table(dict(zip(("user_id", "item_id", "timestamp"), rows.T, strict=True)))


def night(rows: Rows, is_new: NDArray[np.bool_], model: str, number: int) -> Night:
    """Simulate one night with the functions behind the commands."""
    rng = np.random.default_rng(number)
    quiet: dict[str, Any] = {"callback": Callback()}
    with TemporaryDirectory() as name:
        folder = Path(name)
        before = prepare(table_of(rows[~is_new]), folder / "before", protocol="none")
        settings = STEP_SETTINGS.get(model, {})
        asked = TrainRequest.of(model, before, run=folder / "served", device="cpu", **settings)
        served = train_run(asked, Callback())
        data = prepare(
            table_of(rows), folder / "tonight", protocol="unseen", like=served.path, seed=number
        )
        request = replace(
            rerun_request(served), data=PrepareRequest(source=data), run=folder / "trial"
        )
        trial = train_run(request, Callback())
        popularity = train("popularity", data, run=folder / "popularity", device="cpu", **quiet)
        has_other_weights = _differ(served, trial)
        try:
            found = compare_runs([served, trial, popularity], dataset=data, device="cpu")
        except NothingLeftError:
            return Night(has_other_weights=has_other_weights)
    per_user = [each.per_user for each in found.evaluations.values()]
    return Night(has_other_weights=has_other_weights, **_judged(per_user, model, rng))


def _judged(
    per_user: list[dict[str, NDArray[np.float64]]], model: str, rng: np.random.Generator
) -> dict[str, Any]:
    """The verdicts on the trial, and on models made of it that lost something. ``per_user`` has the
    users' values of the served model, the trial and popularity."""
    has_seed = config_class(model).has_epochs
    verdicts = [
        judge(metric, *(each[metric] for each in per_user[:2]), has_seed=has_seed)
        for metric in ("ndcg@100", "ndcg@10")
    ]
    served, trial, of_popularity = (each["ndcg@100"] for each in per_user)
    refused = {}
    for loss in LOSSES:
        others = _with_loss(served, trial, of_popularity, loss, rng)
        outcomes = [judge("ndcg@100", served, one, has_seed=has_seed).outcome for one in others]
        refused[loss] = outcomes.count("worse") / DRAWS
    return {"verdict": verdicts[0], "at_ten": verdicts[1], "refused": refused}


def _with_loss(
    served: NDArray[np.float64],
    trial: NDArray[np.float64],
    of_popularity: NDArray[np.float64],
    loss: float,
    rng: np.random.Generator,
) -> Iterator[NDArray[np.float64]]:
    """The values of models that are worse than the served one by a share of its mean: a random part
    of the trial's users has the values of popularity."""
    too_much = trial.mean() - (1 - loss) * served.mean()
    share = too_much / max(trial.mean() - of_popularity.mean(), 1e-9)
    for _ in range(DRAWS):
        yield np.where(rng.random(len(trial)) < share, of_popularity, trial)


def _differ(first: Run, second: Run) -> bool:
    ours, theirs = first.load_weights(), second.load_weights()
    return any(
        ours[name].shape != theirs[name].shape or bool((ours[name] != theirs[name]).any())
        for name in ours
    )


def nights(
    world: str, num_people: int, data: Path | None
) -> Callable[[], Iterator[tuple[Rows, NDArray[np.bool_]]]]:
    """The rows and the mask of each night of a world, without end."""

    def endless() -> Iterator[tuple[Rows, NDArray[np.bool_]]]:
        if world == "ml-100k":
            assert data is not None
            yield from nights_of_times(movies(data))
            return
        fixed = beauty(data) if world == "beauty" and data is not None else None
        for seed in count():
            made = {"walkers": walkers, "tastes": tastes}
            rows = made[world](num_people, seed) if fixed is None else fixed
            yield rows, newest_of_a_third(rows, np.random.default_rng(seed))

    return endless


def summary(found: list[Night]) -> list[str]:
    """The cells of a row."""
    verdicts = [night.verdict for night in found if night.verdict is not None]
    decided = [verdict for verdict in verdicts if verdict.outcome != "too few"]
    outcomes = [verdict.outcome for verdict in verdicts]
    gains = [verdict.second / verdict.first - 1 for verdict in decided if verdict.first]
    seen = [verdict.loss_seen for verdict in decided]
    at_ten = [night.at_ten.loss_seen for night in found
              if night.at_ten is not None and night.at_ten.outcome != "too few"]  # fmt: skip
    tenth = [night.refused[0.1] for night in found
             if night.verdict is not None and night.verdict.outcome == "passed"]  # fmt: skip
    lost = {loss: [night.refused[loss] for night in found if night.verdict in decided]
            for loss in LOSSES}  # fmt: skip

    def mean(values: list[float]) -> str:
        return f"{np.mean(values):.0%}" if values else "-"

    people = [verdict.num_users for verdict in verdicts]
    return [
        f"{len(found)}",
        f"{np.mean(people):,.0f}" if people else "0",
        f"{1 - outcomes.count('worse') / len(found):.1%}",
        f"{outcomes.count('too few')}",
        f"{np.mean(gains):+.1%}" if gains else "-",
        f"{np.median(seen):.0%}" if seen else "-",
        f"{np.median(at_ten):.0%}" if at_ten else "-",
        mean(lost[0.1]),
        mean(lost[0.2]),
        f"{mean(tenth)} of {len(tenth)}",
        f"{sum(night.has_other_weights for night in found)}",
    ]


HEADINGS = (
    *("world", "people", "model", "nights", "compared", "twin passes", "too few", "twin gains"),
    *("loss seen", "by ndcg@10", "tenth refused", "fifth refused"),
    *("tenth refused where it could be seen", "other weights"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nights", description=__doc__)
    parser.add_argument("worlds", nargs="+", help="walkers, tastes, ml-100k or beauty")
    parser.add_argument("--people", type=int, nargs="+", default=[100])
    parser.add_argument("--models", nargs="+", default=["ease", "slist"])
    parser.add_argument("--nights", type=int, default=200, help="at most")
    parser.add_argument("--seconds", type=float, default=600, help="of the processor, for each row")
    parser.add_argument("--data", type=Path, help="the folder of ml-100k and beauty")
    parser.add_argument("--share", type=float, help="held-out share of those who did something new")
    options = parser.parse_args()
    warnings.simplefilter("ignore", DataWarning)
    if options.share is not None:
        splitting.HELD_SHARE = options.share
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}", flush=True)
    for world in options.worlds:
        for num_people in options.people:
            for model in options.models:
                tonight = nights(world, num_people, options.data)()
                cells = summary(_simulated(tonight, model, options))
                print(f"| {world} | {num_people:,} | {model} | {' | '.join(cells)} |", flush=True)


def _simulated(
    tonight: Iterator[tuple[Rows, NDArray[np.bool_]]], model: str, options: argparse.Namespace
) -> list[Night]:
    found, began = [], time.process_time()
    for number, (rows, is_new) in enumerate(tonight):
        if number >= options.nights or time.process_time() - began > options.seconds:
            break
        found.append(night(rows, is_new, model, number))
    return found


if __name__ == "__main__":
    main()
