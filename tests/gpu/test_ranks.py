"""A rank with collectives (NCCL's on a GPU, Gloo's on a CPU) computes the numbers of a process
without."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from benchmarks.session import training_cases
from foretaste.bench.config import TrainBench
from foretaste.bench.session import Session
from foretaste.bench.train import Training
from foretaste.distributed.collectives import ALONE, Ranks
from tests.bench.rows import MODELS, SHAPE


class Several(int):
    """A size of one that does not compare equal to 1, so that no collective is skipped."""

    def __eq__(self, other: object) -> bool:
        return False

    def __gt__(self, other: int) -> bool:
        return True

    __hash__ = int.__hash__


@pytest.fixture(params=["cpu", "cuda"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The device of a process group of one rank."""
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    backend = "cpu:gloo,cuda:nccl" if request.param == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{tmp_path}/s", rank=0, world_size=1)
    yield request.param
    dist.destroy_process_group()


def trained(device: str, model: str, precision: Any, ranks: Ranks) -> dict[str, Any]:
    """Weights and moments after an epoch."""
    options = TrainBench(
        shape=SHAPE,
        device=device,
        precision=(precision,),
        batch_size=(100 if model == "neumf" else 20,),
        warmup=0,
        repeats=1,
    )
    session = Session("train", MODELS[model], options, ranks=ranks)
    ((part, plan),) = training_cases(session, options)
    training = Training(session, part, plan, ranks)
    training.run(lambda report: None)
    return training.step.state_dict()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("model", ["neumf", "vae"])
def test_one_rank_equals_none(group: str, model: str, precision: str) -> None:
    ranks = Ranks(0, Several(1))
    found = trained(group, model, precision, ranks)
    expected = trained(group, model, precision, ALONE)
    assert ranks.num_bytes["all-reduce"] > 0
    assert found.keys() == expected.keys()
    assert [name for name in found if not torch.equal(found[name], expected[name])] == []
