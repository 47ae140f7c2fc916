"""`foretaste.train` refuses mistakes before it leaves any file."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import RunError, SettingError, UnsupportedError
from foretaste.models.vae.config import VAEConfig
from foretaste.training import TrainingConfig, resume, train
from tests.training.trainings import run_of


def test_settings_of_another_model_are_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"model_config is VAEConfig.*; it must be Neu"):
        train("neumf", dataset, model_config=VAEConfig(), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["model_config", "config", "logs", "pretraining"])
def test_settings_are_no_dicts(name: str, dataset: Dataset, tmp_path: Path) -> None:
    said = rf"{name}( of neumf)? is {{}}; it must be \w+Config\(\.\.\.\), with settings by name"
    with pytest.raises(SettingError, match=said):
        train("neumf", dataset, run=tmp_path / "run", **{name: {}})  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("svd", {}, "model is 'svd'; it must be one of neumf"),
        ("vae", {"factors": 8}, "'factors' here; did you mean latent?"),
        ("vae", {"negatives": 4}, "it belongs to GMFConfig, MLPConfig and NeuMFConfig"),
        ("vae", {"pretrained_gmf": "a", "pretrained_mlp": "b"}, "vae has no halves"),
        ("neumf", {"k": (5,)}, "'k' here: it belongs to EvaluationConfig"),
        ("neumf", {"epoch": 5}, "'epoch' here; did you mean epochs?"),
        ("neumf", {"min_rating": 4}, "is prepared already, so min_rating cannot change it"),
        ("neumf", {"epochs": 0}, "epochs is 0; it must be a whole number"),
        (
            "ease",
            {"epochs": 3},
            "epochs does nothing for ease, which heeds device, select_by, search, evaluation",
        ),
        ("ials", {"batch_size": 9}, "batch_size does nothing for ials"),
        ("gmf", {"precision": "bf16"}, "precision does nothing for gmf"),
        ("ease", {"trace": True}, "trace is on, but a model that is fitted in one pass"),
        ("vae", {"search": False}, "search does nothing for vae"),
        ("neumf", {"loss_scale": 8.0, "device": "cpu"}, "only fp16 scales its loss"),
        ("gmf", {"candidates": "fixed"}, "is fixed, and none came with the validatio"),
        ("gmf", {"select_by": "accuracy@1"}, "there is no metric 'accuracy@1'"),
        # Coverage is defined for full candidates only.
        ("gmf", {"select_by": "coverage@10", "candidates": "sampled-9"}, "coverage@10"),
        pytest.param(
            *("gmf", {"device": "cuda"}, "device 'cuda' was asked for"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
    ],
)
def test_misplaced_settings_are_refused_before_the_run_exists(
    model: str, settings: dict[str, Any], message: str, dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(SettingError, match=message):
        train(model, dataset, run=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_never_overwritten(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("popularity", dataset, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(
        RunError, match="exists already; choose another directory, or replace a run with --over"
    ):
        run_of("gmf", dataset, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_catalogue_too_large_for_ease_leaves_no_run(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory suffices for the weights, not for fitting them."""
    free = 10 * dataset.manifest.num_items**2
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_: free)
    with pytest.raises(UnsupportedError, match=r"training ease for .* items.* keep fewer items"):
        run_of("ease", dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_target_that_nothing_measures_is_refused(tmp_path: Path) -> None:
    table = pa.table({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 2, 3]})
    dataset = prepare(table, tmp_path / "all", PrepareConfig(protocol="none"))
    with pytest.raises(SettingError, match="holds nothing out to measure it on"):
        train("gmf", dataset, config=TrainingConfig(target=0.5), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("negatives", [10**12, 10**18])
def test_negatives_that_cannot_be_kept_leave_no_run(
    negatives: int, dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=r"with 1,000,.* negatives .*; lower batch_size"):
        train("gmf", dataset, negatives=negatives, device="cpu", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("batch", "advice"),
    [(10**9, "lower evaluation_batch, or leave it out"), (None, "give a smaller evaluation_batch")],
)
def test_a_validation_that_does_not_fit_leaves_no_run(
    batch: int | None,
    advice: str,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretaste.evaluation.ranking.free_on", lambda device: 0)
    with pytest.raises(UnsupportedError, match=rf"users at once .*; {advice}"):
        run_of("gmf", dataset, tmp_path / "run", evaluation_batch=batch)
    assert not (tmp_path / "run").exists()


def test_memory_of_a_validation_adds_to_memory_of_the_training(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = 12 * dataset.manifest.num_users * dataset.manifest.num_items
    monkeypatch.setattr("foretaste.evaluation.ranking.free_on", lambda device: ranking)
    run_of("ease", dataset, tmp_path / "fits")
    with pytest.raises(UnsupportedError, match="users at once"):
        run_of("gmf", dataset, tmp_path / "run")
    run_of("gmf", dataset, tmp_path / "sampled", candidates="sampled-3")


def test_a_model_of_the_order_needs_one(tmp_path: Path) -> None:
    rows = [(user, user * item % 7) for user in range(9) for item in range(1, 5)]
    users, items = zip(*rows, strict=True)
    table = pa.table({"user": users, "item": items, "bought_on": [1] * len(rows)})
    data = prepare(table, tmp_path / "data", protocol="leave-one-out")
    message = (
        "slist learns from the order of interactions, and these have none .unknown; 'bought_on' "
        "looks like times, which --time-column names.; prepare them with a column of times, "
        "--time-column .time_column=... in Python., in lists"
    )
    with pytest.raises(UnsupportedError, match=message):
        train("slist", data, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_callback_is_a_callback(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="callback is 3; it must be a Callback"):
        train("ease", dataset, run=tmp_path / "run", callback=3)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    run = train("ease", dataset, run=tmp_path / "run")
    with pytest.raises(SettingError, match="callback is 3; it must be a Callback"):
        resume(run, callback=3)  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="its name is not UTF-8 text; name another"):
        train("ease", dataset, run=tmp_path / "\udcff" / "run")
    with pytest.raises(RunError, match="its name is not UTF-8 text; name another"):
        train("ease", dataset, runs_root=tmp_path / "\udcff")
    assert not [path for path in tmp_path.iterdir() if path.name != "data"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_links_that_lead_in_a_circle_are_refused(
    overwrite: bool, dataset: Dataset, tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    reason = os.strerror(errno.ELOOP)
    with pytest.raises(RunError, match=rf"loop cannot be written: {reason}"):
        train("ease", dataset, run=loop, overwrite=overwrite)
