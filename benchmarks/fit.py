"""Models that have no plain loop beside them: an epoch of sasrec, the whole fit of slist.

python -m benchmarks.fit slist --shape ml-1m --device cuda
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.command import run
from foretaste.bench.config import BenchConfig, TrainBench
from foretaste.bench.measure import PeakMemory, Spread, time_call
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import measure_training
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import ClosedFormModel
from foretaste.models.registry import build_model

NAME = "fit"
OPTIONS: dict[str, type[BenchConfig]] = {"sasrec": TrainBench, "slist": BenchConfig}


def measure(session: Session, options: BenchConfig) -> None:
    """Measure a row for each precision of sasrec, or one row of slist, on data in a random
    order."""
    histories = in_order(session.histories(), options.seed)
    if not isinstance(options, TrainBench):
        _measure_fit(session, histories)
        return
    for precision in options.precision:
        (batch_size,) = options.batch_size or (1024,)
        plan = session.plan(precision, batch_size, options.warmup + options.repeats)
        session.log(f"training in {plan.precision}, {batch_size:,} rows a batch")
        case, epochs = measure_training(session, histories, plan, options.warmup)
        clock = "an epoch: order, batches, forward, backward, Adam"
        session.add(OURS, case, clock, epochs.as_numbers(session.unit))


def in_order(histories: Histories, seed: int) -> Histories:
    """The histories with a random place for each item."""
    row_N, drawn_N = histories.row_index(), np.random.default_rng(seed)
    order_N = np.lexsort((drawn_N.random(len(row_N)), row_N))
    position_N = np.empty(len(row_N), dtype=np.int32)
    position_N[order_N] = np.arange(len(row_N)) - histories.offsets[row_N]
    return replace(histories, position=position_N)


def _measure_fit(session: Session, histories: Histories) -> None:
    tensors = to_device(histories, session.device)

    def fit() -> None:
        sizes = histories.num_users, histories.num_items
        model = build_model(session.name, session.model, *sizes).to(session.device)
        assert isinstance(model, ClosedFormModel)
        model.fit(tensors, lambda *how_far: None)

    session.log("fitting")
    memory = PeakMemory(session.device)
    warmup_s = sum(time_call(fit, session.device) for _ in range(session.options.warmup))
    numbers = {"warmup_s": warmup_s, **memory.as_numbers()}
    seconds = Spread(tuple(time_call(fit, session.device) for _ in range(session.options.repeats)))
    clock = "counting, solving and keeping the weights; histories on the device"
    session.add(OURS, {}, clock, numbers | {"seconds": seconds.as_dict()})


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
