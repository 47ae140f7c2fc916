"""best.safetensors: saved atomically, loaded only into its own model."""

from __future__ import annotations

import os
import re
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.models import MODEL_NAMES
from foretaste.runs import DatasetReference, Run, load_model, verify
from foretaste.runs.files import read_tensors, save_tensors
from tests.forks import fork
from tests.messages import Named, raises, says
from tests.runs.tiny import make_dataset, make_run, parameters, run_config

VAE = {"hidden": (8, 6), "latent": 4}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("popularity", {}),
        ("ease", {}),
        ("ease", {"neighbors": 3}),
        ("vae", VAE),
        ("dae", VAE),
        ("gmf", {"factors": 4}),
        ("mlp", {"layers": (8, 4)}),
        ("neumf", {"factors": 4, "layers": (8, 4)}),
    ],
)
def test_a_loaded_model_is_the_saved_one(
    tmp_path: Path, dataset: Dataset, model: str, settings: dict[str, object]
) -> None:
    run = make_run(tmp_path / "run", dataset, model, **settings)
    saved = parameters(run)

    loaded = load_model(Run.open(run.path), "cpu")

    assert not loaded.training
    assert loaded.num_users == dataset.manifest.num_train_users
    assert loaded.state_dict().keys() == saved.keys()
    for name, tensor in loaded.state_dict().items():
        torch.testing.assert_close(tensor, saved[name], rtol=0.0, atol=0.0)


def load_without_sympy(path: Path) -> None:
    assert load_model(Run.open(path), "cpu").state_dict()["weight_I"][0] == 7
    assert "sympy" not in sys.modules


def test_popularity_by_weights_is_loaded_without_sympy(run: Run) -> None:
    weights = parameters(run)
    run.save_weights(weights | {"weight_I": torch.full_like(weights["item_count_I"], 7)})
    process = fork(load_without_sympy, run.path)
    process.join(60)
    assert process.exitcode == 0


def overwrite(path: Path, other: Path) -> None:
    """Write in place like `cp`: the same file gets other bytes."""
    with path.open("r+b") as file:
        file.write(other.read_bytes())
        file.truncate()


@pytest.mark.parametrize("becomes", ["another", "nothing"])
def test_a_loaded_model_keeps_the_checked_weights_if_the_file_changes(
    tmp_path: Path, dataset: Dataset, becomes: str
) -> None:
    path = make_run(tmp_path / "run", dataset, "gmf", factors=8).path / "best.safetensors"
    other = make_run(tmp_path / "other", dataset, "gmf", factors=8)
    other.save_weights({name: tensor + 1 for name, tensor in parameters(other).items()})
    model = load_model(Run.open(path.parent), "cpu")
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if becomes == "another":
        overwrite(path, other.path / path.name)
    else:
        os.truncate(path, 0)  # a mapped file would end the process by SIGBUS
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, kept[name])


def test_a_file_that_does_not_fit_memory_can_be_verified_all_the_same(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.runs.files.free_bytes", lambda: 100)
    run.log.finish()
    assert verify(run.path) == []
    weights = run.path / "best.safetensors"
    content = bytearray(weights.read_bytes())
    content[-3] ^= 1
    weights.write_bytes(content)
    with raises(RunError, weights):
        run.load_weights()


@pytest.mark.parametrize("name", ["users.parquet", "items.parquet", "histories.parquet"])
def test_files_replaced_after_opening_are_noticed(
    tmp_path: Path, dataset: Dataset, name: str
) -> None:
    run = Run.open(make_run(tmp_path / "run", dataset).path)
    table = pq.read_table(run.path / name)
    pq.write_table(
        table.set_column(1, table.column_names[1], table[1].take([*range(len(table))][::-1])),
        tmp_path / name,
    )
    overwrite(run.path / name, tmp_path / name)
    with raises(RunError, run.path / name, "config.json"):
        _ = run.users, run.items, run.histories


def test_a_failed_save_keeps_the_earlier_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(run.path.iterdir())
    weights = parameters(run)

    def fail(tensors: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("no space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with raises(RunError, run.path / "best.safetensors", "no space left on device"):
        run.save_weights({name: tensor + 1 for name, tensor in weights.items()})
    assert sorted(run.path.iterdir()) == before
    for name, tensor in run.load_weights().items():
        torch.testing.assert_close(tensor, weights[name])


def test_a_run_without_weights_is_reported(tmp_path: Path, dataset: Dataset) -> None:
    config = run_config(dataset, "popularity", {})
    run = Run.create(tmp_path / "run", config=config, dataset=dataset)
    assert not run.has_weights
    with raises(RunError, run.path, "best.safetensors", f"foretaste train --resume {run.path}"):
        load_model(run, "cpu")


@pytest.mark.parametrize("kept", [0, 4, 50, -1])
def test_truncated_weights_are_named(run: Run, kept: int) -> None:
    path = run.path / "best.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with raises(RunError, path, re.compile("Error while deserializing header: .*")):
        load_model(run, "cpu")


def test_foreign_weights_are_named(run: Run) -> None:
    save_file(parameters(run), path := run.path / "best.safetensors")
    with raises(RunError, path):
        load_model(run, "cpu")


def test_weights_of_another_model_or_dataset_are_named(
    tmp_path: Path, run: Run, dataset: Dataset
) -> None:
    elsewhere = make_dataset(tmp_path, spell="x{}")
    for other in (
        make_run(tmp_path / "vae", dataset, "vae", **VAE),
        make_run(tmp_path / "other", elsewhere),
    ):
        (other.path / "best.safetensors").replace(run.path / "best.safetensors")
        with raises(RunError, run.path / "best.safetensors", "config_sha256"):
            load_model(run, "cpu")


@pytest.mark.parametrize("name", ["best.safetensors", "config.json"])
def test_weights_and_config_of_another_training_of_the_same_model_and_dataset_are_named(
    name: str, tmp_path: Path, run: Run, dataset: Dataset
) -> None:
    config = run_config(dataset, "popularity", {})
    config = replace(config, asked={**config.asked, "seed": 8})
    other = Run.create(tmp_path / "other", config=config, dataset=dataset)
    other.save_weights({name: tensor + 1 for name, tensor in parameters(run).items()}, epoch=3)
    (other.path / name).replace(run.path / name)
    with raises(RunError, run.path / "best.safetensors", "config_sha256"):
        load_model(Run.open(run.path), "cpu")
    says(verify(run.path)[0], run.path / "best.safetensors", "config_sha256")


def test_equal_runs_have_equal_files_of_weights(tmp_path: Path, run: Run, dataset: Dataset) -> None:
    """The files are equal for any start time and any place of the dataset."""
    moved = replace(DatasetReference.of(dataset), name="moved", path="/moved")
    config = replace(run_config(dataset, "popularity", {}), created="then", dataset=moved)
    other = Run.create(tmp_path / "other", config=config, dataset=dataset)
    other.save_weights(parameters(run))
    name = "best.safetensors"
    assert (other.path / name).read_bytes() == (run.path / name).read_bytes()


def test_a_reader_during_a_write_has_one_whole_version(run: Run) -> None:
    weights = parameters(run)
    done = threading.Event()

    def write() -> None:
        for epoch in range(60):
            run.save_weights({name: tensor + epoch for name, tensor in weights.items()}, epoch)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    num_loads = 0
    while not done.is_set():
        opened = Run.open(run.path)
        found = opened.load_weights()
        added = 0 if opened.loaded_epoch is None else opened.loaded_epoch
        assert all(bool((found[name] == tensor + added).all()) for name, tensor in weights.items())
        num_loads += 1
    writer.join()
    assert num_loads


KINDS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
KINDS += (torch.int64, torch.int32, torch.uint8, torch.bool)
EVERY_KIND = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in KINDS}
EVERY_KIND |= {f"{kind}, odd": torch.arange(5).to(kind) for kind in KINDS}
EVERY_KIND |= {"none": torch.zeros(0, 4), "one": torch.tensor(2.5), 'ä"\\\n': torch.ones(3)}


def test_every_kind_of_tensor_comes_back(tmp_path: Path) -> None:
    save_tensors(tmp_path / "file", EVERY_KIND, {"model": "any"}, {})
    saved = read_tensors(tmp_path / "file", {"model": "any"})
    assert saved.note["model"] == "any"
    assert saved.tensors.keys() == EVERY_KIND.keys()
    for name, tensor in EVERY_KIND.items():
        torch.testing.assert_close(saved.tensors[name], tensor, rtol=0.0, atol=0.0)


@pytest.mark.slow
def test_every_bit_that_was_flipped_in_a_file_of_tensors_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    save_tensors(path, {"a": torch.ones(3), "b": torch.zeros(2, 2)}, {"model": "any"}, {})
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(path.read_bytes()):
            for bit in range(8):
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit]), place)
                with pytest.raises(RunError, match=r"torn|written by|another"):
                    read_tensors(path, {"model": "any"})
            os.pwrite(file.fileno(), bytes([byte]), place)
    assert read_tensors(path, {"model": "any"}).tensors.keys() == {"a", "b"}


@pytest.mark.parametrize("more", [b"\0", b"\0" * 4096])
def test_bytes_after_the_last_tensor_are_noticed(run: Run, more: bytes) -> None:
    with (path := run.path / "best.safetensors").open("ab") as file:
        file.write(more)
    with raises(RunError, path, re.compile("Error while deserializing header: .*")):
        run.load_weights()


def test_missing_foreign_misshapen_and_broken_tensors_are_named(run: Run) -> None:
    weights = parameters(run)
    counts = weights["item_count_I"]

    run.save_weights({})
    with raises(RunError, "item_count_I", "none", "popularity", 72):
        load_model(run, "cpu")
    run.save_weights(weights | {"extra": torch.zeros(2)})
    with raises(RunError, "extra", 2, "popularity", "none"):
        load_model(run, "cpu")
    run.save_weights({"item_count_I": counts[:3]})
    with raises(RunError, "item_count_I", 3, "popularity", 72):
        load_model(run, "cpu")
    run.save_weights({"item_count_I": counts * float("nan")})
    with raises(RunError, "item_count_I"):
        load_model(run, "cpu")


def test_settings_that_the_model_does_not_have_are_named(tmp_path: Path, dataset: Dataset) -> None:
    cases: list[tuple[str, dict[str, object], Named]] = [
        ("vae", {"hiden": 5}, ("hiden",)),
        ("vae", {"latent": 0}, ("latent", 0, 1)),
        ("transformer", {}, ("model", "transformer", *MODEL_NAMES)),
    ]
    for number, (model, settings, named) in enumerate(cases):
        path = tmp_path / str(number)
        run = Run.create(path, config=run_config(dataset, model, settings), dataset=dataset)
        with raises(RunError, path / "config.json", *named):
            load_model(run, "cpu")
