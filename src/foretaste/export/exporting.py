"""The directory of an exported run: the program, the ids of its indexes, and its signature."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from foretaste import __version__
from foretaste._util.files import atomic_directory, file_sha256, is_empty_directory, read_document
from foretaste._util.settings import Count, validate
from foretaste._util.signed_json import other_format, signed_text
from foretaste.errors import SettingError, UnsupportedError
from foretaste.export.formats import FILES, Format, check_format, load, write
from foretaste.export.parity import NEAR, Parity, compare_lists
from foretaste.export.program import NO_ITEM, OUTPUTS, ListProgram
from foretaste.models.base import RecommenderModel
from foretaste.runs.files import ITEMS, USERS
from foretaste.runs.run import Run, load_model

SIGNATURE = "export.json"
_FORMAT, _FORMAT_VERSION = "foretaste export", 1
_MOST_COMPARED = 1000
"""Most users whose lists by the program are compared with the run's."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A written export."""

    path: Path
    program: Path
    """The file of the program."""
    inputs: tuple[str, ...]
    reads_order: bool
    """True if the items of a history must come oldest first; False if in any order."""
    k: int
    parity: Parity
    """The comparison of its lists with the run's."""


def export_run(
    run: Run | Path | str,
    output: Path | str,
    *,
    format: Format = "onnx",
    k: int = 10,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Exported:
    """Write a run as a program that needs no foretaste, and check that it gives the run's lists.

    Args:
        output: directory of the program, new or empty.
        format: ``onnx``, or ``torch`` for `torch.export.load`.
        k: length of the lists, at most the size of the catalogue.
        overwrite: replace an export in that directory, which holds no other files.
        progress: called with the numbers of users compared and in all.

    Raises SettingError if the output exists, UnsupportedError if the model cannot be exported, or
    if lists differ by more than the order of near-ties; the output is then not written.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    format, output = validate("format", format, Format), validate("output", output, Path)
    k = validate("k", k, Count)
    check_format(format)
    _check_output(output, overwrite=overwrite)
    model = load_model(opened, "cpu")
    program = ListProgram(model, k).eval()
    try:
        with atomic_directory(output, replace=overwrite) as directory:
            write(program, format, directory)
            # An error within this block leaves no output.
            parity = _check_parity(opened, model, program, format, directory, progress)
            _write_ids(opened, program, directory)
            _write_signature(opened, model, program, format, directory, parity)
    except OSError as error:
        # Without the error's own file name, which names a temporary file.
        reason = os.strerror(error.errno) if error.errno else error
        raise SettingError(f"output {output} cannot be written: {reason}") from error
    return Exported(
        path=output,
        program=output / FILES[format],
        inputs=program.inputs,
        reads_order=model.config.uses_order,
        k=program.k,
        parity=parity,
    )


def _check_output(path: Path, *, overwrite: bool) -> None:
    """Raise SettingError if ``path`` holds anything but an export to ``overwrite``."""
    if not os.path.lexists(path) or is_empty_directory(path):
        return
    if not overwrite:
        raise SettingError(f"output {path} exists already; name another, or use --overwrite")
    try:
        document = json.loads(read_document(path / SIGNATURE))
        number = document["format_version"] if document["format"] == _FORMAT else None
        own = {SIGNATURE, *document["files"]} if number else set()
    # The file may be somebody else's, with any content.
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        number, own = None, set()
    if number not in (None, _FORMAT_VERSION):
        why = other_format(number, _FORMAT_VERSION, "name another directory")
        raise SettingError(f"output {path} holds an export {why}")
    others = sorted(set(os.listdir(path)) - own) if path.is_dir() else [path.name]  # noqa: PTH208
    if others:
        raise SettingError(
            f"output {path}: {others[0]!r} is no part of an export, and would be lost; move it, or "
            "name another directory"
        )


def _check_parity(
    run: Run,
    model: RecommenderModel,
    program: ListProgram,
    format: Format,
    directory: Path,
    progress: Callable[[int, int], None] | None,
) -> Parity:
    """Return the parity of the lists of users, evenly spaced over the run; UnsupportedError if any
    list differs by more than near-ties."""
    num_all = run.num_train_users if program.takes_users else len(run.users)
    users = np.unique(np.linspace(0, num_all - 1, min(_MOST_COMPARED, num_all)).astype(np.int64))
    histories = run.histories.within(model.num_items).rows(users)
    call = load(format, directory)
    parity = compare_lists(model, program, call, histories, users, progress)
    if parity.different:
        raise UnsupportedError(
            f"{run.path} was not exported: its lists and the program's differ: {parity}; "
            "please report this, with the model's settings"
        )
    return parity


def _write_ids(run: Run, program: ListProgram, directory: Path) -> None:
    items, users = run.items, run.users
    catalogue = items.table.slice(0, program.num_items)
    replace(items, table=catalogue).write(directory / ITEMS)
    if program.takes_users:
        replace(users, table=users.table.slice(0, program.num_users)).write(directory / USERS)


def _write_signature(
    run: Run,
    model: RecommenderModel,
    program: ListProgram,
    format: Format,
    directory: Path,
    parity: Parity,
) -> None:
    axes = {"history": "entries"}
    files = sorted(path for path in directory.iterdir() if path.is_file())
    document = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "foretaste": __version__,
        "model": run.config.model,
        "run": run.path.resolve().name,
        "weights_sha256": run.loaded_digest,
        "program": FILES[format],
        "k": program.k,
        "num_items": program.num_items,
        "num_users": program.num_users if program.takes_users else None,
        "no_item": NO_ITEM,
        "inputs": [
            {"name": name, "dtype": "int64", "shape": [axes.get(name, "users")]}
            for name in program.inputs
        ],
        "reads_order": model.config.uses_order,
        "outputs": [
            {"name": name, "dtype": dtype, "shape": ["users", program.k]}
            for name, dtype in zip(OUTPUTS, ("int64", "float32"), strict=True)
        ],
        "compared": asdict(parity) | {"near": NEAR},
        "files": {path.name: file_sha256(path) for path in files},
    }
    text = signed_text(document, indent=2)
    (directory / SIGNATURE).write_text(text, encoding="utf-8", newline="\n")
