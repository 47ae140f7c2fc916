"""Every argument that is a setting, given values of every kind: an answer, or a mistake that is
told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import foretaste
from foretaste.data import read_histories, verify_dataset
from foretaste.errors import ForetasteError
from foretaste.recommend import read_ids
from foretaste.runs import verify, verify_run
from foretaste.training import Callback
from tests._util.test_every_config import VALUES

RATINGS = "user_id,item_id,timestamp\n" + "".join(
    f"{user},{item},{user + item}\n" for user in range(30) for item in range(user % 5, 24, 3)
)


@dataclass(frozen=True)
class World:
    """A run, what it was trained on, and where both are."""

    root: Path
    dataset: foretaste.Dataset
    run: foretaste.Run


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("world")
    (root / "ratings.csv").write_text(RATINGS)
    dataset = foretaste.prepare(root / "ratings.csv", root / "data")
    run = foretaste.train("popularity", dataset, run=root / "run", callback=Callback())
    return World(root, dataset, run)


Call = Callable[..., object]


def calls(world: World) -> dict[str, tuple[Call, tuple[str, ...]]]:
    """Functions that make little, with the arguments to be tried."""
    recommender = foretaste.load(world.run)
    known = world.run.users.ids()[:1]
    return {
        "open_dataset": (foretaste.open_dataset, ("path",)),
        "has_split": (world.dataset.has_split, ("split",)),
        "has_candidates": (world.dataset.has_candidates, ("split",)),
        "heldout": (world.dataset.heldout, ("split",)),
        "load": (foretaste.load, ("run",)),
        "load a run": (partial(foretaste.load, world.run), ("device",)),
        "recommend": (
            partial(recommender.recommend, known),
            ("k", "include_seen", "unknown"),
        ),
        "recommend_for": (partial(recommender.recommend_for, [[1]]), ("k", "include_seen")),
        "similar_items": (partial(recommender.similar_items, [1]), ("k",)),
        "recommend_all": (
            partial(recommender.recommend_all, output="lists.csv", overwrite=True),
            ("output", "k", "overwrite", "include_seen", "unknown", "spreadsheet_safe"),
        ),
        "evaluate_run": (
            partial(foretaste.evaluate_run, world.run),
            ("dataset", "config", "split", "device"),
        ),
        "compare_runs": (
            partial(foretaste.compare_runs, runs=[world.run] * 2),
            ("runs", "dataset", "config", "split"),
        ),
        "report_runs": (
            partial(foretaste.report_runs, runs=[world.run]),
            ("runs", "metrics", "num_people", "dataset", "config", "split"),
        ),
        "resume": (partial(foretaste.resume, world.run), ("dataset", "logs")),
        "read_ids": (partial(read_ids, table=recommender.items), ("path",)),
        "read_histories": (partial(read_histories, "no.csv"), ("config",)),
        "verify": (verify, ("path",)),
        "verify_run": (verify_run, ("path",)),
        "verify_dataset": (verify_dataset, ("path",)),
        # What is there already is refused, so nothing is made.
        "prepare": (
            partial(foretaste.prepare, "no.csv"),
            ("output", "config", "source_dir", "like", "overwrite"),
        ),
        "train": (
            partial(foretaste.train, "popularity", world.dataset, run=world.run.path),
            ("config", "model_config", "pretraining", "logs", "start_from"),
        ),
        "train a model": (
            lambda model: foretaste.train(model, world.dataset, run=world.run.path),
            ("model",),
        ),
        "compete": (
            partial(foretaste.compete, world.dataset, output=world.run.path),
            ("models", "tune", "metrics", "config"),
        ),
        "tune_model": (
            partial(foretaste.tune_model, "ease", world.dataset, output=world.run.path),
            ("trials", "config", "model_config"),
        ),
        "tune a model": (
            lambda model: foretaste.tune_model(model, world.dataset, output=world.run.path),
            ("model",),
        ),
        "train into": (partial(foretaste.train, "popularity", "no.csv"), ("run", "runs_root")),
    }


def test_an_argument_of_any_kind_is_taken_or_told(world: World) -> None:
    num_refused = 0
    with chdir(world.root):
        for name, (function, arguments) in calls(world).items():
            for argument in arguments:
                for value in VALUES:
                    try:
                        function(**{argument: value})
                    except ForetasteError:
                        num_refused += 1
                    except Exception as error:
                        pytest.fail(f"{name}({argument}={type(value).__name__}): {error!r}")
    assert num_refused > 1000


@pytest.mark.parametrize("flag", ["no", "False", 0, None])
def test_no_flag_of_a_function_is_the_opposite_of_what_was_said(world: World, flag: object) -> None:
    said = "overwrite is .*; it must be True or False"
    with pytest.raises(ForetasteError, match=said):
        foretaste.prepare(world.root / "ratings.csv", world.dataset.path, overwrite=flag)  # type: ignore[arg-type]
    with pytest.raises(ForetasteError, match=said):
        foretaste.load(world.run).recommend_all("lists.csv", overwrite=flag)  # type: ignore[arg-type]
