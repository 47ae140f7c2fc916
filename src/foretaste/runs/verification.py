"""Verification of a run directory: its settings, ids, histories, log, weights and saved state."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pyarrow.compute as pc

from foretaste._util.files import open_own
from foretaste._util.formatting import did_you_mean
from foretaste._util.settings import checked
from foretaste.data.manifest import FILE_NAME
from foretaste.data.verification import Checks, Verification, verify_dataset
from foretaste.errors import RunError
from foretaste.runs.config import FORMAT_VERSION, read_run_config
from foretaste.runs.files import (
    CONFIG,
    HISTORIES,
    ITEMS,
    METRICS,
    STATE,
    USERS,
    WEIGHTS,
    reading,
)
from foretaste.runs.places import LOCK, lock_holder
from foretaste.runs.run import Run


def verify(path: Path | str) -> Verification:
    """The result of ``verify_dataset`` or ``verify_run``; RunError if ``path`` is neither."""
    path = checked("path", path, Path)
    if os.path.lexists(path / FILE_NAME):
        return verify_dataset(path)
    if os.path.lexists(path / CONFIG):
        return verify_run(path)
    if path.is_file():
        raise RunError(f"{path} is a file; name the directory of a dataset or run")
    if not path.is_dir():
        raise RunError(f"{path}: there is no such directory{did_you_mean(path)}")
    raise RunError(
        f"{path} is neither a dataset nor a run: it has neither {FILE_NAME} nor {CONFIG}"
    )


def verify_run(path: Path | str) -> Verification:
    """Check every file of a run.

    Checked are the config's digest, version and fields; the bytes of ids and histories, and that no
    id repeats; that every line of the log is an event with declared names; digest and owner of
    weights and saved state; and that weights are finite and of the right shapes. Problems are in
    the result, not raised.
    """
    path = checked("path", path, Path)
    checks = Checks(path)

    def check_config() -> str:
        config = read_run_config(path / CONFIG)
        dataset = f"{config.dataset.name} ({config.dataset.protocol})"
        return f"format {FORMAT_VERSION}, {config.model} on {dataset}"

    def check_state() -> str:
        state = run.load_state()
        assert state is not None
        return f"{len(state.tensors):,} tensors: digest, owner, place in the log"

    def check_lock() -> str:
        if holder := lock_holder(path):
            return f"{holder} is training it"
        with reading(path / LOCK), open_own(path / LOCK, "rb"):
            return "left by a training that was killed"

    if checks.make(CONFIG, check_config):
        run = Run(path, read_run_config(path / CONFIG))
        for name in (USERS, ITEMS, HISTORIES):
            checks.make(name, partial(_check_part, run, name))
        if checks.make(METRICS, partial(_check_log, run)):
            checks.make(WEIGHTS, partial(_check_weights, run))
        for name, check in ((STATE, check_state), (LOCK, check_lock)):
            if os.path.lexists(path / name):
                checks.make(name, check)
    return Verification(path=path, holds="run", checks=tuple(checks.outcomes))


def _check_part(run: Run, name: str) -> str:
    run.check_is_unchanged(name)
    if name == HISTORIES:
        return f"{run.histories.num_interactions:,} interactions: bytes"
    ids = run.users if name == USERS else run.items
    if pc.count_distinct(ids.table["id"]).as_py() != len(ids):
        raise RunError(f"{run.path / name}: an id is there more than once")
    return f"{len(ids):,} rows: bytes, ids"


def _check_log(run: Run) -> str:
    declaration, *events = run.log.read()
    for number, event in enumerate(events, start=2):
        if not event.keys() <= declaration["units"].keys():
            raise RunError(
                f"{run.log.path}, line {number} is no event of this log: {str(event)[:80]}"
            )
    return f"{len(events) + 1:,} lines: names"


def _check_weights(run: Run) -> str:
    import torch

    from foretaste.models.registry import build_model
    from foretaste.runs.run import check_weights, model_config

    if not run.has_weights and not run.needs_weights:
        return "not there: training was not finished"
    weights = run.open_weights()
    settings = model_config(run.config, run.path / CONFIG)
    with torch.device("meta"):  # takes no memory: the model may be too large for this machine
        model = build_model(run.config.model, settings, run.num_train_users, run.num_items)
    check_weights(run, model, weights)
    num_numbers = sum(tensor.numel() for tensor in model.state_dict().values())
    return f"{num_numbers:,} numbers: digest, owner, names, shapes, finite"
