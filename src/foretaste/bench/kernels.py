"""``bench kernels``: times training with each set of kernels, for ``--kernels auto``."""

from __future__ import annotations

import statistics
from dataclasses import replace

from foretaste.bench.config import TrainBench
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import CLOCKS, measure_training, training_cases
from foretaste.errors import SettingError, UnsupportedError
from foretaste.models.base import Implementation
from foretaste.training.kernels import FORMS, case_of, keep_verdict


def bench_kernels(session: Session, options: TrainBench) -> None:
    """Measure training with each set of kernels that passes its check here, and store the fastest
    one of each case.

    SettingError on a CPU, which has one set.
    """
    if session.device.type == "cpu":
        raise SettingError(
            "bench kernels compares the kernels of one NVIDIA GPU; run it there, as a CPU has one "
            "form of the operations"
        )
    for part, plan in training_cases(session, options):
        epoch_s: dict[Implementation, float] = {}
        refused = None
        for form in FORMS:
            try:
                found, epochs = measure_training(
                    session, part, replace(plan, kernels=form), options.warmup
                )
            except UnsupportedError as error:
                session.log(f"{form} is left out: {error}")
                refused = error
                continue
            epoch_s[form] = statistics.median(epochs.seconds)
            numbers = epochs.as_numbers(session.unit)
            session.add(OURS, found, CLOCKS[session.name], numbers)
        if not epoch_s and refused is not None:
            raise refused
        case = case_of(session.device, session.model, plan.batch_size, plan.precision)
        path = keep_verdict(case, epoch_s)
        session.log(f"kernels auto takes {min(epoch_s, key=lambda form: epoch_s[form])}: {path}")
