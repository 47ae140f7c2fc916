"""Scores on the device beside the plain network of the same weights, measured alternately."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from benchmarks.command import PLAIN, add_ratio, run
from benchmarks.plain_neumf import PlainNeuMFRanker
from benchmarks.plain_vae import PlainVAERanker
from foretaste.bench.config import InferenceBench
from foretaste.bench.inference import CLOCK, Calls, Case, inference_cases
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.model import MultVAE

NAME = "inference"
OPTIONS = dict.fromkeys(("neumf", "vae"), InferenceBench)


class Plain(NamedTuple):
    """The function by which the plain network answers the inputs of a case."""

    function: Callable[..., object]
    clock: str


def measure(session: Session, options: InferenceBench) -> None:
    """Measure a row per side and batch size."""
    histories = session.histories()
    model = session.build(histories)
    if isinstance(model, NeuMF):
        neumf = PlainNeuMFRanker(model)
        plain = Plain(lambda users, _: neumf.scores(users), CLOCK)
    else:
        assert isinstance(model, MultVAE)
        vae = PlainVAERanker(model)
        plain = Plain(lambda _, rows: vae.scores(rows), f"{CLOCK}, rows made dense")
    for case in inference_cases(session, model, histories, options):
        record_beside(session, options, case, plain)


def record_beside(
    session: Session, options: InferenceBench, case: Case, plain: Plain | None
) -> None:
    """Measure a case and the plain network's answers alternately, so that a change of the
    machine's load affects both; a row each, the plain row first."""
    cases = {} if plain is None else {PLAIN: replace(case, **plain._asdict())}
    cases[OURS] = case
    sides = {side: Calls(session, options, one) for side, one in cases.items()}
    for _ in range(options.repeats):
        for calls in sides.values():
            calls.take_turn()
    numbers = {side: calls.as_numbers() for side, calls in sides.items()}
    if plain is not None:
        add_ratio(numbers[OURS], numbers[PLAIN], "users_per_s")
    for side, one in cases.items():
        session.add(side, case.case, one.clock, numbers[side])


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
