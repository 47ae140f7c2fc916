"""The values of ``auto`` at several sizes."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from typing import Any

import pytest
import torch

from foretaste.errors import SettingError
from foretaste.models.base import IterativeModel
from foretaste.models.config import ModelConfig, TrainingSize
from foretaste.models.neumf.config import GMFConfig, NeuMFConfig
from foretaste.models.neumf.model import NeuMF
from foretaste.models.registry import config_class
from foretaste.models.vae.config import RecVAEConfig, VAEConfig
from foretaste.models.vae.model import MultDAE, MultVAE
from foretaste.models.vae.recvae import RecVAE
from foretaste.training import TrainingConfig
from foretaste.training.auto import TrainingPlan, resolve
from foretaste.training.config import acting
from tests.docs.pages import page
from tests.messages import raises


def plan_of(
    config: TrainingConfig | None = None,
    *,
    num_interactions: int = 100_000,
    num_users: int = 1_000,
    protocol: str = "leave-one-out",
    num_items: int = 50,
    model: type[IterativeModel] = NeuMF,
    negatives: int = 4,
    model_config: ModelConfig | None = None,
) -> TrainingPlan:
    size = TrainingSize(
        num_interactions=num_interactions,
        num_users=num_users,
        num_items=num_items,
        protocol=protocol,
    )
    default = NeuMFConfig(negatives=negatives) if model is NeuMF else VAEConfig()
    return resolve(
        config or TrainingConfig(),
        model,
        size,
        model_config=model_config or default,
        device="cpu",
    )


CONSTANT = TrainingConfig(learning_rate_schedule="constant")


def test_neumf_at_the_references_size_is_the_reference() -> None:
    plan = plan_of(num_interactions=19_861_770, num_users=138_493)
    assert plan.batch_size == 1_048_576
    assert plan.learning_rate == 0.0045
    assert (plan.beta1, plan.beta2, plan.eps) == (0.25, 0.5, 1e-8)


@pytest.mark.parametrize(("batch_size", "beta1"), [(4096, 0.9), (65_536, 0.9), (1 << 24, 0.25)])
def test_the_references_adam_is_for_its_large_batches(batch_size: int, beta1: float) -> None:
    asked = TrainingConfig(batch_size=batch_size)
    assert plan_of(asked, num_interactions=19_861_770, num_users=138_493).beta1 == beta1


def test_the_autoencoders_at_the_references_size_are_the_reference() -> None:
    plan = plan_of(
        num_interactions=8_000_000,
        num_users=116_677,
        protocol="held-out-users",
        model=MultVAE,
    )
    assert plan.batch_size == 24_576
    assert plan.learning_rate == 0.004
    assert (plan.beta1, plan.beta2, plan.eps) == (0.9, 0.9, 1e-8)
    assert (plan.epochs, plan.ema) == (400, 0.0)


@pytest.mark.parametrize("num_interactions", [1, 900, 100_000, 1_000_000, 9_999_999])
def test_neumf_below_it_takes_smaller_batches(num_interactions: int) -> None:
    plan = plan_of(num_interactions=num_interactions)
    assert plan.batch_size < 1_048_576
    assert plan.batch_size.bit_count() == 1
    assert (plan.beta1, plan.beta2) == (0.9, 0.999)
    larger = plan_of(num_interactions=2 * num_interactions)
    assert larger.batch_size >= plan.batch_size


@pytest.mark.parametrize(("num_interactions", "num_updates"), [(1_280, 100), (6_000, 118)])
def test_an_epoch_of_few_interactions_is_a_hundred_updates(
    num_interactions: int, num_updates: int
) -> None:
    plan = plan_of(num_interactions=num_interactions, num_users=200)
    assert -(-5 * num_interactions // plan.batch_size) == num_updates


@pytest.mark.parametrize("num_interactions", [1_000_000, 20_000_000])
@pytest.mark.parametrize("negatives", [64, 512])
def test_many_negatives_make_no_reference_of_small_data(
    num_interactions: int, negatives: int
) -> None:
    plan = plan_of(num_interactions=num_interactions, negatives=negatives)
    assert (plan.beta1, plan.beta2) == (0.9, 0.999)
    assert 1_000 <= plan.batch_size / (1 + negatives) <= num_interactions / 100


@pytest.mark.parametrize(
    ("num_users", "negatives", "rate"),
    [(5_000, 64, 0.002), (5_001, 64, 0.0005), (5_001, 4, 0.002)],
)
def test_short_histories_learn_in_smaller_steps(
    num_users: int, negatives: int, rate: float
) -> None:
    assert plan_of(num_users=num_users, negatives=negatives).learning_rate == rate


@pytest.mark.parametrize(("num_users", "epochs", "rate"), [(5_000, 20, 0.004), (5_001, 12, 0.001)])
def test_the_rate_of_cosines_falls_from_twice_the_constant_one(
    num_users: int, epochs: int, rate: float
) -> None:
    gmf: dict[str, Any] = {"num_users": num_users, "model_config": GMFConfig(negatives=64)}
    plan, constant = plan_of(**gmf), plan_of(CONSTANT, **gmf)
    assert (plan.learning_rate_schedule, plan.patience) == ("cosine", 0)
    assert (plan.epochs, plan.learning_rate) == (epochs, rate)
    assert (constant.epochs, constant.learning_rate, constant.patience) == (40, rate / 2, 5)
    assert plan_of(**gmf | {"num_interactions": 10_000_000}).learning_rate_schedule == "constant"


def test_without_cosines_the_rate_is_constant() -> None:
    for config in (GMFConfig(loss="bce", negatives=4), NeuMFConfig(loss="softmax", negatives=64)):
        assert plan_of(model_config=config).learning_rate_schedule == "constant"


@pytest.mark.parametrize(
    ("num_users", "epochs", "batch_size", "rate"),
    [
        (999, 20, 64, 0.002),
        (1_000, 10, 64, 0.002),
        (1_999, 10, 128, 0.002),
        (2_000, 18, 128, 0.002),
        (10_000, 13, 256, 0.001),
    ],
)
def test_the_rate_of_recvae_falls_below_50_000_users(
    num_users: int, epochs: int, batch_size: int, rate: float
) -> None:
    recvae: dict[str, Any] = {"model": RecVAE, "model_config": RecVAEConfig()}
    plan = plan_of(num_users=num_users, **recvae)
    assert (plan.learning_rate_schedule, plan.patience, plan.ema) == ("cosine", 0, 0.0)
    assert (plan.epochs, plan.batch_size, plan.learning_rate) == (epochs, batch_size, rate)
    constant = plan_of(CONSTANT, num_users=num_users, **recvae)
    assert (constant.patience, constant.ema, constant.learning_rate) == (5, 0.999, 0.001)
    authors = plan_of(num_users=50_000, **recvae)
    assert (authors.learning_rate_schedule, authors.learning_rate) == ("constant", 0.0005)
    assert (authors.batch_size, authors.epochs) == (500, 50)


def test_a_target_is_looked_for_at_a_constant_rate() -> None:
    asked = TrainingConfig(target=0.3)
    assert plan_of(asked, model=MultVAE) == replace(plan_of(CONSTANT, model=MultVAE), target=0.3)


@pytest.mark.parametrize("num_users", [1, 900, 10_000, 99_999])
@pytest.mark.parametrize("asked", [{}, {"learning_rate_schedule": "constant"}])
def test_the_autoencoders_below_it_take_smaller_batches(
    num_users: int, asked: dict[str, Any]
) -> None:
    config = TrainingConfig(**asked)
    plan = plan_of(config, num_users=num_users, model=MultVAE)
    assert plan.batch_size < 24_576
    assert plan.batch_size.bit_count() == 1
    assert (plan.beta1, plan.beta2) == (0.9, 0.999)
    larger = plan_of(config, num_users=2 * num_users, model=MultVAE)
    assert larger.batch_size >= plan.batch_size


@pytest.mark.parametrize(
    ("num_users", "falling", "constant"),
    [(600, 64, 64), (1_280, 128, 128), (99_999, 256, 8_192)],
)
@pytest.mark.parametrize("model", [MultVAE, MultDAE])
def test_the_autoencoders_batch_is_a_tenth_of_the_users_between_bounds(
    model: type[IterativeModel], num_users: int, falling: int, constant: int
) -> None:
    plans = [plan_of(asked, num_users=num_users, model=model) for asked in (None, CONSTANT)]
    assert [plan.batch_size for plan in plans] == [falling, constant]


def test_the_page_has_the_batches_of_the_autoencoders() -> None:
    def batch(model: type[IterativeModel], num_users: int) -> int:
        return plan_of(None, num_users=num_users, model=model).batch_size

    rows = {row[0]: row[1:] for row in page("training.md").rows("Choices of auto")}
    for names, model, num_large in (("vae, dae", MultVAE, 100_000), ("recvae", RecVAE, 50_000)):
        large, smaller = rows[names]
        assert large.startswith(f"from {num_large:,} users: ")
        assert f"batch {batch(model, num_large)}," in large
        assert f" {batch(model, 1)} to {batch(model, num_large - 1)};" in smaller


def test_the_autoencoders_rate_falls_to_0_below_it() -> None:
    plan = plan_of(num_users=10_000, model=MultVAE)
    assert (plan.learning_rate_schedule, plan.patience, plan.ema) == ("cosine", 0, 0.0)
    num_updates = {
        num_users: plan.epochs * -(-num_users // plan.batch_size)
        for num_users in (2_000, 5_000, 10_000)
        for plan in [plan_of(num_users=num_users, model=MultVAE)]
    }
    assert all(900 <= number <= 1_800 for number in num_updates.values()), num_updates


@pytest.mark.parametrize("asked", [{"learning_rate_schedule": "constant"}, {"patience": 3}])
def test_a_constant_rate_is_stopped_early_and_averaged(asked: dict[str, Any]) -> None:
    plan = plan_of(TrainingConfig(**asked), num_users=10_000, model=MultVAE)
    assert (plan.learning_rate_schedule, plan.ema) == ("constant", 0.999)
    assert plan.patience == asked.get("patience", 5)
    assert plan.learning_rate < plan_of(num_users=10_000, model=MultVAE).learning_rate


def test_a_rate_falls_over_epochs_that_are_known() -> None:
    asked = TrainingConfig(learning_rate_schedule="cosine")
    assert plan_of(asked, model=MultVAE) == plan_of(model=MultVAE)
    with raises(SettingError, "learning_rate_schedule", "cosine", "epochs", "auto"):
        plan_of(asked, model=NeuMF)


def test_zero_leaves_the_average_out() -> None:
    assert plan_of(TrainingConfig(ema=0.0), model=MultVAE).ema == 0.0
    assert plan_of(model=NeuMF).ema == 0.0


def test_an_epoch_of_sizeable_data_has_many_updates() -> None:
    """A batch is at most a fiftieth of an epoch from the size of ml-100k."""
    for num_interactions in (100_000, 1_000_000, 5_000_000, 20_000_000):
        plan = plan_of(num_interactions=num_interactions)
        assert num_interactions * 5 >= 50 * plan.batch_size


@pytest.mark.parametrize("model", [NeuMF, MultVAE])
@pytest.mark.parametrize("num_users", [50, 5_000, 500_000])
def test_nothing_stays_auto_and_everything_is_in_range(
    model: type[IterativeModel], num_users: int
) -> None:
    plan = plan_of(
        num_users=num_users,
        num_interactions=100 * num_users,
        model=model,
    )
    assert "auto" not in asdict(plan).values()
    settings = {item.name: getattr(plan, item.name) for item in fields(TrainingConfig)}
    assert asdict(TrainingConfig(**settings)) == settings


@pytest.mark.parametrize(
    ("protocol", "metric"),
    [
        ("leave-one-out", "ndcg@10"),
        ("leave-one-out (random)", "ndcg@10"),
        ("temporal", "ndcg@10"),
        ("none", "ndcg@10"),
        ("held-out-users", "ndcg@100"),
    ],
)
def test_the_metric_that_selects_follows_the_protocol(protocol: str, metric: str) -> None:
    assert plan_of(protocol=protocol).select_by == metric


def test_triton_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    size = TrainingSize(num_interactions=1000, num_users=100, num_items=50, protocol="none")

    def kernels(asked: Any, device: str) -> str:
        config = TrainingConfig(kernels=asked)
        return resolve(config, NeuMF, size, model_config=NeuMFConfig(), device=device).kernels

    assert [kernels(asked, "cuda:0") for asked in ("auto", "chunked")] == ["chunked", "chunked"]
    assert kernels("triton", "cuda:0") == "triton"
    with raises(SettingError, "kernels", "triton", "CPU"):
        kernels("triton", "cpu")


ASKED: dict[str, Any] = {
    "epochs": 3,
    "batch_size": 77,
    "learning_rate": 0.5,
    "beta1": 0.1,
    "beta2": 0.2,
    "eps": 1e-3,
    "ema": 0.9,
    "learning_rate_schedule": "cosine",
    "schedule_epochs": 12,
    "seed": 9,
    "precision": "bf16",
    "eval_every": 2,
    "patience": 0,
    "target": 0.3,
    "select_by": "hr@5",
    "validation_users": 12,
    "candidates": "sampled-9",
    "loss_scale": 8.0,
    "kernels": "chunked",
    "cuda_graphs": False,
    "checkpoint_every_s": 5.0,
    "eval_after": 2,
    "warm_up_epochs": 1,
    "evaluation_batch": 7,
    "search": False,
}


@pytest.mark.parametrize("model", [NeuMF, MultVAE])
def test_given_settings_win(model: type[IterativeModel]) -> None:
    assert asdict(plan_of(TrainingConfig(**ASKED), model=model)) == ASKED | {"device": "cpu"}
    for name in ASKED.keys() - {"learning_rate_schedule", "schedule_epochs"}:  # ask for epochs too
        alone = plan_of(TrainingConfig(**{name: ASKED[name]}), model=model)
        assert getattr(alone, name) == ASKED[name], name


@pytest.mark.parametrize(
    ("config", "num_items", "negatives"),
    [
        (GMFConfig(), 10_000, 64),
        (GMFConfig(), 100, 12),
        (GMFConfig(), 9, 4),
        (GMFConfig(loss="bce"), 10_000, 4),
        (NeuMFConfig(), 10_000, 4),
        (NeuMFConfig(loss="softmax"), 10_000, 64),
    ],
)
def test_negatives_follow_the_loss_and_the_items(
    config: ModelConfig, num_items: int, negatives: int
) -> None:
    assert config.resolved(num_items) == replace(config, negatives=negatives)
    given = replace(config, negatives=3)
    assert given.resolved(num_items) == given
    assert VAEConfig().resolved(num_items) == VAEConfig()


def test_a_schedule_may_be_longer_than_the_training() -> None:
    settings: dict[str, Any] = {"learning_rate_schedule": "cosine", "learning_rate": 0.1}
    whole = plan_of(TrainingConfig(epochs=9, **settings))
    ended = plan_of(TrainingConfig(epochs=5, schedule_epochs=9, **settings))
    rates = [[plan.schedule(update, 7) for update in range(5 * 7)] for plan in (whole, ended)]
    assert rates[0] == rates[1]
    assert rates[0][-1]["learning_rate"] > 0.03


@pytest.mark.parametrize("name", ["gmf", "ease", "ials", "vae"])
def test_settings_for_several_models_are_dropped_for_models_that_ignore_them(name: str) -> None:
    kind = config_class(name)
    asked = TrainingConfig(precision="fp16", loss_scale=8.0)
    own = acting(asked, kind)
    assert (own.precision, own.loss_scale) == (
        ("fp16", 8.0) if kind.has_large_products else ("auto", None)
    )


def test_patience_does_not_cut_a_schedule_short() -> None:
    assert plan_of(TrainingConfig(epochs=9)).patience > 0
    assert plan_of(TrainingConfig(epochs=9, learning_rate_schedule="cosine")).patience == 0


@pytest.mark.parametrize("metric", ["accuracy@10", "ndcg", "ndcg@0", "ndcg@x", ""])
def test_a_metric_that_does_not_exist_is_refused(metric: str) -> None:
    with raises(SettingError, repr(metric), "ndcg@10"):
        plan_of(TrainingConfig(select_by=metric))


@pytest.mark.parametrize(
    ("capability", "override", "model_config", "precision"),
    [
        ((8, 0), None, NeuMFConfig(), "tf32"),
        ((7, 5), None, NeuMFConfig(), "fp32"),
        ((8, 0), "0", NeuMFConfig(), "fp32"),
        ((8, 0), None, GMFConfig(), "fp32"),
    ],
)
def test_the_precision_is_tf32_if_a_gpu_computes_it(
    capability: tuple[int, int],
    override: str | None,
    model_config: ModelConfig,
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reference systems' containers computed in tf32; gmf has no large products."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.delenv("NVIDIA_TF32_OVERRIDE", raising=False)
    if override is not None:
        monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", override)
    size = TrainingSize(num_interactions=1000, num_users=100, num_items=50, protocol="none")
    found = {
        asked: resolve(
            TrainingConfig(precision=asked),
            NeuMF,
            size,
            model_config=model_config,
            device=device,
        ).precision
        for asked, device in (("auto", "cuda:0"), ("bf16", "cuda:1"))
    }
    assert found == {"auto": precision, "bf16": "bf16"}
    # In tf32 NeuMF's kernel fits no GPU.
    asked = TrainingConfig(kernels="triton")
    plan = resolve(asked, NeuMF, size, model_config=model_config, device="cuda:0")
    assert plan.precision == ("bf16" if precision == "tf32" else precision)
    plan = resolve(TrainingConfig(), NeuMF, size, model_config=model_config, device="cpu")
    assert plan.precision == "fp32"
