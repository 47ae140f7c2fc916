"""`foretaste.train` refuses mistakes before it leaves any file."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import RunError, SettingError, UnsupportedError
from foretaste.models import MODEL_NAMES
from foretaste.models.vae.config import VAEConfig
from foretaste.training import TrainingConfig, resume, train
from tests.messages import Named, raises
from tests.training.trainings import run_of

HEEDS = re.compile(r"epochs, [\w, ]+(?=; leave)")


@pytest.mark.parametrize(
    ("name", "given", "kind"),
    [
        ("model_config", VAEConfig(), "NeuMFConfig"),
        ("model_config", {}, "NeuMFConfig"),
        ("config", {}, "TrainingConfig"),
        ("logs", {}, "LogConfig"),
        ("pretraining", {}, "PretrainingConfig"),
    ],
)
def test_a_config_of_another_kind_is_refused(
    name: str, given: Any, kind: str, dataset: Dataset, tmp_path: Path
) -> None:
    with raises(SettingError, name, given, kind):
        train("neumf", dataset, run=tmp_path / "run", **{name: given})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("model", "settings", "named"),
    [
        ("svd", {}, ("model", "svd", *MODEL_NAMES)),
        ("vae", {"factors": 8}, ("factors", "latent")),
        ("vae", {"negatives": 4}, ("negatives", "GMFConfig", "MLPConfig", "NeuMFConfig")),
        ("vae", {"pretrained_gmf": "a", "pretrained_mlp": "b"}, ("vae", "neumf")),
        ("neumf", {"k": (5,)}, ("k", "EvaluationConfig")),
        ("neumf", {"epoch": 5}, ("epoch", "epochs")),
        ("neumf", {"min_rating": 4}, ("min_rating",)),
        ("neumf", {"epochs": 0}, ("epochs", 0)),
        (
            "ease",
            {"epochs": 3},
            ("epochs", "ease", "device", "select_by", "search", "evaluation_batch", "candidates"),
        ),
        ("ials", {"batch_size": 9}, ("batch_size", "ials", HEEDS)),
        ("gmf", {"precision": "bf16"}, ("precision", "gmf", HEEDS)),
        ("ease", {"trace": True}, ("trace",)),
        ("vae", {"search": False}, ("search", "vae", HEEDS)),
        ("neumf", {"loss_scale": 8.0, "device": "cpu"}, ("loss_scale", 8, "--precision fp16")),
        ("gmf", {"candidates": "fixed"}, ("candidates", "fixed", "validation")),
        ("gmf", {"select_by": "accuracy@1"}, ("accuracy@1",)),
        # Coverage is defined for full candidates only.
        ("gmf", {"select_by": "coverage@10", "candidates": "sampled-9"}, ("coverage@10",)),
        pytest.param(
            *("gmf", {"device": "cuda"}, ("cuda", re.compile(r"PyTorch \S+"))),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here"),
        ),
    ],
)
def test_misplaced_settings_are_refused_before_the_run_exists(
    model: str, settings: dict[str, Any], named: Named, dataset: Dataset, tmp_path: Path
) -> None:
    with raises(SettingError, *named):
        train(model, dataset, run=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_an_existing_run_is_never_overwritten(dataset: Dataset, tmp_path: Path) -> None:
    run = run_of("popularity", dataset, tmp_path / "run")
    before = {path.name: path.read_bytes() for path in run.path.iterdir()}
    with raises(RunError, run.path, "--overwrite"):
        run_of("gmf", dataset, tmp_path / "run")
    assert {path.name: path.read_bytes() for path in run.path.iterdir()} == before


def test_a_catalogue_too_large_for_ease_leaves_no_run(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory suffices for the weights, not for fitting them."""
    free = 10 * dataset.manifest.num_items**2
    monkeypatch.setattr("foretaste.models.memory.free_on", lambda *_: free)
    with raises(
        UnsupportedError,
        "ease",
        60,
        40,
        re.compile(r"EaseConfig\(.*?\)"),
        "--neighbors 100",
        "--min-item-users",
    ):
        run_of("ease", dataset, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_target_that_nothing_measures_is_refused(tmp_path: Path) -> None:
    table = pa.table({"user_id": [1, 1, 2, 2], "item_id": [1, 2, 2, 3]})
    dataset = prepare(table, tmp_path / "all", PrepareConfig(protocol="none"))
    with raises(SettingError, "target", 0.5, dataset.path, "none", "--target"):
        train("gmf", dataset, config=TrainingConfig(target=0.5), run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("negatives", [10**12, 10**18])
def test_negatives_that_cannot_be_kept_leave_no_run(
    negatives: int, dataset: Dataset, tmp_path: Path
) -> None:
    with raises(
        UnsupportedError, f"{negatives + 1:,}", f"{negatives:,}", "batch_size or negatives"
    ):
        train("gmf", dataset, negatives=negatives, device="cpu", run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("batch", "advice"), [(10**9, "lower evaluation_batch"), (None, "smaller evaluation_batch")]
)
def test_a_validation_that_does_not_fit_leaves_no_run(
    batch: int | None,
    advice: str,
    dataset: Dataset,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("foretaste.evaluation.ranking.free_on", lambda device: 0)
    with raises(UnsupportedError, 40, 60, advice):
        run_of("gmf", dataset, tmp_path / "run", evaluation_batch=batch)
    assert not (tmp_path / "run").exists()


def test_memory_of_a_validation_adds_to_memory_of_the_training(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = 12 * dataset.manifest.num_users * dataset.manifest.num_items
    monkeypatch.setattr("foretaste.evaluation.ranking.free_on", lambda device: ranking)
    run_of("ease", dataset, tmp_path / "fits")
    with raises(UnsupportedError, 40, 60, "smaller evaluation_batch"):
        run_of("gmf", dataset, tmp_path / "run")
    run_of("gmf", dataset, tmp_path / "sampled", candidates="sampled-3")


def test_a_model_of_the_order_needs_one(tmp_path: Path) -> None:
    rows = [(user, user * item % 7) for user in range(9) for item in range(1, 5)]
    users, items = zip(*rows, strict=True)
    table = pa.table({"user": users, "item": items, "bought_on": [1] * len(rows)})
    data = prepare(table, tmp_path / "data", protocol="leave-one-out")
    with raises(
        UnsupportedError, data.path, "bought_on", "--time-column", "--time-column", "--order rows"
    ):
        train("slist", data, run=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_callback_is_a_callback(dataset: Dataset, tmp_path: Path) -> None:
    with raises(SettingError, "callback", 3):
        train("ease", dataset, run=tmp_path / "run", callback=3)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()
    run = train("ease", dataset, run=tmp_path / "run")
    with raises(SettingError, "callback", 3):
        resume(run, callback=3)  # type: ignore[arg-type]


def test_a_name_that_is_no_text_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    with raises(RunError, tmp_path / "\udcff" / "run"):
        train("ease", dataset, run=tmp_path / "\udcff" / "run")
    with raises(RunError, re.compile(r"\S+/ease-small-[\d-]+")):
        train("ease", dataset, runs_root=tmp_path / "\udcff")
    assert not [path for path in tmp_path.iterdir() if path.name != "data"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_links_that_lead_in_a_circle_are_refused(
    overwrite: bool, dataset: Dataset, tmp_path: Path
) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    reason = os.strerror(errno.ELOOP)
    with raises(RunError, loop, reason):
        train("ease", dataset, run=loop, overwrite=overwrite)
