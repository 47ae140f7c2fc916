"""Weights and training states of several ranks: one file or shards, read by any number of ranks."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import pytest
import torch
from torch import Tensor

from foretaste._util.atomic import remove_leftovers
from foretaste.data import Dataset
from foretaste.errors import RankError, RunError
from foretaste.ops.ranks import Ranks
from foretaste.runs import Run, load_model, loading, saved_tensors, tensor_files, verify
from foretaste.runs.loading import of_first
from foretaste.runs.saved_tensors import OwnRows, SavedTensors, remove_old_shards, save_tensors
from tests.ranks import run_ranks
from tests.runs.tiny import flip_byte, make_run, parameters

OWNER = {"model": "any"}
NUM_ROWS = {"table": 10, "bias": 3, "optimizer.table": 10}
"""Of what is shared out: a few rows a rank, one, or none."""

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


def rows_of(ranks: Ranks) -> OwnRows:
    if ranks.size == 1:
        return OwnRows.all()
    return OwnRows(ranks, lambda n: ranks.part_of(NUM_ROWS[n]) if n in NUM_ROWS else None)


def part_of(ranks: Ranks, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as a rank has them."""
    own = rows_of(ranks)
    rows = {name: own.of(name, tensor.dim()) for name, tensor in tensors.items()}
    return {
        name: tensor if (some := rows[name]) is None else tensor[some.start : some.stop]
        for name, tensor in tensors.items()
    }


def save(ranks: Ranks, path: Path, seed: int, share: float = 0.0) -> str:
    """Save on these ranks, as one file where ``share`` of the free memory is enough."""
    digests: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_tensors, "MOST_OF_FREE_MEMORY", share)
        mine = part_of(ranks, tensors_of(seed))
        save_tensors(path, mine, OWNER, rows_of(ranks), before=digests.append)
    return str(ranks.agreed(digests[0] if digests else None))


def differences(ranks: Ranks, path: Path, seed: int) -> list[str]:
    """Names of the tensors that are not, on this rank, those of ``seed``."""
    saved = SavedTensors.open(path, OWNER, rows_of(ranks))
    found, expected = saved.tensors(), part_of(ranks, tensors_of(seed))
    assert found.keys() == expected.keys()
    assert saved.shapes() == {name: list(tensor.shape) for name, tensor in expected.items()}
    return [name for name, tensor in expected.items() if not same(found[name], tensor)]


def same(found: Tensor, expected: Tensor) -> bool:
    return found.dtype == expected.dtype and torch.equal(found, expected)


def seeds_found(path: Path) -> list[int]:
    """The seeds whose tensors are there: one, unless they are a mix."""
    found = SavedTensors.open(path, OWNER, OwnRows.all()).tensors()
    return [
        seed
        for seed in range(9)
        if all(same(found[name], tensor) for name, tensor in tensors_of(seed).items())
    ]


def names(path: Path) -> list[str]:
    """Names in the directory, each without its digest."""
    return sorted(re.sub(r"-[0-9a-f]{16}\.", ".", file.name) for file in path.parent.iterdir())


SHARDS = [f"best-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


def test_one_file_of_several_ranks_has_the_bytes_of_one_process(tmp_path: Path) -> None:
    digest = save(WHOLE, tmp_path / "alone", 1)
    assert run_ranks(save, 3, tmp_path / "three", 1, 1.0) == [digest] * 3
    assert (tmp_path / "three").read_bytes() == (tmp_path / "alone").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"alone", "three"}


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_what_three_ranks_wrote_any_number_reads(tmp_path: Path, share: float) -> None:
    path = tmp_path / "best.safetensors"
    run_ranks(save, 3, path, 1, share)
    assert names(path) == ([path.name] if share else [*SHARDS, path.name])
    for size in (1, 2, 3, 4):
        assert run_ranks(differences, size, path, 1) == [[]] * size


def test_equal_tensors_on_as_many_ranks_make_equal_files(tmp_path: Path) -> None:
    contents = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        run_ranks(save, 2, tmp_path / name / "best.safetensors", 1)
        contents.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert contents[0] == contents[1]
    assert len(contents[0]) == 3


def test_one_saving_replaces_another_whatever_their_ranks(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    other = tmp_path / "resume-00001-of-00001.safetensors"
    other.write_bytes(b"of another file")
    for seed, (size, share) in enumerate([(3, 0.0), (2, 0.0), (3, 1.0), (3, 0.0), (1, 1.0)]):
        run_ranks(save, size, path, seed, share)
        assert seeds_found(path) == [seed]
        num_shards = size if size > 1 and not share else 0
        assert len(names(path)) == num_shards + 2


class Snapshots:
    """Copies of a directory as it is before each of a process's calls to the system."""

    def __init__(self, directory: Path, into: Path) -> None:
        self.directory, self.into = directory, into
        self.num_taken = 0
        self.is_on = True
        sys.addaudithook(self.audit)  # for as long as the process lives

    def audit(self, event: str, args: tuple[object, ...]) -> None:
        if not self.is_on or not event.startswith(("open", "os.", "tempfile.", "shutil.")):
            return
        self.is_on, self.num_taken = False, self.num_taken + 1
        copy = self.into / f"{os.getpid()}-{self.num_taken}"
        while not copy.exists():
            try:
                shutil.copytree(self.directory, copy)
            except shutil.Error:  # another rank renamed a file meanwhile
                shutil.rmtree(copy)
        self.is_on = True


def save_with_snapshots(ranks: Ranks, path: Path, seed: int, share: float, into: Path) -> None:
    snapshots = Snapshots(path.parent, into)
    try:
        save(ranks, path, seed, share)
    finally:
        snapshots.is_on = False


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)])
def test_ranks_killed_at_any_step_leave_the_old_or_the_new(
    before: float, after: float, tmp_path: Path
) -> None:
    """Before every call to the system of every rank; and nothing is left once it is tidied up."""
    path = tmp_path / "run" / "best.safetensors"
    path.parent.mkdir()
    run_ranks(save, 2, path, 1, before)
    run_ranks(save_with_snapshots, 2, path, 2, after, tmp_path / "copies")
    copies = [copy / path.name for copy in (tmp_path / "copies").iterdir()]
    found = [seeds_found(copy) for copy in copies]
    assert {*map(tuple, found)} == {(1,), (2,)}
    assert len(copies) > 15
    for copy, seeds in zip(copies, found, strict=True):
        remove_leftovers(copy)
        remove_old_shards(copy)
        assert len(names(copy)) == (1 if (before, after)[seeds[0] - 1] else 3)
        assert seeds_found(copy) == seeds


def save_on_a_full_disk(ranks: Ranks, path: Path, full: int) -> str:
    def no_room(file: IO[bytes], *_: object) -> str:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        if ranks.rank == full:
            patch.setattr(saved_tensors, "write_tensors", no_room)
        with pytest.raises((RunError, RankError)) as error:
            save(ranks, path, 2)
    return str(error.value)


@pytest.mark.parametrize("full", [0, 1])
def test_a_full_disk_of_one_rank_keeps_what_was_there(full: int, tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    run_ranks(save, 3, path, 1)
    before = names(path)
    for message in run_ranks(save_on_a_full_disk, 3, path, full):
        shard = tmp_path / f"best-0000{full + 1}-of-00003.safetensors"
        assert f"{shard} cannot be written: [Errno 28] No space left on device" in message
    assert seeds_found(path) == [1]
    save(WHOLE, path, 3)
    assert names(path) == [path.name] != before


def read_while_it_is_replaced(ranks: Ranks, path: Path, seed: int) -> list[str]:
    """Differences where another saving takes its place once every rank has read the index."""
    with pytest.MonkeyPatch.context() as patch:

        def read(*args: Any, **options: Any) -> Any:
            patch.undo()
            found = tensor_files.read_tensors(*args, **options)
            ranks.on_each(lambda: None)
            ranks.on_first(lambda: save(WHOLE, path, seed))
            return found

        patch.setattr(saved_tensors, "read_tensors", read)
        return differences(ranks, path, seed)


def test_a_reader_of_shards_that_are_replaced_has_the_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    run_ranks(save, 3, path, 1)
    assert run_ranks(read_while_it_is_replaced, 2, path, 2) == [[], []]


def files_read(ranks: Ranks, path: Path) -> tuple[list[str], list[str]]:
    """Names of the files that a rank opens, and of those whose bytes it checks."""
    opened, checks = [], []

    def read(path: Path, owner: Mapping[str, Any], *, checked: bool = True) -> Any:
        opened.append(path.name[:19])
        if checked:
            checks.append(path.name[:19])
        return tensor_files.read_tensors(path, owner, checked=checked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_tensors, "read_tensors", read)
        assert differences(ranks, path, 1) == []
    return opened, checks


def test_ranks_read_the_files_with_their_rows_and_check_each_once(tmp_path: Path) -> None:
    path = tmp_path / "best.safetensors"
    run_ranks(save, 3, path, 1)
    one, two, three = (name[:19] for name in SHARDS)
    index = path.name[:19]
    assert run_ranks(files_read, 1, path) == [([index, one, two, three],) * 2]
    assert run_ranks(files_read, 3, path) == [
        ([index, one], [index, one]),
        ([index, two], [two]),
        ([index, three], [three]),
    ]
    assert run_ranks(files_read, 2, path) == [
        ([index, one, two], [index, one, two]),
        ([index, two, three], [three]),
    ]


def spoiled(run: Run, other: Path, how: str) -> Path:
    """Spoil the second of a run's shards; returns its path."""
    shard, foreign = (next(path.glob("best-00002-of-00003-*")) for path in (run.path, other))
    if how == "missing":
        shard.unlink()
    elif how == "torn":
        shard.write_bytes(shard.read_bytes()[:-7])
    elif how == "changed":
        flip_byte(shard, -3)
    else:
        shard.write_bytes(foreign.read_bytes())
    return shard


def save_weights(ranks: Ranks, path: Path, epoch: int, more: float) -> None:
    """Save the run's weights in shards, a number added to each."""
    run = Run.open(path)
    weights = {name: tensor + more for name, tensor in run.load_weights().items()}
    num_users = run.num_train_users
    own = OwnRows(ranks, lambda name: ranks.part_of(num_users) if name == "user_factors" else None)
    rows = ranks.part_of(num_users)
    weights["user_factors"] = weights["user_factors"][rows.start : rows.stop]
    ranks.on_each(lambda: None)  # all have read them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_tensors, "MOST_OF_FREE_MEMORY", 0.0)
        run.save_weights(weights, epoch, own)


@pytest.fixture
def sharded(tmp_path: Path, dataset: Dataset) -> Run:
    """A run whose weights are in three shards, twice saved."""
    run = make_run(tmp_path / "run", dataset, "gmf", factors=4)
    for epoch in (1, 2):
        run_ranks(save_weights, 3, run.path, epoch, 1.0)
    return Run.open(run.path)


def test_a_run_with_shards_is_one_like_any_other(
    tmp_path: Path, dataset: Dataset, sharded: Run
) -> None:
    first = parameters(make_run(tmp_path / "alone", dataset, "gmf", factors=4))
    assert len(list(sharded.path.glob("best-*"))) == 3
    assert sharded.has_weights
    for name, tensor in load_model(sharded, "cpu").state_dict().items():
        assert same(tensor, first[name] + 1.0 + 1.0)
    assert sharded.loaded_epoch == 2
    found = verify(sharded.path)
    assert not found.problems
    assert "in 3 shards: digest, owner" in found.checks[-1].found


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("missing", "is missing: the run is not whole"),
        ("torn", "is torn or not a safetensors file"),
        ("changed", "is torn or was changed: its content does not match its digest"),
        ("foreign", r"does not belong to best.safetensors: its digest is \w+, the index says"),
    ],
)
def test_a_shard_that_is_not_whole_or_not_theirs_is_named(
    how: str, message: str, tmp_path: Path, sharded: Run
) -> None:
    other = tmp_path / "other"
    shutil.copytree(sharded.path, other)
    run_ranks(save_weights, 3, other, 3, 1.0)
    shard = spoiled(sharded, other, how)
    message = f"{re.escape(str(shard))} {message}"
    with pytest.raises(RunError, match=message):
        sharded.load_weights()
    (problem,) = verify(sharded.path).problems
    assert re.search(message, str(problem))


def test_a_training_that_begins_removes_old_shards_only(tmp_path: Path, sharded: Run) -> None:
    named = {path.name for path in sharded.path.iterdir()}
    for name in (
        "best-00001-of-00007.safetensors",
        "resume-00001-of-00002-0123456789abcdef.safetensors",
    ):
        (sharded.path / name).write_bytes(b"left by a kill")
    (sharded.path / "best-of-all.safetensors").write_bytes(b"by hand")
    with sharded.in_training():
        assert {path.name for path in sharded.path.iterdir()} == {
            *named,
            "best-of-all.safetensors",
            "training.lock",
        }
    (sharded.path / "best.safetensors").write_bytes(b"torn: nobody knows its shards")
    with sharded.in_training():
        assert len(list(sharded.path.glob("best-00*"))) == 3


def opened(ranks: Ranks, path: Path, elsewhere: Path, second: str | None) -> str:
    """Open a run on all ranks; the second finds another directory, or nothing, at its path."""

    def open_run(place: str) -> Run:
        return Run.open(elsewhere if second == "another" and ranks.rank == 1 else place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "SEEN_WITHIN_S", 0.1)
        if second == "nothing" and ranks.rank == 1:
            patch.setattr(Path, "is_dir", lambda path: False)
        try:
            return str(of_first(lambda: Run.open(path), open_run, ranks).path)
        except RankError as error:
            return str(error)


def test_a_rank_that_does_not_see_the_run_is_named(
    tmp_path: Path, dataset: Dataset, run: Run
) -> None:
    other = make_run(tmp_path / "other", dataset, "gmf", factors=4).path
    assert run_ranks(opened, 3, run.path, other, None) == [str(run.path)] * 3
    (message,) = set(run_ranks(opened, 3, run.path, other, "nothing"))
    assert message == (
        f"rank 1 does not see {run.path}, which rank 0 has; all nodes need one file system with "
        "the dataset and the run"
    )
    (message,) = set(run_ranks(opened, 3, run.path, other, "another"))
    assert message.startswith(f"rank 1 finds another run at {run.path} than rank 0, ")
