"""All ranks take decisions of clocks and signals at the same update."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Self

import pytest
import torch

from foretaste.distributed import interruption
from foretaste.distributed.collectives import Ranks
from foretaste.distributed.interruption import SharedInterruption
from foretaste.errors import Interrupted
from foretaste.training.interruption import Interruption
from foretaste.training.state import TrainingState
from tests.messages import raises
from tests.ranks import run_ranks
from tests.training.plans import make_plan

NUM_UPDATES = 60
SENT = [signal.SIGTERM, signal.SIGINT]
"""The signal that each rank gets."""
CPU = torch.device("cpu")


class Clock:
    """The clock of the agreements of this rank, which a test moves, in a context."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def __enter__(self) -> Self:
        interruption.time = self  # type: ignore[assignment]
        return self

    def __exit__(self, *error: object) -> None:
        interruption.time = time  # the ranks run other tests too


def decisions(ranks: Ranks, signalled: int, is_slow: bool) -> list[tuple[int, bool, int | None]]:
    """Updates with an agreement, although each rank's clock differs at each of them."""
    found = []
    with Clock() as clock:
        agreement = SharedInterruption(ranks, Path("run"))
        for update in range(NUM_UPDATES):
            clock.now += 0.002 * (1 + ranks.rank * is_slow)
            is_due = update % 7 == 3 or ranks.rank > 0
            if ranks.rank == signalled and update >= 20:
                agreement.last = SENT[signalled]
            is_last = update == NUM_UPDATES - 1
            due, agreed = agreement.poll(is_due, at_once=is_last)
            if due or agreed:
                found.append((update, due, agreed))
    return found


@pytest.mark.parametrize("signalled", [0, 1])
@pytest.mark.parametrize("is_slow", [False, True])
def test_all_take_a_decision_at_the_same_update(signalled: int, is_slow: bool) -> None:
    first, *others = run_ranks(decisions, 3, signalled, is_slow)
    assert others == [first, first]
    assert first[-1][0] == NUM_UPDATES - 1
    assert all(agreed == SENT[signalled] for update, _, agreed in first if update >= 20)
    dues = [update for update, due, _ in first if due]
    assert all(update % 7 == 3 for update in dues), "the first rank's clock alone counts"


def test_most_updates_do_not_wait_for_an_agreement() -> None:
    """Updates of 2 ms, agreements about every 200 ms."""
    (num_bytes, *_) = run_ranks(bytes_of_many_updates, 2)
    assert num_bytes <= 24 * NUM_UPDATES / 2


def bytes_of_many_updates(ranks: Ranks) -> int:
    with Clock() as clock:
        agreement = SharedInterruption(ranks, Path("run"))
        for _ in range(NUM_UPDATES):
            clock.now += 0.002
            agreement.poll(False, at_once=False)
    return ranks.num_bytes["all-reduce"]


def losses_of_parts(ranks: Ranks) -> list[list[float]]:
    """The losses of the first updates, summed over the ranks after a given number of updates."""
    state = TrainingState.begin(
        make_plan(),
        num_steps_per_epoch=50,
        num_samples=1,
        device=CPU,
        total=ranks.total,
    )
    for loss in torch.rand(50, generator=torch.Generator().manual_seed(ranks.rank)):
        state.count(loss, 1)
    found = []
    for state.num_done in (10, 17, 50):
        found.append(state.losses()[:10].tolist())
    return found


def test_losses_are_the_same_bits_whenever_they_are_summed() -> None:
    """A saved state holds the sum of earlier losses, and the end of the epoch uses it again."""
    for found in run_ranks(losses_of_parts, 3):
        assert found[0] == found[1] == found[2]


def test_one_process_acts_at_once() -> None:
    interruption = Interruption(Path("run"))
    for due, interruption.last in ((True, None), (False, signal.SIGINT), (True, signal.SIGHUP)):
        assert interruption.poll(due, at_once=False) == (due, interruption.last)


def test_a_signal_that_a_scheduler_sends_twice_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A later signal acts at once."""
    killed: list[int] = []
    clock = [100.0]
    monkeypatch.setattr("foretaste.distributed.interruption.time.monotonic", lambda: clock[0])
    monkeypatch.setattr("os.kill", lambda process, number: killed.append(number))
    before = signal.getsignal(signal.SIGTERM)
    ranks = Ranks(1, 2)
    try:
        with SharedInterruption(ranks, tmp_path) as interruption:
            for clock[0] in (100.0, 100.5, 101.5):
                signal.raise_signal(signal.SIGTERM)
            assert killed == []
            interruption.check("after epoch 1")  # a decision without agreement ends nothing
            with raises(Interrupted, "after epoch 1", "torchrun", f"--resume {tmp_path}"):
                interruption.end("after epoch 1", interruption.last)
            clock[0] = 110.0
            signal.raise_signal(signal.SIGTERM)
            assert killed == [signal.SIGTERM]
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    finally:
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler if number == 2 else signal.SIG_DFL)
        signal.signal(signal.SIGTERM, before)


def test_the_command_to_resume_names_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("runs/vae")
    assert Interruption(path).command == "foretaste train --resume runs/vae"
    variables = {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "4"}
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    resumed = "-m -- foretaste train --resume runs/vae"
    assert SharedInterruption(Ranks(0, 4), path).command == f"torchrun --nproc-per-node 4 {resumed}"
    monkeypatch.setitem(os.environ, "LOCAL_WORLD_SIZE", "2")
    assert SharedInterruption(Ranks(0, 4), path).command == f"torchrun (its options) {resumed}"
