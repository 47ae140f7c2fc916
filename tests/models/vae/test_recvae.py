"""RecVAE against its network and its prior written out plainly, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torch.nn import functional as F

from foretaste.models.vae.batches import AlternatingBatches, PhaseBatch
from foretaste.models.vae.config import RecVAEConfig
from foretaste.models.vae.recvae import RecVAE
from foretaste.ops.histories import HistoryTensors
from tests.models.vae.plain import kept_entries, latent_noise
from tests.ops.cases import random_histories

NUM_USERS, NUM_ITEMS = 14, 37
CONFIG = RecVAEConfig(width=9, latent=5, dropout=0.3, kl_weight=0.2, encoder_passes=2)


@pytest.fixture
def model() -> RecVAE:
    """A model with weights far from their start, so that every term matters."""
    model = RecVAE(CONFIG, NUM_USERS, NUM_ITEMS).double().train()
    fill(model, 3)
    return model


def fill(model: RecVAE, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        values = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.5 * values)


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    return random_histories(rng, NUM_USERS, NUM_ITEMS)


@pytest.fixture
def batches(model: RecVAE, histories: HistoryTensors) -> AlternatingBatches:
    batches = model.make_batches(histories, batch_size=6, seed=5)
    assert isinstance(batches, AlternatingBatches)
    return batches


def plain_code(weights: dict[str, Tensor], hidden: Tensor) -> Tensor:
    """The encoder of the authors' code."""

    def norm(value: Tensor, number: int) -> Tensor:
        swish = value * torch.sigmoid(value)
        centred = swish - swish.mean(1, keepdim=True)
        scale, shift = weights[f"norms.{number}.weight"], weights[f"norms.{number}.bias"]
        return scale * centred / (centred.square().mean(1, keepdim=True) + 0.1).sqrt() + shift

    def layer(name: str, value: Tensor) -> Tensor:
        return F.linear(value, weights[f"{name}.weight"], weights[f"{name}.bias"])

    h1 = norm(hidden @ weights["encoder_table"] + weights["encoder_bias"], 0)
    h2 = norm(layer("encoder.0", h1) + h1, 1)
    h3 = norm(layer("encoder.1", h2) + h1 + h2, 2)
    h4 = norm(layer("encoder.2", h3) + h1 + h2 + h3, 3)
    h5 = norm(layer("encoder.3", h4) + h1 + h2 + h3 + h4, 4)
    return layer("code", h5)


def plain_loss(model: RecVAE, batch: PhaseBatch, earlier: dict[str, Tensor]) -> Tensor:
    """The negative of the authors' bound; without its KL term in the decoder's phase."""
    weights = dict(model.named_parameters())
    seen = batch.histories.to_dense().double()
    hidden = F.normalize(seen)
    if batch.phase == "encoder":
        hidden[seen > 0] *= kept_entries(batch, CONFIG.dropout)
    mean, log_variance = plain_code(weights, hidden).chunk(2, dim=1)
    posterior = Normal(mean, (0.5 * log_variance).exp())
    latent = mean + posterior.stddev * latent_noise(batch, CONFIG.latent)
    logits = F.linear(latent, weights["output.weight"], weights["output.bias"])
    likelihood = (F.log_softmax(logits, dim=1) * seen).sum(1)
    if batch.phase == "decoder":
        return -likelihood.sum() / batch.num_samples
    earlier_mean, earlier_log_variance = plain_code(earlier, F.normalize(seen)).chunk(2, dim=1)
    zero, one = torch.zeros_like(mean), torch.ones_like(mean)
    prior = MixtureSameFamily(
        Categorical(torch.tensor([3 / 20, 3 / 4, 1 / 10], dtype=torch.float64)),
        Normal(
            torch.stack([zero, earlier_mean, zero], -1),
            torch.stack([one, (0.5 * earlier_log_variance).exp(), one * math.exp(5.0)], -1),
        ),
    )
    divergence = (posterior.log_prob(latent) - prior.log_prob(latent)).sum(1)
    kl_weight = CONFIG.kl_weight * batch.histories.lengths()
    return (kl_weight * divergence - likelihood).sum() / batch.num_samples


def test_loss_and_gradients_equal_the_plain_network(
    model: RecVAE, batches: AlternatingBatches
) -> None:
    earlier = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for number, batch in enumerate(batches.epoch(3)):
        if number == 1:
            fill(model, 4)  # so that the prior's encoder differs
        model.zero_grad()
        loss = model(batch)
        loss.backward()
        found = {name: one.grad for name, one in model.named_parameters()}
        model.zero_grad()
        expected = plain_loss(model, batch, earlier)
        expected.backward()
        torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-6)
        for name, parameter in model.named_parameters():
            of_output = name.startswith("output.")
            if of_output == (batch.phase == "decoder"):
                assert parameter.grad is not None
                torch.testing.assert_close(found[name], parameter.grad, rtol=1e-6, atol=1e-6)
            else:
                assert found[name] is None


def test_an_epoch_trains_the_encoder_twice_then_the_decoder(batches: AlternatingBatches) -> None:
    epoch = list(batches.epoch(1))
    assert [batch.phase for batch in epoch] == 6 * ["encoder"] + 3 * ["decoder"]
    assert [batch.begins_epoch for batch in epoch] == [True] + 8 * [False]
    assert [batch.num_samples for batch in epoch] == 3 * [6, 6, 2]
    assert [int(batch.update) for batch in epoch] == list(range(9, 18))
    assert (batches.num_batches, batches.num_samples) == (9, 3 * NUM_USERS)
    for first_batch in range(9):
        rest = list(batches.epoch(1, first_batch))
        for batch, expected in zip(rest, epoch[first_batch:], strict=True):
            assert (batch.phase, batch.begins_epoch) == (expected.phase, expected.begins_epoch)
            assert torch.equal(batch.dropout_key, expected.dropout_key)
            assert torch.equal(batch.histories.item_index, expected.histories.item_index)


def test_the_prior_keeps_the_encoder_with_which_the_epoch_began(
    model: RecVAE, batches: AlternatingBatches
) -> None:
    first, second, *_ = batches.epoch(0)
    model(first)
    began = model.encoder_table.detach().clone()
    fill(model, 4)
    model(second)
    assert torch.equal(model.frozen_encoder["encoder_table"], began)
    model(first)
    assert torch.equal(model.frozen_encoder["encoder_table"], model.encoder_table)
