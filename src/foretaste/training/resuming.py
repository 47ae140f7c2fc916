"""Going on with a training that was interrupted or killed."""

from __future__ import annotations

import shlex
from pathlib import Path

from foretaste._util.settings import checked, given_or_default
from foretaste.errors import RunError, SettingError
from foretaste.models.registry import CLOSED_FORMS
from foretaste.ops.device import resolve_device
from foretaste.runs.loading import dataset_of
from foretaste.runs.paths import CONFIG
from foretaste.runs.replacement import place_to_take
from foretaste.runs.run import Run
from foretaste.training.assembly import assemble
from foretaste.training.config import LogConfig
from foretaste.training.like import asked_settings
from foretaste.training.logs import check_logs, settled, without_copies
from foretaste.training.progress import Progress, watched


def resume(
    run: Run | Path | str,
    *,
    dataset_path: Path | str | None = None,
    overwrite: bool = False,
    logs: LogConfig | None = None,
    progress: Progress | None = None,
) -> Run:
    """Go on with the training of ``run`` from its last saved state to the end; returns the run.

    Settings are those it began with. Without a saved state it begins again in the same directory.
    A run that is to replace another takes its place in the end.
    On the same machine, with as many threads, weights and metrics are those of a training that was
    never interrupted.

    Args:
        dataset_path: where the run's dataset is now, if it was moved.
        overwrite: replace, in the end, what another training wrote where ``logs`` are to go; of a
            finished run they are all that is written. A run that replaces another may do so anyway.
        logs: what to write beside the run's own log, from its first line on.
        progress: as in `train`.

    Raises RunError where the run is finished, being trained by another process, its device is not
    here, or one of its files is torn, changed or of another run, DatasetError where its dataset is
    not found or is not the same, and what `train` raises.
    """
    if not isinstance(run, Run):
        run = Run.open(run)
    logs = given_or_default("logs", logs, LogConfig)
    overwrite = checked("overwrite", overwrite, bool)
    with run.in_training():
        replaces = place_to_take(run.path) is not None
        overwrite = overwrite or replaces
        in_steps = run.config.model not in CLOSED_FORMS
        check_logs(logs, in_steps=in_steps, run=run, overwrite=overwrite)
        if run.is_finished:
            run.discard_state()
            if not replaces and not (overwrite and logs != without_copies(logs)):
                raise RunError(
                    f"{run.path} is finished: there is nothing to go on with; to train its weights "
                    f"further, begin a new run with --from {shlex.quote(str(run.path))}"
                )
        else:
            _go_on(run, dataset_path, without_copies(logs) if overwrite else logs, progress)
    return settled(run, logs) if overwrite else run


def _go_on(
    run: Run, dataset_path: Path | str | None, logs: LogConfig, progress: Progress | None
) -> None:
    _check_device(run)
    training = assemble(run.config, dataset_of(run, dataset_path), run.path / CONFIG)
    with watched(progress, asked_settings(run)) as told:
        training.carry_out(run, logs, told)


def _check_device(run: Run) -> None:
    """RunError where the device it was trained on is not here: another has other numbers."""
    device = run.config.resolved["device"]
    try:
        resolve_device(device)
    except SettingError as error:
        raise RunError(
            f"{run.path} was being trained on {device}, which is not here; go on where it is, or "
            f"begin a new run with --from {shlex.quote(str(run.path))}"
        ) from error
