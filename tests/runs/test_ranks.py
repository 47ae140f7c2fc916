"""Weights and training states of several ranks: one file, read by any number of ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import Tensor

from foretaste.data import Dataset
from foretaste.distributed import strategy
from foretaste.distributed.checkpoint import gather_rows, read_alike
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.strategy import strategy_of
from foretaste.errors import RankError, RunError
from foretaste.runs import Run
from foretaste.runs.files import RowsOf, read_tensors, save_tensors
from tests.messages import says
from tests.ranks import run_ranks
from tests.runs.tiny import make_run

OWNER = {"model": "any"}
NUM_ROWS = {"table": 10, "bias": 3, "optimizer.table": 10}
"""Rows of the shared tensors: a rank gets a few, one, or none."""

WHOLE = Ranks()


def tensors_of(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "table": torch.randn(10, 4, generator=generator),
        "bias": torch.randn(3, generator=generator).bfloat16(),
        "optimizer.table": torch.randn(10, 2, 2, generator=generator),
        "step": torch.tensor(float(seed)),
        "tower": torch.randn(5, 5, generator=generator),
    }


def rows_of(ranks: Ranks) -> RowsOf:
    return lambda n: ranks.part_of(NUM_ROWS[n]) if n in NUM_ROWS and ranks.size > 1 else None


def part_of(ranks: Ranks, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A rank's part of the tensors."""
    rows = {name: rows_of(ranks)(name) for name in tensors}
    return {
        name: tensor if (some := rows[name]) is None else tensor[some.start : some.stop]
        for name, tensor in tensors.items()
    }


def save(ranks: Ranks, path: Path, seed: int) -> None:
    whole = gather_rows(ranks, part_of(ranks, tensors_of(seed)), rows_of(ranks))
    ranks.run_on_first(lambda: save_tensors(path, whole, OWNER, {"epoch": 1}))


def differences(ranks: Ranks, path: Path, seed: int) -> list[str]:
    """Names of the tensors on this rank that differ from ``seed``'s."""
    found = read_alike(ranks, path, lambda: read_tensors(path, OWNER, rows_of(ranks))).tensors
    expected = part_of(ranks, tensors_of(seed))
    assert found.keys() == expected.keys()
    return [name for name, tensor in expected.items() if not same(found[name], tensor)]


def same(found: Tensor, expected: Tensor) -> bool:
    return found.dtype == expected.dtype and torch.equal(found, expected)


def save_on_a_full_disk(ranks: Ranks, path: Path) -> str:
    def no_room(*_: object, **__: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", no_room)
        with pytest.raises((RunError, RankError)) as error:
            save(ranks, path, 2)
    return str(error.value)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_file_of_several_ranks_has_the_bytes_of_one_process_and_any_number_reads_it(
    num_ranks: int, tmp_path: Path
) -> None:
    save(WHOLE, tmp_path / "alone", 1)
    path = tmp_path / "together"
    run_ranks(save, num_ranks, path, 1)
    assert path.read_bytes() == (tmp_path / "alone").read_bytes()
    assert {file.name for file in tmp_path.iterdir()} == {"alone", "together"}
    for size in (1, 2, 4):
        assert run_ranks(differences, size, path, 1) == [[]] * size


def test_a_full_disk_leaves_existing_files_and_is_reported_on_every_rank(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    save(WHOLE, path, 1)
    for message in run_ranks(save_on_a_full_disk, 2, path):
        says(message, path, "I/O error: No space left on device")
    assert differences(WHOLE, path, 1) == []


def opened(ranks: Ranks, path: Path, elsewhere: Path, second: str | None) -> str:
    """Open a run on all ranks; the second finds another directory, or nothing, at its path."""

    def open_run(place: str) -> Run:
        return Run.open(elsewhere if second == "another" and ranks.rank == 1 else place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(strategy, "SEEN_WITHIN_S", 0.1)
        if second == "nothing" and ranks.rank == 1:
            patch.setattr(Path, "is_dir", lambda path: False)
        try:
            return str(strategy_of(ranks).open_on_all(lambda: Run.open(path), open_run).path)
        except RankError as error:
            return str(error)


def test_a_rank_that_does_not_see_the_run_is_named(
    tmp_path: Path, dataset: Dataset, run: Run
) -> None:
    other = make_run(tmp_path / "other", dataset, "gmf", factors=4).path
    assert run_ranks(opened, 3, run.path, other, None) == [str(run.path)] * 3
    (message,) = set(run_ranks(opened, 3, run.path, other, "nothing"))
    says(message, 1, run.path, 0)
    (message,) = set(run_ranks(opened, 3, run.path, other, "another"))
    says(message, 1, run.path, 0)
