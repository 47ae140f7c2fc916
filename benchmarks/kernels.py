"""Training with each form of a GPU's operations, and the option of the fastest.

python -m benchmarks.kernels neumf --shape ml-20m --precision bf16
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import get_args

from benchmarks.command import run
from benchmarks.session import TrainSteps, training_cases
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import CLOCKS, measure_training
from foretaste.errors import SettingError, UnsupportedError
from foretaste.models.base import Implementation

NAME = "kernels"
OPTIONS = dict.fromkeys(("neumf", "vae"), TrainSteps)


def measure(session: Session, options: TrainSteps) -> None:
    """Measure training with each form that passes its check here, and log the fastest one's option.

    SettingError on a CPU, which has one form.
    """
    if session.device.type == "cpu":
        raise SettingError(
            "benchmarks.kernels compares the kernels of one NVIDIA GPU; run it there, as a CPU has "
            "one form of the operations"
        )
    for part, plan in training_cases(session, options):
        epoch_s: dict[Implementation, float] = {}
        for form in get_args(Implementation):
            try:
                case, epochs = measure_training(
                    session, part, replace(plan, kernels=form), options.warmup
                )
            except UnsupportedError as error:
                session.log(f"{form} is left out: {error}")
                continue
            epoch_s[form] = statistics.median(epochs.seconds)
            session.add(OURS, case, CLOCKS[session.name], epochs.as_numbers(session.unit))
        if epoch_s:
            fastest = min(epoch_s, key=epoch_s.__getitem__)
            session.log(
                f"{plan.precision}, {plan.batch_size:,} {session.unit} a batch: "
                f"--kernels {fastest} is the fastest"
            )


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
