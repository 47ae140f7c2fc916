"""The plain networks equal ours with the same weights."""

from __future__ import annotations

import pytest
import torch

from benchmarks.plain_neumf import PlainNeuMF, PlainNeuMFRanker
from benchmarks.plain_vae import PlainVAE, PlainVAERanker
from foretaste.bench.config import BenchConfig
from foretaste.bench.session import Session
from foretaste.data.histories import Histories
from foretaste.evaluation.ranking import ABSENT, to_device
from foretaste.models.neumf.batches import InteractionBatches
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.models.vae.batches import HistoryBatches
from foretaste.models.vae.config import VAEConfig
from foretaste.models.vae.model import MultVAE
from foretaste.ops.histories import HistoryTensors

NEUMF = NeuMFConfig(factors=4, layers=(12, 10, 6), dropout=0.0, negatives=4)
VAE = VAEConfig(hidden=(12, 10), latent=4, dropout=0.0, anneal_steps=1)


def session(model: NeuMFConfig | VAEConfig, device: torch.device) -> Session:
    return Session("train", model, BenchConfig(shape="50x40x400", seed=7, device=str(device)))


@pytest.fixture
def histories(device: torch.device) -> Histories:
    return session(NEUMF, device).histories()


@pytest.fixture
def tensors(histories: Histories, device: torch.device) -> HistoryTensors:
    return to_device(histories, device)


@pytest.fixture
def neumf(histories: Histories, device: torch.device) -> NeuMF:
    model = session(NEUMF, device).build(histories)
    assert isinstance(model, NeuMF)
    return model


@pytest.fixture
def vae(histories: Histories, device: torch.device) -> MultVAE:
    model = session(VAE, device).build(histories)
    assert isinstance(model, MultVAE)
    return model


def test_neumf_losses_agree(neumf: NeuMF, tensors: HistoryTensors) -> None:
    batch = next(iter(InteractionBatches(tensors, NEUMF, 256, seed=1).epoch(0)))
    ours = neumf.train()(batch)
    shape = batch.item_index_BK.shape
    plain = PlainNeuMF.of(neumf)
    logits = plain(
        batch.user_index_B[:, None].expand(shape).reshape(-1).long(),
        batch.item_index_BK.reshape(-1).long(),
    )
    labels = batch.label_BK.expand(shape).reshape(-1)
    theirs = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    torch.testing.assert_close(theirs, ours)
    ours.backward()
    theirs.backward()
    torch.testing.assert_close(plain.item_embedding.weight.grad, neumf.item_embedding.grad)
    torch.testing.assert_close(plain.user_factors.weight.grad, neumf.user_factors.grad)


def test_vae_losses_agree(vae: MultVAE, tensors: HistoryTensors) -> None:
    _, batch = HistoryBatches(tensors, 30, seed=1).epoch(0)  # the KL term starts at step 2
    ours = vae.eval()(batch)  # without noise, because each side draws its own
    plain = PlainVAE.of(vae).eval()
    theirs = plain.loss(batch.histories.to_dense(), kl_weight=0.1)
    torch.testing.assert_close(theirs, ours)
    ours.backward()
    theirs.backward()
    first = plain.encoder[0]
    assert isinstance(first, torch.nn.Linear)
    assert first.weight.grad is not None
    torch.testing.assert_close(first.weight.grad.T, vae.encoder_table.grad)


def test_neumf_scores_agree(neumf: NeuMF, tensors: HistoryTensors) -> None:
    users = torch.arange(neumf.num_users, device=tensors.device)
    scores = neumf.eval().score_catalogue(neumf.user_state(users, tensors))
    torch.testing.assert_close(PlainNeuMFRanker(neumf, pairs_at_once=7).scores(users), scores)


def test_plain_neumf_lists_leave_out_what_was_seen(neumf: NeuMF, tensors: HistoryTensors) -> None:
    users = torch.arange(neumf.num_users, device=tensors.device)
    scores = neumf.eval().score_catalogue(neumf.user_state(users, tensors))
    expected = scores.masked_fill(tensors.to_dense() > 0, ABSENT).topk(5).indices.cpu()
    ranker = PlainNeuMFRanker(neumf, pairs_at_once=16)
    assert torch.equal(ranker.lists(users, tensors, 5), expected)


def test_plain_vae_lists_leave_out_what_was_seen(vae: MultVAE, tensors: HistoryTensors) -> None:
    scores = vae.eval().score_catalogue(vae.fold_in(tensors))
    expected = scores.masked_fill(tensors.to_dense() > 0, ABSENT).topk(5).indices.cpu()
    ranker = PlainVAERanker(vae)
    torch.testing.assert_close(ranker.scores(tensors), scores)
    assert torch.equal(ranker.rank(tensors, 5, users_at_once=8), expected)
    rows = [tensors[row : row + 1].item_index.tolist() for row in range(3)]
    assert ranker.lists(rows, 5) == expected[:3].tolist()
