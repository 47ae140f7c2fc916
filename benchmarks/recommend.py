"""Answers end to end beside the plain network of the same weights, measured alternately."""

from __future__ import annotations

import numpy as np
import torch

from benchmarks.command import run
from benchmarks.inference import Plain, record_beside
from benchmarks.plain_neumf import PlainNeuMFRanker
from benchmarks.plain_vae import PlainVAERanker
from foretaste.bench.config import RecommendBench
from foretaste.bench.recommend import KNOWN, query_histories, recommend_cases
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import NeuralModel
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.model import MultVAE

NAME = "recommend"
OPTIONS = dict.fromkeys(("neumf", "vae"), RecommendBench)


def measure(session: Session, options: RecommendBench) -> None:
    """Measure a row per side, kind of users and batch size; plain NeuMF knows no new users."""
    histories = query_histories(session, options)
    model = session.build(histories).eval()
    plain = _plain_call(model, histories, options)
    for case in recommend_cases(session, model, histories, options):
        is_answered = case.case["users"] == KNOWN or isinstance(model, MultVAE)
        record_beside(session, options, case, plain if is_answered else None)


def _plain_call(model: NeuralModel, histories: Histories, options: RecommendBench) -> Plain:
    if isinstance(model, MultVAE):
        clock = f"histories of item indexes on the host to lists of {options.k} on the host"
        return Plain(PlainVAERanker(model).lists, clock)
    assert isinstance(model, NeuMF)
    ranker = PlainNeuMFRanker(model)

    def lists(users: list[int], k: int) -> object:
        rows = to_device(histories.rows(np.array(users)), model.device)
        return ranker.lists(torch.tensor(users, device=model.device), rows, k).tolist()

    clock = f"user indexes on the host to lists of {options.k} item indexes on the host"
    return Plain(lists, clock)


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
