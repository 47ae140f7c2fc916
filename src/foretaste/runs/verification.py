"""Verification of the files of a dataset or run."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from foretaste._util.settings import validate
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.data.part_files import PartFiles
from foretaste.errors import ForetasteError, RunError
from foretaste.runs.config import read_run_config
from foretaste.runs.files import (
    CONFIG,
    ITEMS,
    METRICS,
    STATE,
    USERS,
    WEIGHTS,
)
from foretaste.runs.places import resume_command
from foretaste.runs.run import Run, missing_run_error


def verify(path: Path | str) -> list[str]:
    """Return the problems of a dataset or run, each with its file's path; empty without any.

    A dataset has its manifest and the sha256 of every listed file checked. A run has these
    checked: the config's digest, version and fields; the bytes of ids and histories, and that no id
    repeats; that every line of the log is an event with declared names, and that the summary signs
    them; digest and owner of weights and saved state; and that weights are finite and of the right
    shapes. Raises RunError if ``path`` is neither.
    """
    path = validate("path", path, Path)
    problems: list[str] = []

    def passes(name: str, check: Callable[[], object]) -> bool:
        try:
            check()
        except ForetasteError as error:
            problems.append(str(error))
        except Exception as error:
            # A file that somebody else wrote may raise anything; the other checks still run.
            problems.append(f"{path / name}: is damaged: {error!r}")
        else:
            return True
        return False

    if os.path.lexists(path / FILE_NAME):
        if passes(FILE_NAME, partial(Manifest.read, path)):
            files = PartFiles(path, Manifest.read(path))
            for name in files.manifest.parts:
                passes(name, partial(files.check, name))
    elif os.path.lexists(path / CONFIG):
        if passes(CONFIG, partial(read_run_config, path / CONFIG)):
            run = Run(path, read_run_config(path / CONFIG))
            for name in run.written_once:
                passes(name, partial(_check_part, run, name))
            if passes(METRICS, partial(_check_log, run)):
                passes(WEIGHTS, partial(_check_weights, run))
                passes(METRICS, partial(_check_has_end, run))
            if os.path.lexists(path / STATE):
                passes(STATE, run.load_state)
    else:
        raise missing_run_error(path)
    return problems


def _check_part(run: Run, name: str) -> None:
    run.check_is_unchanged(name)
    if name not in (USERS, ITEMS):
        return
    ids = run.users if name == USERS else run.items
    if pc.count_distinct(ids.table["id"]).as_py() != len(ids):
        raise RunError(f"{run.path / name}: an id is there more than once")


def _check_log(run: Run) -> None:
    declaration, *events = run.log.read()
    for number, event in enumerate(events, start=2):
        if not event.keys() <= declaration["units"].keys():
            raise RunError(
                f"{run.log.path}, line {number} is no event of this log: {str(event)[:80]}"
            )


def _check_has_end(run: Run) -> None:
    is_over = run.has_weights and not os.path.lexists(run.path / STATE)
    if is_over and not run.is_finished and run.training_process is None:
        raise RunError(
            f"{run.log.path} has no summary, and there are weights and no {STATE}: its end was "
            "lost, or the training was killed before its first state; train it again: "
            f"{resume_command(run.place)}"
        )


def _check_weights(run: Run) -> None:
    from foretaste.runs.run import check_weights, empty_model

    if not run.has_weights and not run.needs_weights:
        return
    # Make the model without memory for its parameters, because it may be too large for this
    # machine.
    check_weights(run, empty_model(run), run.open_weights())
