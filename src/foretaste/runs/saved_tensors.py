"""Tensors that were saved at a path by any number of ranks, and are read by any number.

They are one file where one process could hold them all. Else the rows that ranks have are shards,
files beside it, each written by the rank that has them; the file at the path has all other tensors
and, in its note, the index of the shards. A shard's name has its digest, so those of two savings
are never one file, and the file at the path, replaced at one stroke, is what counts.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.atomic import atomic_file, flush
from foretaste._util.files import open_own
from foretaste._util.memory import free_bytes
from foretaste.errors import RunError
from foretaste.runs.paths import writing
from foretaste.runs.tensor_files import DIGEST, Written, read_tensors, write_tensors

if TYPE_CHECKING:
    from torch import Tensor

    from foretaste.models.base import RecommenderModel
    from foretaste.ops.ranks import Ranks

FILES, ROWS = "shards", "rows"
"""The index: the shards with their digests, and of each tensor in them its type, its whole shape
and the rows where one shard ends and the next begins."""

MOST_OF_FREE_MEMORY = 0.5
"""Part of the first rank's free memory that tensors in one file may take: its readers need it."""

_SHARD = re.compile(r"(.+)-\d{5}-of-\d{5}(-[0-9a-f]{16})?\.safetensors")
"""Without a digest it is being written, or was when its writer was killed."""


@dataclass(frozen=True)
class OwnRows:
    """The rows of saved tensors that a rank has; of others it has all, like every rank."""

    ranks: Ranks
    rows_of: Callable[[str], range | None]
    """By the name of a tensor; None of those that every rank has."""

    @classmethod
    def all(cls) -> OwnRows:
        """Those of a single process."""
        from foretaste.ops.ranks import ALONE

        return cls(ALONE, lambda name: None)

    @classmethod
    def of_model(cls, model: RecommenderModel) -> OwnRows:
        """Those of a model's weights, by the names of its state dict."""
        return cls(model.share.ranks, model.rows_of)

    def of(self, name: str, num_dimensions: int) -> range | None:
        """The rows of a tensor; a single number, such as a count of updates, has none."""
        return self.rows_of(name) if num_dimensions else None


class SavedTensors:
    """Tensors at a path, open for reading; every rank opens them, and has its own rows."""

    def __init__(self, note: dict[str, Any], pieces: dict[str, list[Tensor]]) -> None:
        self.note = note
        self._pieces = pieces

    @property
    def digest(self) -> str:
        """Of all tensors, on all ranks."""
        return str(self.note[DIGEST])

    @property
    def num_shards(self) -> int:
        """Files that they are in beside the one at the path."""
        return len(self.note.get(FILES, ()))

    @classmethod
    def open(cls, path: Path, owner: Mapping[str, Any], own: OwnRows) -> SavedTensors:
        """Open and check them: every byte is read by one of the ranks.

        Raises RunError naming the file that is missing, torn, changed or of another run.
        """
        opened: list[SavedTensors] = []

        def digest() -> str:
            opened.append(_opened(path, owner, own))
            return opened[0].digest

        if len(set(own.ranks.on_each(digest))) > 1:
            raise RunError(f"{path} was replaced while it was read; try again")
        return opened[0]

    def shapes(self) -> dict[str, list[int]]:
        """The shapes of what is here, by name."""
        found = {}
        for name, pieces in self._pieces.items():
            found[name] = list(pieces[0].shape)
            if pieces[0].dim():
                found[name][0] = sum(len(piece) for piece in pieces)
        return found

    def pieces(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        """A tensor as it lies in files: its rows, which are parts of these, and their numbers."""
        start = 0
        for piece in self._pieces[name]:
            end = start + (len(piece) if piece.dim() else 0)
            yield slice(start, end), piece
            start = end

    def tensor(self, name: str) -> Tensor:
        """A tensor: part of a file where it lies in one, else in memory of its own."""
        import torch

        pieces = self._pieces[name]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def tensors(self) -> dict[str, Tensor]:
        """All of them."""
        return {name: self.tensor(name) for name in self._pieces}


def save_tensors(
    path: Path,
    tensors: Mapping[str, Tensor],
    owner: Mapping[str, Any],
    own: OwnRows,
    *,
    note: Mapping[str, Any] | None = None,
    before: Callable[[str], None] | None = None,
) -> None:
    """Replace what is at ``path`` by the tensors of all ranks, at one stroke.

    Args:
        owner: the entries of the note that a reader expects.
        own: the rows of ``tensors`` that are here.
        note: further entries, of the first rank.
        before: called on the first rank with the digest, before they take their place.

    Raises RunError where they cannot be written, such as on a full disk.
    """
    ranks, bounds = own.ranks, _bounds(tensors, own)
    cut = {
        name: Written(
            dtype=tensors[name].dtype,
            shape=(ends[-1], *tensors[name].shape[1:]),
            pieces=ranks.to_first(tensors[name]),
        )
        for name, ends in bounds.items()
    }
    whole = {name: Written.of(tensors[name]) for name in tensors.keys() - cut.keys()}
    note = {**owner, **(note or {})}
    if not cut or ranks.on_first(lambda: _fit_one_file([*whole.values(), *cut.values()])):
        if ranks.is_first:
            _replace(path, whole | cut, note, before)
        else:
            for name in sorted(cut):
                deque(cut[name].pieces, maxlen=0)  # sends them
        return
    own_rows = {name: Written.of(tensors[name]) for name in cut}
    note[FILES] = ranks.on_each(lambda: _write_shard(path, own_rows, owner, ranks))
    note[ROWS] = {
        name: {
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "shape": tensor.shape,
            "bounds": bounds[name],
        }
        for name, tensor in cut.items()
    }
    ranks.on_first(lambda: _replace(path, whole, note, before))


def remove_old_shards(path: Path) -> None:
    """Remove the shards beside ``path`` that it does not name, of earlier or killed savings."""
    found = [
        name
        for name in os.listdir(path.parent)  # noqa: PTH208
        if (match := _SHARD.fullmatch(name)) and match[1] == path.stem
    ]
    if not found:
        return
    named: set[str] = set()
    if os.path.lexists(path):
        try:
            _, note = read_tensors(path, {}, checked=False)
        except RunError:
            return  # which ones it names is not known
        named = {file["file"] for file in note.get(FILES, ())}
    for name in set(found) - named:
        with suppress(OSError):  # Windows removes nothing that is open
            (path.parent / name).unlink()


def discard_tensors(path: Path) -> None:
    """Remove what is at ``path``, and its shards."""
    with writing(path):
        path.unlink(missing_ok=True)
    remove_old_shards(path)


def _bounds(tensors: Mapping[str, Tensor], own: OwnRows) -> dict[str, list[int]]:
    """Of each tensor of which a rank has some rows: where the rows of the ranks begin and end."""
    mine = {}
    for name in sorted(tensors):
        rows = own.of(name, tensors[name].dim())
        if rows is not None:
            mine[name] = [rows.start, rows.stop]
    bounds = {name: [0] for name in mine}
    for rank in own.ranks.on_each(lambda: mine):
        for name, ends in bounds.items():
            start, stop = rank[name]
            assert start == ends[-1], f"{name}: the ranks' rows are not one after the other"
            ends.append(stop)
    return bounds


def _fit_one_file(tensors: Iterable[Written]) -> bool:
    num_bytes = sum(tensor.num_bytes for tensor in tensors)
    return num_bytes <= MOST_OF_FREE_MEMORY * free_bytes()


def _replace(
    path: Path,
    tensors: Mapping[str, Written],
    note: Mapping[str, Any],
    before: Callable[[str], None] | None,
) -> None:
    with writing(path), atomic_file(path) as temporary:
        with temporary.open("wb") as file:
            digest = write_tensors(file, tensors, note)
        if before:
            before(digest)
    remove_old_shards(path)


def _write_shard(
    path: Path, tensors: Mapping[str, Written], owner: Mapping[str, Any], ranks: Ranks
) -> dict[str, str]:
    """Write this rank's shard; returns its entry in the index.

    Nothing names it yet, so what is left of it by a kill is no part of anything.
    """
    begun = path.with_name(f"{path.stem}-{ranks.rank + 1:05}-of-{ranks.size:05}.safetensors")
    try:
        with writing(begun):
            with open_own(begun, "wb") as file:
                digest = write_tensors(file, tensors, owner)
            flush(begun)
            shard = begun.with_stem(f"{begun.stem}-{digest[:16]}")
            begun.replace(shard)
            flush(path.parent)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise
    return {"file": shard.name, DIGEST: digest}


def _opened(path: Path, owner: Mapping[str, Any], own: OwnRows) -> SavedTensors:
    """The rows here, with this rank's part of all bytes checked."""
    while True:
        tensors, note = read_tensors(path, owner, checked=own.ranks.is_first)
        pieces = {}
        for name, tensor in tensors.items():
            rows = own.of(name, tensor.dim())
            pieces[name] = [tensor if rows is None else tensor[rows.start : rows.stop]]
        try:
            return SavedTensors(note, pieces | _pieces_of_shards(path, owner, note, own))
        except RunError:
            # Unless it was replaced meanwhile, and the shards removed that it had.
            if read_tensors(path, owner, checked=False)[1][DIGEST] == note[DIGEST]:
                raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise RunError(f"{path} is torn or was changed: its index is none ({error})") from error


def _pieces_of_shards(
    path: Path, owner: Mapping[str, Any], note: Mapping[str, Any], own: OwnRows
) -> dict[str, list[Tensor]]:
    """The rows here of each tensor that is in shards, in order."""
    import torch

    files, cut = note.get(FILES, []), note.get(ROWS, {})
    wanted = {}
    for name, entry in cut.items():
        rows = own.of(name, len(entry["shape"]))
        wanted[name] = range(entry["shape"][0]) if rows is None else rows
    pieces: dict[str, list[Tensor]] = {name: [] for name in cut}
    for number, file in enumerate(files):
        # Of as many as there are ranks, each checks the one that it wrote.
        is_mine = number * own.ranks.size // len(files) == own.ranks.rank
        bounds = {name: entry["bounds"][number : number + 2] for name, entry in cut.items()}
        overlaps = {}
        for name, (start, stop) in bounds.items():
            first, end = max(start, wanted[name].start), min(stop, wanted[name].stop)
            if first < end:
                overlaps[name] = slice(first - start, end - start)
        if overlaps or is_mine:
            shard = _read_shard(path, owner, file, checked=is_mine)
            for name, overlap in overlaps.items():
                pieces[name].append(shard[name][overlap])
    for name, entry in cut.items():
        if not pieces[name]:
            nothing = torch.empty(0, *entry["shape"][1:], dtype=getattr(torch, entry["dtype"]))
            pieces[name].append(nothing)
    return pieces


def _read_shard(
    path: Path, owner: Mapping[str, Any], entry: Mapping[str, str], *, checked: bool
) -> dict[str, Tensor]:
    if not _SHARD.fullmatch(entry["file"]):
        raise ValueError(f"{entry['file']!r} is no shard")
    shard = path.with_name(entry["file"])
    tensors, note = read_tensors(shard, owner, checked=checked)
    if note[DIGEST] != entry[DIGEST]:
        raise RunError(
            f"{shard} does not belong to {path.name}: its digest is {note[DIGEST][:12]}, the index "
            f"says {entry[DIGEST][:12]}"
        )
    return tensors
