"""Scores on the device beside the plain network of the same weights, measured alternately."""

from __future__ import annotations

from benchmarks.command import PLAIN, add_ratio, run
from benchmarks.plain_neumf import PlainNeuMFRanker
from benchmarks.plain_vae import PlainVAERanker
from foretaste.bench.config import InferenceBench
from foretaste.bench.inference import (
    CLOCK,
    Call,
    Case,
    inference_cases,
    measure_calls,
)
from foretaste.bench.session import Session
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.model import MultVAE

NAME = "inference"
OPTIONS = dict.fromkeys(("neumf", "vae"), InferenceBench)


def measure(session: Session, options: InferenceBench) -> None:
    """Measure a row per side and batch size."""
    histories = session.histories()
    model = session.build(histories)
    if isinstance(model, NeuMF):
        neumf = PlainNeuMFRanker(model)
        plain = Call(PLAIN, lambda users, _: neumf.scores(users), CLOCK)
    else:
        assert isinstance(model, MultVAE)
        vae = PlainVAERanker(model)
        plain = Call(PLAIN, lambda _, rows: vae.scores(rows), f"{CLOCK}, rows made dense")
    for case in inference_cases(session, model, histories, options):
        record_beside(session, options, case, plain)


def record_beside(
    session: Session, options: InferenceBench, case: Case, plain: Call | None
) -> None:
    """Measure the calls of a case and of a plain one alternately; a row each, the plain row
    first."""
    if plain is not None:
        case.calls.append(plain)
    found = measure_calls(session, options, case)
    for call in sorted(case.calls, key=lambda call: call.side != PLAIN):
        if plain not in (None, call):
            add_ratio(found[call], found[plain], "users_per_s")
        session.add(call.side, case.case, call.clock, found[call])


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
