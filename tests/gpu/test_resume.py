"""Resumed trainings equal whole ones on a CUDA GPU too, and recorded steps equal the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU", allow_module_level=True)

from foretaste.data import open_dataset
from foretaste.data.manifest import FORMAT_VERSION
from foretaste.runs import Run
from tests.training.test_resume import Photographs, assert_ends_alike
from tests.training.trainings import run_of, weights_of

STORED = Path(__file__).parents[1] / "fixtures" / f"dataset-{FORMAT_VERSION}" / "leave-one-out"
"""24 users with three interactions each, prepared already because the machine may lack DuckDB."""

BATCH_SIZES = {"gmf": 40, "neumf": 40, "mlp": 40, "vae": 4, "dae": 4, "recvae": 4}
"""Six full batches of an epoch or more: a step is recorded after three."""

CASES = [
    *((name, "fp32") for name in ("gmf", "neumf", "vae")),
    *((name, "bf16") for name in ("neumf", "mlp", "vae", "dae", "recvae")),
    *((name, "fp16") for name in ("neumf", "vae")),
]


def trained(name: str, precision: str, cuda_graphs: bool, path: Path, album: Path) -> Run:
    """A training with a copy of its run from each moment in ``album``."""
    return run_of(
        name,
        open_dataset(STORED),
        path,
        device="cuda",
        precision=precision,
        cuda_graphs=cuda_graphs,
        batch_size=BATCH_SIZES[name],
        checkpoint_every_s=0.0,
        callback=Photographs(path, album, ("step-2-5",)),
    )


@pytest.mark.parametrize(("name", "precision"), CASES)
def test_a_killed_training_resumes_exactly(name: str, precision: str, tmp_path: Path) -> None:
    whole = [
        trained(name, precision, graphs, tmp_path / f"run-{graphs}", tmp_path / f"album-{graphs}")
        for graphs in (True, False)
    ]
    # Replays of a recorded step are equal to the step itself, to the bit.
    assert weights_of(whole[0]) == weights_of(whole[1])
    for run in whole:
        album = tmp_path / run.path.name.replace("run", "album")
        assert_ends_alike(run, album, ("step-2-5",))
