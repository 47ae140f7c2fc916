"""The run directory: made once, whole or not at all, and checked when opened."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import DatasetError, RunError
from foretaste.runs import Run, default_run_name, unused_run_path
from foretaste.runs.config import FORMAT_VERSION, read_run_config
from foretaste.runs.run import write_histories
from tests.messages import Named, raises
from tests.runs.tiny import edit_config, flip_byte, interactions, make_dataset, run_config


def test_an_opened_run_holds_what_was_created(run: Run, dataset: Dataset) -> None:
    opened = Run.open(run.path)

    assert opened.config == run.config
    assert opened.config.asked == {"batch": "auto", "epochs": 3, "seed": 7}
    assert opened.config.resolved == {"batch": 1024, "epochs": 3, "seed": 7}
    assert opened.config.dataset.name == "shop"
    assert opened.config.dataset.digest == dataset.manifest.digest
    assert opened.config.dataset.protocol == "held-out-users"
    assert opened.config.dataset.seed == 3
    assert set(opened.config.versions) == {"foretaste", "python", "torch", "numpy"}
    assert opened.config.hardware == {"num_threads": 3}
    assert opened.num_train_users == dataset.manifest.num_train_users
    assert opened.num_items == dataset.manifest.num_items


def test_a_run_answers_without_its_dataset(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path, titles=True)
    expected = dataset.all_interactions()
    Run.create(tmp_path / "run", config=run_config(dataset, "popularity", {}), dataset=dataset)
    shutil.rmtree(dataset.path)

    run = Run.open(tmp_path / "run")

    assert run.users.ids() == dataset.users.ids()
    assert run.items.ids() == dataset.items.ids()
    assert run.items.titles() == dataset.items.titles()
    assert len(run.histories) == dataset.manifest.num_users
    np.testing.assert_array_equal(run.histories.offsets, expected.offsets)
    np.testing.assert_array_equal(run.histories.item_index, expected.item_index)
    assert run.histories.num_items == dataset.manifest.num_all_items > run.num_items


def test_an_existing_directory_is_never_overwritten(tmp_path: Path, dataset: Dataset) -> None:
    path = tmp_path / "run"
    path.mkdir()
    (path / "notes").write_text("mine")
    with raises(RunError, path, "--overwrite"):
        Run.create(path, config=run_config(dataset, "popularity", {}), dataset=dataset)
    assert list(tmp_path.iterdir()) == [path]
    assert [(file.name, file.read_text()) for file in path.iterdir()] == [("notes", "mine")]


def test_an_empty_directory_is_a_place_for_a_run(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    path.mkdir()
    Run.create(path, config=run_config(dataset, "popularity", {}), dataset=dataset)
    assert Run.open(path).config.model == "popularity"
    mounted = tmp_path / "mounted"
    mounted.mkdir()

    def busy(*_: object) -> None:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "rename", busy)
    with raises(RunError, mounted):
        Run.create(mounted, config=run_config(dataset, "popularity", {}), dataset=dataset)
    assert list(mounted.iterdir()) == []


def test_a_directory_that_another_process_made_first_is_not_overwritten(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run"
    write = type(dataset.users).write

    def write_while_another_run_appears(table: object, target: Path) -> None:
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text("theirs")
        write(table, target)  # type: ignore[arg-type]

    monkeypatch.setattr(type(dataset.users), "write", write_while_another_run_appears)
    with raises(RunError, path, "--overwrite"):
        Run.create(path, config=run_config(dataset, "popularity", {}), dataset=dataset)
    assert list(tmp_path.iterdir()) == [path]
    assert (path / "config.json").read_text() == "theirs"


@pytest.mark.parametrize("rows_at_once", [100, 7, 1])
def test_histories_have_the_same_bytes_however_many_are_in_memory(
    rows_at_once: int, tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = dataset.all_interactions()
    columns = {
        "user_index": everything.row_index(),
        "item_index": everything.item_index,
        "in_training": dataset.in_training(everything),
    }
    path = tmp_path / "whole.parquet"
    pq.write_table(pa.table(columns), path, compression="zstd", row_group_size=64)
    monkeypatch.setattr("foretaste.runs.run.ROWS_AT_ONCE", rows_at_once)
    monkeypatch.setattr("foretaste.runs.run.ROW_GROUP", 64)
    write_histories(tmp_path / "parts.parquet", dataset)
    assert (tmp_path / "parts.parquet").read_bytes() == path.read_bytes()


def test_a_failed_creation_leaves_nothing(
    tmp_path: Path, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("foretaste.runs.run.write_histories", fail)
    with raises(RunError, tmp_path / "run", "no space left on device"):
        Run.create(tmp_path / "run", config=run_config(dataset, "ease", {}), dataset=dataset)
    assert list(tmp_path.iterdir()) == []


def test_config_json_refuses_what_json_cannot_write(tmp_path: Path, dataset: Dataset) -> None:
    config = run_config(dataset, "popularity", {"weight": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        Run.create(tmp_path / "run", config=config, dataset=dataset)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["users.parquet", "items.parquet", "histories.parquet"])
def test_a_changed_file_is_named(run: Run, name: str) -> None:
    flip_byte(run.path / name, 20)
    with raises(RunError, run.path / name, "config.json"):
        Run.open(run.path)


@pytest.mark.parametrize(
    "name", ["users.parquet", "items.parquet", "histories.parquet", "metrics.jsonl"]
)
def test_a_missing_file_is_named(run: Run, name: str) -> None:
    (run.path / name).unlink()
    with raises(RunError, run.path / name):
        Run.open(run.path)


def test_errors_distinguish_paths_that_are_no_run(tmp_path: Path, dataset: Dataset) -> None:
    with raises(RunError, "nothing"):
        Run.open(tmp_path / "nothing")
    with raises(RunError, tmp_path, "config.json"):
        Run.open(tmp_path)
    with raises(RunError, dataset.path, "foretaste train MODEL", dataset.path):
        Run.open(dataset.path)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", [re.compile("Expecting value: .*")]),
        ('{"format": "foretaste run"', [re.compile("Expecting ',' delimiter: .*")]),
        ("[]", []),
        ('{"model_type": "bert"}', []),
    ],
)
def test_a_torn_or_foreign_config_is_named(run: Run, text: str, named: list[object]) -> None:
    (path := run.path / "config.json").write_text(text)
    with raises(RunError, path, *named):
        Run.open(run.path)


def test_a_dataset_replaced_after_it_was_opened_makes_no_run(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path / "data")
    prepare(interactions().slice(7), dataset.path, PrepareConfig(protocol="none"), overwrite=True)
    with raises(DatasetError, dataset.path / "users.parquet"):
        Run.create(tmp_path / "run", config=run_config(dataset, "ease", {}), dataset=dataset)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("number", "step"), [(3, "train again"), (99, "update foretaste")])
def test_another_format_version_is_refused(run: Run, number: int, step: str) -> None:
    edit_config(run, format_version=number, created="2026-11-22T08:15:00+00:00")
    with raises(RunError, run.path / "config.json", "2026-11-22", number, FORMAT_VERSION, step):
        Run.open(run.path)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("model", 5, ("model", 5)),
        ("dataset", {"name": "shop"}, ("path",)),
        ("files", {"users.parquet": {"num_bytes": 5}}, ("sha256",)),
    ],
)
def test_a_damaged_config_names_the_field(run: Run, name: str, value: object, named: Named) -> None:
    edit_config(run, **{name: value})
    with raises(RunError, run.path / "config.json", *named):
        Run.open(run.path)


def test_a_file_that_the_config_does_not_name_is_not_trusted(run: Run) -> None:
    edit_config(run, files={})
    with raises(RunError, run.path / "users.parquet", "config.json"):
        Run.open(run.path)


def test_every_byte_of_the_config_that_was_changed_is_noticed(run: Run) -> None:
    path = run.path / "config.json"
    sound = path.read_bytes()
    for position in range(len(sound)):
        flipped = sound[position] ^ 1 << position % 8
        path.write_bytes(sound[:position] + bytes([flipped]) + sound[position + 1 :])
        with pytest.raises(RunError, match=r"config\.json (is torn|was written|is not)"):
            read_run_config(path)


def test_counts_that_do_not_fit_the_files_are_refused(run: Run) -> None:
    document = json.loads((run.path / "config.json").read_text())
    fewer = {"num_users": 3, "num_all_items": 3, "num_train_users": 2, "num_items": 2}
    edit_config(run, dataset=document["dataset"] | fewer)
    opened = Run.open(run.path)
    with raises(RunError, run.path / "users.parquet", 60, "config.json", 3):
        _ = opened.users
    with raises(RunError, run.path / "items.parquet", re.compile(r"\d+"), "config.json", 3):
        _ = opened.items


def test_names_of_runs(tmp_path: Path) -> None:
    name = default_run_name("neumf", "ml-1m", datetime(2024, 2, 3, 4, 5, 6))
    assert name == "neumf-ml-1m-20240203-040506"
    assert unused_run_path(tmp_path, name) == tmp_path / name
    (tmp_path / name).mkdir()
    (tmp_path / f"{name}-2").mkdir()
    assert unused_run_path(tmp_path, name) == tmp_path / f"{name}-3"


def test_opening_a_run_needs_no_torch(run: Run) -> None:
    code = (
        "import sys; from foretaste.runs import Run; run = Run.open(sys.argv[1]);"
        "run.users, run.histories, run.log.read(); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(run.path)]
    assert subprocess.run(command, check=False).returncode == 0


def test_histories_are_read_in_place_and_without_pandas(run: Run, tmp_path: Path) -> None:
    """The folder's name is ``~``, which is no home folder."""
    shutil.copytree(run.path, tmp_path / "~" / "run")
    code = (
        "import sys; from foretaste.runs import Run; run = Run.open('~/run');"
        "assert run.trained_pairs.item_index.size; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
