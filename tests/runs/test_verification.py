"""Whatever is changed in a run directory is found, and the file named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from foretaste.data import Dataset
from foretaste.errors import DatasetError, RunError
from foretaste.runs import Run, verify, verify_run
from foretaste.runs.config import WrittenFile
from tests.runs.tiny import edit_config, flip_byte, make_run, parameters

FILES = ["config.json", "users.parquet", "items.parquet", "histories.parquet", "metrics.jsonl"]


def only_problem(run: Run) -> str:
    found = verify_run(run.path)
    assert not found.is_ok
    (problem,) = found.problems
    with pytest.raises(RunError) as caught:
        found.raise_if_wrong()
    assert str(caught.value) == problem
    return problem


def test_what_was_written_is_right(run: Run) -> None:
    found = verify_run(run.path)
    assert found.problems == []
    assert found.is_ok
    found.raise_if_wrong()
    assert found.holds == "run"
    assert [check.subject for check in found.checks] == [*FILES, "best.safetensors"]


@pytest.mark.parametrize("model", ["neumf", "vae", "ease"])
def test_weights_of_every_kind_are_read(tmp_path: Path, dataset: Dataset, model: str) -> None:
    settings: dict[str, dict[str, object]] = {
        "neumf": {"factors": 4, "layers": (8, 4)},
        "vae": {"hidden": (8,), "latent": 4},
        "ease": {},
    }
    run = make_run(tmp_path / "run", dataset, model, **settings[model])
    check = verify_run(run.path).checks[-1]
    num_numbers = sum(tensor.numel() for tensor in parameters(run).values())
    assert check.found == f"{num_numbers:,} numbers: digest, owner, names, shapes, finite"


@pytest.mark.parametrize("name", [*FILES[1:4], "best.safetensors"])
def test_a_changed_file_is_named(run: Run, name: str) -> None:
    flip_byte(run.path / name, (run.path / name).stat().st_size - 20)
    assert only_problem(run).startswith(f"{run.path / name} is torn or was changed")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    (run.path / name).unlink()
    assert name in only_problem(run)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "is torn or not JSON"),
        (b"{}", "is not the config of a foretaste run"),
        (
            b'{"format": "foretaste run", "format_version": 99}',
            "was written in format 99, and this foretaste reads",
        ),
    ],
)
def test_another_config_is_refused(run: Run, content: bytes, said: str) -> None:
    (run.path / "config.json").write_bytes(content)
    assert said in only_problem(run)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"not json\n", "line 3 is damaged: Expecting value"),
        (b"[1]\n", "line 3 is damaged: it is no event"),
        (b'{"event": "epoch", "speed": 1}\n', "line 3 is no event of this log"),
        (b"\xff\n", "line 3 is damaged: 'utf-8' codec"),
    ],
)
def test_a_line_that_does_not_belong_is_named(run: Run, line: bytes, said: str) -> None:
    run.log.append("epoch", epoch=1)
    with run.log.path.open("ab") as file:
        file.write(line)
    assert f"{run.log.path}" in only_problem(run)
    assert said in only_problem(run)


def test_a_torn_last_line_is_no_mistake(run: Run) -> None:
    with run.log.path.open("ab") as file:
        file.write(b'{"event": "epo')
    found = verify_run(run.path)
    assert found.is_ok
    assert next(c.found for c in found.checks if c.subject == "metrics.jsonl") == "1 lines: names"


def test_weights_may_be_missing_only_before_the_end(run: Run) -> None:
    (run.path / "best.safetensors").unlink()
    found = verify_run(run.path)
    assert found.is_ok
    assert found.checks[-1].found == "not there: training was not finished"
    run.log.append("summary", stopped_because="all epochs done")
    assert "best.safetensors is missing: the run is not whole" in only_problem(run)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda tensors: tensors.popitem(), "lacks"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "holds 'extra'"),
        (lambda tensors: tensors.update({n: one[:-1] for n, one in tensors.items() if one.ndim}),
         "has shape"),
        (lambda tensors: next(iter(tensors.values())).fill_(float("nan")), "not finite"),
    ],
)  # fmt: skip
def test_weights_must_be_those_of_the_model(
    tmp_path: Path,
    dataset: Dataset,
    change: Callable[[dict[str, torch.Tensor]], None],
    said: str,
) -> None:
    run = make_run(tmp_path / "run", dataset, "gmf", factors=4)
    tensors = parameters(run)
    change(tensors)
    run.save_weights(tensors)
    assert said in only_problem(run)


def test_a_saved_state_is_checked_and_the_log_left_alone(run: Run) -> None:
    run.save_state({"weight": torch.ones(3)}, {"epoch": 1})
    run.log.append("epoch", epoch=2)
    before = run.log.path.read_bytes()
    found = verify_run(run.path)
    assert found.problems == []
    assert found.checks[-1].subject == "resume.safetensors"
    assert run.log.path.read_bytes() == before

    run.log.path.write_bytes(before.splitlines(keepends=True)[0][:-9])
    problems = verify_run(run.path).problems
    assert any("line 1 is damaged" in problem for problem in problems)
    run.log.path.write_bytes(before)
    save_file({"weight": torch.ones(3)}, run.path / "resume.safetensors")
    assert "resume.safetensors was not written by foretaste" in only_problem(run)


def test_ids_that_come_twice(run: Run) -> None:
    path = run.path / "items.parquet"
    table = pq.read_table(path)
    ids = table["item_id"].to_pylist()
    pq.write_table(table.set_column(1, "item_id", [[ids[0], ids[0], *ids[2:]]]), path)
    weights = parameters(run)
    files = {name: asdict(written) for name, written in run.config.files.items()}
    edit_config(run, files=files | {path.name: asdict(WrittenFile.of(path))})
    Run.open(run.path).save_weights(weights)
    assert only_problem(run) == f"{path}: an id is there more than once"


def test_verify_tells_datasets_from_runs(run: Run, dataset: Dataset, tmp_path: Path) -> None:
    assert verify(run.path).holds == "run"
    assert verify(dataset.path).holds == "dataset"
    with pytest.raises(RunError, match="nope: there is no such directory"):
        verify(tmp_path / "nope")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="is neither a dataset nor a run"):
        verify(tmp_path / "empty")


def test_a_problem_of_a_dataset_is_one_of_datasets(dataset: Dataset, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "manifest.json").write_bytes((dataset.path / "manifest.json").read_bytes())
    with pytest.raises(DatasetError, match=r"train\.parquet: .*cannot be read.* \(and \d+ more\)"):
        verify(copy).raise_if_wrong()


def test_a_file_is_no_directory_to_verify(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"
    path.write_text("user_id,item_id\n1,2\n")
    with pytest.raises(RunError, match=r"ratings\.csv is a file; name the directory"):
        verify(path)
