"""The page about data lists all written files, entries and columns, and nothing else."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from safetensors import safe_open

from foretaste.data import GivenSplit, PrepareConfig, open_dataset, prepare
from foretaste.data.config import Protocol
from foretaste.data.manifest import Manifest
from foretaste.runs import Run
from foretaste.runs.config import RunConfig
from foretaste.runs.files import FEATURES
from foretaste.training.logs import TENSORBOARD
from foretaste.training.profiler import TRACE
from tests.cli.conftest import call
from tests.data.partitions import in_partitions
from tests.docs.pages import page

FILES = page("data.md")
PROTOCOLS: tuple[Protocol, ...] = ("leave-one-out", "held-out-users", "none")


def listed(heading: str) -> set[str]:
    """The first column of a section's own tables."""
    own = re.split(r"^### ", FILES.section(heading), maxsplit=1, flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `([^`]+)` \|", own, re.MULTILINE))


def names_in(directories: list[Path]) -> set[str]:
    return {path.name for directory in directories for path in directory.iterdir()}


def write(path: Path, users: range, *items: int) -> Path:
    """Rows of every user with each item, the user's number apart, in order."""
    lines = [f"{user},{user % 7 + item},{item}" for user in users for item in items]
    path.write_text("\n".join(["user_id,item_id,timestamp", *lines, ""]))
    return path


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A dataset of every kind of part, with weights and dislikes but for the last two."""
    root = tmp_path_factory.mktemp("datasets")
    train = write(root / "train.csv", range(1, 31), 0, 1, 2, 3)
    titles = root / "titles.csv"
    titles.write_text("item_id,title\n1,One\n2,Two\n")
    new = range(31, 35)
    given = GivenSplit(
        train=train,
        validation_fold_in=write(root / "b.csv", range(41, 45), 1),
        validation=write(root / "c.csv", range(41, 45), 2),
        test_fold_in=write(root / "d.csv", new, 1),
        test=write(root / "e.csv", new, 2),
        test_candidates=write(root / "f.csv", new, 0, 3),
    )
    disliked: dict[str, Any] = {"rating_column": "timestamp", "min_rating": 1}
    made = [
        prepare(train, root / protocol, config, items=titles)
        for protocol in PROTOCOLS
        for config in [PrepareConfig(protocol=protocol, weight_scale="linear", **disliked)]
    ]
    kinds = root / "kinds.csv"
    kinds.write_text("item_id,title\n1,a\n2,a\n3,b\n4,b\n")
    features = prepare(train, root / "features", items=kinds, features=("title",))
    return [dataset.path for dataset in [*made, prepare(given, root / "given"), features]]


def test_files_of_a_dataset(datasets: list[Path]) -> None:
    assert names_in(datasets) == listed("A dataset")


def test_columns_of_a_dataset(datasets: list[Path]) -> None:
    rows = FILES.rows("Columns of a dataset")
    described = {(row[0], row[1]): row[2] for row in rows}
    for path in (file for directory in datasets for file in directory.glob("*.parquet")):
        for field in pq.read_schema(path):
            key = path.name if (path.name, field.name) in described else "every part"
            assert str(field.type) in described[key, field.name], f"{path.name}: {field}"


def test_keys_of_the_manifest(datasets: list[Path], tmp_path: Path) -> None:
    in_files = in_partitions(open_dataset(datasets[0]), tmp_path / "in_files", [0, 2])
    paths = (in_files.path, datasets[-1])
    written = {key for path in paths for key in json.loads((path / "manifest.json").read_text())}
    assert listed("manifest.json") == written
    assert {entry.name for entry in fields(Manifest)} <= written


@pytest.fixture(scope="module")
def run(datasets: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run, and a few of its log's events."""
    path = tmp_path_factory.mktemp("runs") / "run"
    done = call("train", "gmf", datasets[0], "--factors", 2, "--epochs", 2, "--run", path)
    assert done.status == 0, done.err
    return Run.open(path)


def test_files_of_a_run(run: Run) -> None:
    while_training = {"resume.safetensors", "training.lock"}
    # gmf learns from no features.
    others = {TRACE, TENSORBOARD, FEATURES}
    finished = names_in([run.path])
    assert finished == listed("A run") - while_training - others
    with run.in_training():
        run.save_state({}, {})
        assert names_in([run.path]) == finished | while_training
    run.discard_state()


def test_keys_of_the_config(run: Run) -> None:
    written = json.loads((run.path / "config.json").read_text())
    assert listed("config.json") == written.keys()
    assert {entry.name for entry in fields(RunConfig)} <= written.keys()


def test_entries_of_notes(run: Run) -> None:
    entries = set()
    run.save_state({}, {})
    for name in ("best.safetensors", "resume.safetensors"):
        with safe_open(run.path / name, framework="pt") as file:
            entries |= json.loads(file.metadata()["foretaste"]).keys()
    run.discard_state()
    assert listed("Weights and states") == entries


def test_events_of_the_log(run: Run) -> None:
    events = {event["event"] for event in run.log.read()}
    assert listed("metrics.jsonl") == events | {"resume"}
