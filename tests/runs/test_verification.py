"""Every change in a run directory is found, and the error names the file."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.runs import Run, verify
from foretaste.runs.config import WrittenFile
from tests.messages import raises, says
from tests.runs.tiny import FIRST_USER, edit_config, flip_byte, items_of, make_run, parameters

FILES = ["config.json", "users.parquet", "items.parquet", "histories.parquet", "metrics.jsonl"]


@pytest.fixture
def run(run: Run) -> Run:
    """A finished run."""
    run.log.finish(stopped_because="all epochs done")
    return run


def only_problem(run: Run) -> str:
    (problem,) = verify(run.path)
    return problem


def test_written_runs_and_datasets_pass_verification(tmp_path: Path, dataset: Dataset) -> None:
    run = make_run(tmp_path / "run", dataset, "vae", hidden=(8,), latent=4)
    run.log.finish(stopped_because="all epochs done")
    assert verify(run.path) == verify(dataset.path) == []


@pytest.mark.parametrize("name", [*FILES[1:4], "best.safetensors"])
def test_a_changed_file_is_named(run: Run, name: str) -> None:
    flip_byte(run.path / name, (run.path / name).stat().st_size - 20)
    says(only_problem(run), run.path / name)


def test_a_run_that_was_rewritten_with_its_digest_is_taken(run: Run) -> None:
    edit_config(run, created="1999-01-01T00:00:00+00:00")
    says(only_problem(run), run.log.path, "config.json")
    run.log.cut(run.log.lines()[:-1])
    run.log.finish()
    assert verify(run.path) == []
    assert Run.open(run.path).config.created.startswith("1999")


def test_ids_and_histories_are_there_for_whoever_reads_the_files(run: Run) -> None:
    user_ids = pq.read_table(run.path / "users.parquet")["user_id"].to_pylist()
    item_ids = pq.read_table(run.path / "items.parquet")["item_id"].to_pylist()
    rows = pq.read_table(run.path / "histories.parquet").to_pylist()
    user_id = FIRST_USER + 1
    found = {item_ids[row["item_index"]] for row in rows if user_ids[row["user_index"]] == user_id}
    assert found
    assert found <= {*items_of(1)}


@pytest.mark.parametrize("name", FILES[1:])
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    (run.path / name).unlink()
    says(only_problem(run), run.path / name)


def test_another_config_is_refused(run: Run) -> None:
    (path := run.path / "config.json").write_text("{}")
    says(only_problem(run), path)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (b"not json\n", [re.compile("Expecting value: .*")]),
        (b'{"event": "epoch", "speed": 1}\n', []),
    ],
)
def test_a_line_that_does_not_belong_is_named(run: Run, line: bytes, named: list[object]) -> None:
    run.log.cut(run.log.lines()[:-1])
    run.log.append("epoch", epoch=1)
    with run.log.path.open("ab") as file:
        file.write(line)
    says(only_problem(run), run.log.path, 3, *named)


def test_a_torn_last_line_is_no_mistake(run: Run) -> None:
    with run.log.path.open("ab") as file:
        file.write(b'{"event": "epo')
    assert verify(run.path) == []


def test_weights_may_be_missing_only_before_the_end(run: Run) -> None:
    (path := run.path / "best.safetensors").unlink()
    run.log.cut(run.log.lines()[:-1])
    assert verify(run.path) == []
    run.log.finish(stopped_because="all epochs done")
    says(only_problem(run), path)


def test_weights_must_fit_the_model(run: Run) -> None:
    run.save_weights(parameters(run) | {"extra": torch.zeros(1)})
    says(only_problem(run), run.path / "best.safetensors", "extra", 1, run.config.model, "none")


def test_a_saved_state_is_checked_and_the_log_left_alone(run: Run) -> None:
    run.log.cut(run.log.lines()[:-1])
    run.save_state({"weight": torch.ones(3)}, {"epoch": 1})
    run.log.append("epoch", epoch=2)
    before = run.log.path.read_bytes()
    assert verify(run.path) == []
    assert run.log.path.read_bytes() == before

    run.log.path.write_bytes(before.splitlines(keepends=True)[0][:-9])
    says(verify(run.path)[0], run.log.path, 1)
    run.log.path.write_bytes(before)
    save_file({"weight": torch.ones(3)}, path := run.path / "resume.safetensors")
    says(only_problem(run), path)


def test_ids_that_come_twice(run: Run) -> None:
    path = run.path / "items.parquet"
    table = pq.read_table(path)
    ids = table["item_id"].to_pylist()
    pq.write_table(table.set_column(1, "item_id", [[ids[0], ids[0], *ids[2:]]]), path)
    weights = parameters(run)
    files = {name: asdict(written) for name, written in run.config.files.items()}
    edit_config(run, files=files | {path.name: asdict(WrittenFile.of(path))})
    Run.open(run.path).save_weights(weights)
    run.log.cut(run.log.lines()[:-1])
    run.log.finish()
    says(only_problem(run), path)


def test_every_changed_file_of_a_dataset_is_named(dataset: Dataset, tmp_path: Path) -> None:
    copy = shutil.copytree(dataset.path, tmp_path / "copy")
    train, items, manifest = (
        copy / name for name in ("train.parquet", "items.parquet", "manifest.json")
    )
    flip_byte(train, train.stat().st_size // 2)
    items.unlink()
    assert [problem.partition(":")[0] for problem in verify(copy)] == [str(train), str(items)]
    flip_byte(manifest, manifest.stat().st_size // 2)
    (problem,) = verify(copy)
    assert problem.startswith(f"{manifest}: ")


def test_verify_refuses_what_is_neither_dataset_nor_run(tmp_path: Path) -> None:
    with raises(RunError, "nope"):
        verify(tmp_path / "nope")
