"""The page about files lists what is written, all of it and nothing else."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors import safe_open

from foretaste.data import GivenSplit, PrepareConfig, open_dataset, prepare
from foretaste.data.config import Protocol
from foretaste.data.manifest import Manifest
from foretaste.ops.ranks import Ranks
from foretaste.runs import Run, saved_tensors
from foretaste.runs.config import RunConfig
from foretaste.runs.log_copies import TENSORBOARD
from foretaste.runs.saved_tensors import OwnRows
from foretaste.training.profiler import TRACE
from tests.cli.conftest import call
from tests.data.partitions import in_partitions
from tests.docs.pages import page
from tests.ranks import run_ranks

FILES = page("files.md")
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
    """A dataset of every kind of part."""
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
    made = [
        prepare(train, root / protocol, PrepareConfig(protocol=protocol), items=titles)
        for protocol in PROTOCOLS
    ]
    return [dataset.path for dataset in [*made, prepare(given, root / "given")]]


def test_files_of_a_dataset(datasets: list[Path]) -> None:
    assert names_in(datasets) == listed("A dataset")


def test_columns_of_a_dataset(datasets: list[Path]) -> None:
    rows = FILES.rows("Columns of a dataset")
    described = {(row[0], row[1]): row[2] for row in rows}
    for path in (file for directory in datasets for file in directory.glob("*.parquet")):
        for field in pq.read_schema(path):
            key = path.name if path.name in {row[0] for row in rows} else "every part"
            assert str(field.type) in described[key, field.name], f"{path.name}: {field}"


def test_keys_of_the_manifest(datasets: list[Path], tmp_path: Path) -> None:
    in_files = in_partitions(open_dataset(datasets[0]), tmp_path / "in_files", [0, 2])
    written = json.loads((in_files.path / "manifest.json").read_text())
    assert listed("manifest.json") == written.keys()
    assert {entry.name for entry in fields(Manifest)} <= written.keys()


@pytest.fixture(scope="module")
def run(datasets: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A finished run, and a few of its log's events."""
    path = tmp_path_factory.mktemp("runs") / "run"
    done = call("train", "gmf", datasets[0], "--factors", 2, "--epochs", 2, "--run", path)
    assert done.status == 0, done.err
    return Run.open(path)


def test_files_of_a_run(run: Run) -> None:
    while_training = {"resume.safetensors", "training.lock"}
    when_asked_for = {TRACE, TENSORBOARD}
    finished = names_in([run.path])
    assert finished == listed("A run") - while_training - when_asked_for
    with run.in_training():
        run.save_state({}, {})
        assert names_in([run.path]) == finished | while_training
    run.discard_state()


def test_keys_of_the_config(run: Run) -> None:
    written = json.loads((run.path / "config.json").read_text())
    assert listed("config.json") == written.keys()
    assert {entry.name for entry in fields(RunConfig)} <= written.keys()


def save_on_ranks(ranks: Ranks, path: Path) -> None:
    """Save weights and a state, the rows of one tensor in shards."""
    run, tensors = Run.open(path), {"table": torch.ones(ranks.rank + 1, 2), "one": torch.ones(1)}
    rows = [range(1), range(1, 3)][ranks.rank]
    own = OwnRows(ranks, lambda name: rows if name == "table" else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_tensors, "MOST_OF_FREE_MEMORY", 0.0)
        run.save_weights(tensors, 1, own)
        run.save_state(tensors, {}, own)


def test_entries_of_notes(run: Run, tmp_path: Path) -> None:
    shutil.copytree(run.path, tmp_path / "run")
    run_ranks(save_on_ranks, 2, tmp_path / "run")
    entries = set()
    for name in ("best.safetensors", "resume.safetensors"):
        with safe_open(tmp_path / "run" / name, framework="pt") as file:
            entries |= json.loads(file.metadata()["foretaste"]).keys()
    assert listed("Weights and states") == entries


def test_events_of_the_log(run: Run) -> None:
    events = {event["event"] for event in run.log.read()}
    assert listed("metrics.jsonl") == events | {"resume"}
