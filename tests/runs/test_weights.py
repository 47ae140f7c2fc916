"""best.safetensors: saved atomically, loaded only where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from foretaste.data import Dataset
from foretaste.errors import RunError
from foretaste.runs import Run, load_model
from tests.runs.tiny import make_dataset, make_run, parameters, run_config

VAE = {"hidden": (8, 6), "latent": 4}


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        ("popularity", {}),
        ("ease", {}),
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


def test_saving_again_replaces_the_weights(run: Run) -> None:
    better = {name: tensor + 1 for name, tensor in parameters(run).items()}
    run.save_weights(better)
    for name, tensor in run.load_weights().items():
        torch.testing.assert_close(tensor, better[name])


def test_who_may_read_the_run_may_read_its_weights(run: Run) -> None:
    weights, config = run.path / "best.safetensors", run.path / "config.json"
    assert weights.stat().st_mode == config.stat().st_mode


def test_equal_weights_make_equal_bytes(run: Run) -> None:
    first = (run.path / "best.safetensors").read_bytes()
    run.save_weights(parameters(run))
    assert (run.path / "best.safetensors").read_bytes() == first


@pytest.mark.parametrize("error", [OSError, SafetensorError])
def test_a_failed_save_keeps_the_earlier_weights(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    before = sorted(run.path.iterdir())
    weights = parameters(run)

    def fail(_tensors: object, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise error("no space left on device")

    monkeypatch.setattr("foretaste.runs.tensor_file.save_file", fail)
    with pytest.raises(RunError, match=r"best\.safetensors cannot be written: no space left"):
        run.save_weights({name: tensor + 1 for name, tensor in weights.items()})
    assert sorted(run.path.iterdir()) == before
    for name, tensor in run.load_weights().items():
        torch.testing.assert_close(tensor, weights[name])


def test_a_run_without_weights_says_so(tmp_path: Path, dataset: Dataset) -> None:
    config = run_config(dataset, "popularity", {})
    run = Run.create(tmp_path / "run", config=config, dataset=dataset)
    assert not run.has_weights
    with pytest.raises(RunError, match=r"has no best\.safetensors"):
        load_model(run, "cpu")


@pytest.mark.parametrize("kept", [0, 4, 50, -1])
def test_truncated_weights_are_named(run: Run, kept: int) -> None:
    path = run.path / "best.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(RunError, match=r"best\.safetensors is torn or not a safetensors file"):
        load_model(run, "cpu")


def test_foreign_weights_are_named(run: Run) -> None:
    save_file(parameters(run), run.path / "best.safetensors")
    with pytest.raises(RunError, match=r"best\.safetensors was not written by foretaste"):
        load_model(run, "cpu")


def test_weights_of_another_run_are_named(tmp_path: Path, run: Run, dataset: Dataset) -> None:
    other = make_run(tmp_path / "other", dataset, "vae", **VAE)
    (other.path / "best.safetensors").replace(run.path / "best.safetensors")
    with pytest.raises(RunError, match="belongs to another run: model is 'vae'"):
        load_model(run, "cpu")


def test_weights_of_another_dataset_are_named(tmp_path: Path, run: Run) -> None:
    other = make_run(tmp_path / "other", make_dataset(tmp_path, spell="x{}"))
    (other.path / "best.safetensors").replace(run.path / "best.safetensors")
    with pytest.raises(RunError, match="belongs to another run: dataset_digest"):
        load_model(run, "cpu")


def test_missing_foreign_misshapen_and_broken_tensors_are_named(run: Run) -> None:
    weights = parameters(run)
    counts = weights["item_count_I"]

    run.save_weights({})
    with pytest.raises(RunError, match="lacks 'item_count_I', which popularity needs"):
        load_model(run, "cpu")
    run.save_weights(weights | {"extra": torch.zeros(2)})
    with pytest.raises(RunError, match="holds 'extra', which popularity does not have"):
        load_model(run, "cpu")
    run.save_weights({"item_count_I": counts[:3]})
    with pytest.raises(RunError, match=r"'item_count_I' has shape \[3\]"):
        load_model(run, "cpu")
    run.save_weights({"item_count_I": counts * float("nan")})
    with pytest.raises(RunError, match="'item_count_I' holds numbers that are not finite"):
        load_model(run, "cpu")


def test_settings_that_the_model_does_not_have_are_named(tmp_path: Path, dataset: Dataset) -> None:
    for model, settings, message in [
        ("vae", {"hiden": 5}, "hiden"),
        ("vae", {"latent": 0}, "latent"),
        ("transformer", {}, "model 'transformer' is unknown"),
    ]:
        path = tmp_path / f"{model}-{len(settings)}-{message[:4]}"
        run = Run.create(path, config=run_config(dataset, model, settings), dataset=dataset)
        with pytest.raises(RunError, match=rf"config\.json: .*{message}"):
            load_model(run, "cpu")
