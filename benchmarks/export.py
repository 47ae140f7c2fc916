"""Exported programs beside the runs they were made of: time for a user alone and among others.

``python -m benchmarks.export RUN DIRECTORY [RUN DIRECTORY ...]``, each run followed by the
directory of its ``foretaste export``. Prints a table of milliseconds for each user, and of the
lists that the export compared.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from foretaste.export.formats import FILES, Format, load
from foretaste.models.base import RecommenderModel
from foretaste.recommend.config import ListRequest
from foretaste.recommend.item_filter import ItemFilter
from foretaste.recommend.top_k import UserHistories, UserRanker
from foretaste.runs import Run, load_model

BATCHES = (1, 64)
SECONDS = 1.0
"""Length of each measurement, after one call that is not counted."""


def milliseconds(call: Callable[[], object], num_users: int) -> float:
    """The median time of a call for each of its users."""
    call()
    times: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() - begin < SECONDS or len(times) < 3:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1000.0 * float(np.median(times)) / num_users


def row(run: Run, model: RecommenderModel, directory: Path) -> str:
    """A line of the table."""
    document = json.loads((directory / "export.json").read_text())
    formats: dict[str, Format] = {file: name for name, file in FILES.items()}
    program = load(formats[document["program"]], directory)
    names = [each["name"] for each in document["inputs"]]
    request = ListRequest(k=document["k"])
    ranker = UserRanker(model, ItemFilter.of(run.items, model.num_items, request), request)
    cells = [directory.name, document["program"]]
    cells += [f"{document['compared'][name]:,}" for name in ("equal", "near_ties", "different")]
    for size in BATCHES:
        users = np.linspace(0, run.num_train_users - 1, size).astype(np.int64)
        histories = run.histories.within(model.num_items).rows(users)
        values = (histories.item_index.astype(np.int64), histories.lengths(), users)
        inputs = dict(zip(names, values, strict=False))
        asked = users if "user_index" in names else np.full(size, model.num_users)
        known = UserHistories(asked, histories, [()] * size)
        sides = partial(ranker.rank, known), partial(program, inputs)
        cells += [f"{milliseconds(side, size):.2f}" for side in sides]
    return f"| {' | '.join(cells)} |"


def main(paths: list[str]) -> None:
    headings = ["export", "program", "equal", "near-ties", "elsewhere"]
    headings += [f"{side}, {size} at once" for size in BATCHES for side in ("run", "program")]
    print(f"| {' | '.join(headings)} |\n|{'---|' * len(headings)}")
    for path, directory in zip(paths[::2], paths[1::2], strict=True):
        run = Run.open(path)
        print(row(run, load_model(run, "cpu"), Path(directory)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
