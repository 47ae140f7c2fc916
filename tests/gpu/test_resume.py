"""Stopped trainings go on as whole ones on a CUDA GPU too, with recorded steps and without."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

from foretaste.data import Dataset, GenerateConfig, PrepareConfig, generate, prepare
from tests.training.test_resume import Photographs, assert_ends_alike
from tests.training.trainings import run_of

SHAPE = GenerateConfig(num_users=600, num_items=300, num_interactions=15_000)
BATCH_SIZES = {"gmf": 8_000, "neumf": 8_000, "mlp": 8_000, "vae": 100, "dae": 100, "recvae": 100}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    directory = tmp_path_factory.mktemp("data") / "small"
    return prepare(generate(SHAPE).table, directory, PrepareConfig(protocol="leave-one-out"))


@pytest.mark.parametrize("cuda_graphs", [True, False])
@pytest.mark.parametrize(
    ("name", "precision"),
    [("gmf", "fp32")]
    + [
        (name, p)
        for name in ("neumf", "mlp", "vae", "dae", "recvae")
        for p in ("fp32", "bf16", "fp16")
    ],
)
def test_a_killed_training_goes_on_as_if_nothing_had_been(
    name: str, precision: str, cuda_graphs: bool, dataset: Dataset, tmp_path: Path
) -> None:
    path, album = tmp_path / "run", tmp_path / "album"
    whole = run_of(
        name,
        dataset,
        path,
        device="cuda",
        precision=precision,
        cuda_graphs=cuda_graphs,
        batch_size=BATCH_SIZES[name],
        checkpoint_every_s=0.0,
        callback=Photographs(path, album),
    )
    assert_ends_alike(whole, album, ("step-1-2", "step-2-5", "validation-1", "epoch-2"))
