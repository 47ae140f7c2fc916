"""Directory of many trainings: its settings, its runs and its tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foretaste._util.files import atomic_file, make_folders, read_document, remove_leftovers
from foretaste._util.formatting import short_repr
from foretaste._util.signed_json import SHA256, check_signed, signed_text
from foretaste.errors import Interrupted, RunError, SettingError
from foretaste.measure.tables import Grid
from foretaste.runs.files import CONFIG, reading, writing
from foretaste.runs.places import LOCK, training_lock
from foretaste.runs.run import Run
from foretaste.training.api import train_run
from foretaste.training.callbacks import Callback
from foretaste.training.request import TrainRequest

SETTINGS = "settings.json"


@contextmanager
def trainings_at(path: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Lock a directory that is new, or that was begun with the same settings.

    Raises SettingError if it was begun with other settings or holds other files, RunError if it
    cannot be written or is locked by another process, and Interrupted with the way to resume.
    """
    asked = json.loads(json.dumps(settings))
    with writing(path):
        make_folders(path)
    with training_lock(path):
        # Check within the lock, because another process may just begin the directory. A process
        # that was killed before it wrote the settings leaves only the lock's file.
        remove_leftovers(path / SETTINGS)
        if (path / SETTINGS).exists():
            _check_same(path, asked)
        elif any(one.name != LOCK for one in path.iterdir()):
            raise SettingError(
                f"{path} holds other files; name a new or empty directory with --output "
                "(output=... in Python)"
            )
        else:
            with writing(path), atomic_file(path / SETTINGS) as temporary:
                temporary.write_text(signed_text(asked, indent=2), encoding="utf-8")
        try:
            yield
        except Interrupted as error:
            message = f"interrupted; all is kept in {path}, and the same command resumes it"
            raise Interrupted(message, error.signal_number) from None


def _check_same(path: Path, asked: Mapping[str, Any]) -> None:
    """Raise SettingError if the directory was begun with other settings than ``asked``."""
    with reading(path / SETTINGS):
        text = read_document(path / SETTINGS)
    try:
        check_signed(text)
    except ValueError as error:
        raise RunError(f"{path / SETTINGS} is torn or was changed: {error}") from error
    begun = json.loads(text)
    begun.pop(SHA256)
    for name in dict.fromkeys([*asked, *begun]):
        if asked.get(name) != begun.get(name):
            raise SettingError(
                f"{path} was begun with {name} {short_repr(begun.get(name))}, and now it is "
                f"{short_repr(asked.get(name))}; ask for the same to resume there, or name another "
                "directory with --output (output=... in Python)"
            )


def finished_run(request: TrainRequest, callback: Callback | None) -> Run:
    """Return a request's run, trained to its end; resume an unfinished run at its place."""
    assert request.run is not None
    run = Run.open(request.run) if (request.run / CONFIG).exists() else None
    if run is None or not run.is_finished:
        return train_run(request, callback)
    run.discard_state()
    return run


def write_tables(
    path: Path, grid: Grid, notes: Sequence[str], rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write ``table.md``, with the notes, ``table.csv`` and ``table.json`` to the directory."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    markdown = "\n".join([grid.to_markdown(), "", *(f"- {line}" for line in notes), ""])
    document = json.dumps({"rows": list(rows), "notes": list(notes)}, indent=2, ensure_ascii=False)
    contents = {"md": markdown, "csv": text.getvalue(), "json": f"{document}\n"}
    for ending, content in contents.items():
        file = path / f"table.{ending}"
        with writing(file), atomic_file(file) as temporary:
            temporary.write_text(content, encoding="utf-8", newline="\n")
