"""The loop alone: a one-weight model and prepared evaluations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foretaste.errors import TrainingError
from foretaste.evaluation.result import Evaluation, Metric
from foretaste.models.base import NeuralModel, UserState
from foretaste.models.batches import Batches
from foretaste.models.config import TrainingSize
from foretaste.ops.histories import HistoryTensors
from foretaste.training.auto import TrainingPlan
from foretaste.training.callbacks import Callback, EpochReport
from foretaste.training.early_stopping import EarlyStopping
from foretaste.training.loop import Hooks, fit
from foretaste.training.optimizer import GroupOptimizer, average_of
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.state import Clock, TrainingState
from foretaste.training.step import Step
from tests.messages import raises, says
from tests.training.plans import make_plan


@dataclass(frozen=True)
class FakeBatch:
    target: float
    num_samples: int


class FakeBatches:
    """Two batches of unequal size; the loss at weight w is ``(w - target)**2``."""

    num_batches = 2
    num_samples = 5

    def __init__(self, targets: Sequence[float] = (1.0, 2.0)) -> None:
        self.targets = targets
        self.epochs_asked: list[int] = []

    def epoch(self, number: int, first_batch: int = 0) -> Iterator[FakeBatch]:
        self.epochs_asked.append(number)
        batches = [FakeBatch(self.targets[0], 3), FakeBatch(self.targets[1], 2)]
        yield from batches[first_batch:]


class FakeModel(NeuralModel):
    name = "fake"

    def __init__(self) -> None:
        super().__init__(None, num_users=1, num_items=1)
        self.weight = nn.Parameter(torch.zeros(()))
        self.was_training: list[bool] = []

    def forward(self, batch: FakeBatch) -> Tensor:
        self.was_training.append(self.training)
        return (self.weight - batch.target).square()

    @classmethod
    def auto_settings(cls, size: TrainingSize, config: Any) -> dict[str, Any]:
        raise NotImplementedError

    def make_batches(self, histories: HistoryTensors, **settings: Any) -> Batches:
        raise NotImplementedError

    def reset_parameters(self, seed: int) -> None:
        raise NotImplementedError

    def _new_users(self, histories: HistoryTensors) -> tuple[()]:
        raise NotImplementedError

    def _score_catalogue(self, state: UserState) -> Tensor:
        raise NotImplementedError

    def _score_candidates(self, state: UserState, item_index_BK: Tensor) -> Tensor:
        raise NotImplementedError


def evaluation_of(value: float) -> Evaluation:
    metric = Metric(name="ndcg@10", value=value, low=value, high=value)
    return Evaluation(
        split="validation",
        protocol="leave-one-out",
        candidates="full",
        metrics={"ndcg@10": metric},
        num_users=7,
        num_users_without_target=0,
        num_unseen_targets=0,
        num_short_candidate_lists=0,
        num_samples=70,
        elapsed_s=0.5,
    )


def begun(plan: TrainingPlan) -> TrainingState:
    """The state before the first of `FakeBatches`."""
    return TrainingState.begin(
        plan, num_steps_per_epoch=2, num_samples=5, device=torch.device("cpu")
    )


class Stopped(BaseException):
    """What a checkpoint raises to stop a training."""


@dataclass
class Watched:
    """Calls `fit`, and records all that it reports."""

    model: FakeModel = field(default_factory=FakeModel)
    batches: FakeBatches = field(default_factory=FakeBatches)
    reports: list[EpochReport] = field(default_factory=list)
    evaluated: list[float] = field(default_factory=list)
    frozen_encoder: list[float] = field(default_factory=list)
    was_training_at_evaluation: list[bool] = field(default_factory=list)
    steps: list[tuple[int, int, int]] = field(default_factory=list)
    checkpoints: list[tuple[int, int, float]] = field(default_factory=list)
    stop_at: tuple[int, int] | None = None

    def fit(
        self, values: Sequence[float] | None, lr: float = 0.1, **plan: Any
    ) -> tuple[EarlyStopping, Clock, str]:
        """Train by plain gradient descent; the k-th evaluation finds ``values[k]``."""
        self.state = begun(make_plan(learning_rate=lr, **plan))
        return self.go_on(values, lr)

    def go_on(
        self, values: Sequence[float] | None, lr: float = 0.1
    ) -> tuple[EarlyStopping, Clock, str]:
        """Train further from ``state``."""
        watched, remaining = self, iter(values or ())

        def evaluate() -> Evaluation:
            self.was_training_at_evaluation.append(self.model.training)
            self.evaluated.append(self.model.weight.item())
            value = next(remaining, None)
            assert value is not None, "training went on past the given values"
            return evaluation_of(value)

        class Watching(Callback):
            def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
                watched.steps.append((epoch, step, num_steps_per_epoch))

            def epoch_done(self, report: EpochReport) -> None:
                watched.reports.append(report)

        optimizer = torch.optim.SGD(self.model.parameters(), lr=torch.tensor(lr))
        precision = PrecisionPolicy(precision="fp32", device=torch.device("cpu"))
        average = average_of(self.model, self.state.plan)
        reason = fit(
            Step(self.model, [GroupOptimizer("all", True, optimizer)], precision, average),
            self.batches,
            self.state,
            Hooks(
                evaluate=None if values is None else evaluate,
                keep=lambda: self.frozen_encoder.append(self.model.weight.item()),
                checkpoint=self.checkpoint,
            ),
            Watching(),
        )
        return self.state.early_stopping, self.state.clock, reason

    def checkpoint(self) -> None:
        weight = self.model.weight.item()
        self.checkpoints.append((self.state.epoch, self.state.num_done, weight))
        if self.stop_at == (self.state.epoch, self.state.num_done):
            raise Stopped


@pytest.fixture
def watched() -> Watched:
    return Watched()


def weights_by_hand(num_epochs: int, lr: float = 0.1) -> list[float]:
    """The weight after each epoch of gradient descent on targets 1 and 2."""
    weight, found = 0.0, []
    for _ in range(num_epochs):
        for target in (1.0, 2.0):
            weight -= lr * 2 * (weight - target)
        found.append(weight)
    return found


def test_every_batch_of_every_epoch_makes_a_step(watched: Watched) -> None:
    _, clock, reason = watched.fit([0.1, 0.2, 0.3], epochs=3)
    assert watched.batches.epochs_asked == [0, 1, 2]
    assert watched.steps == [(epoch, step, 2) for epoch in (1, 2, 3) for step in (1, 2)]
    assert watched.model.weight.item() == pytest.approx(weights_by_hand(3)[-1])
    assert [report.step for report in watched.reports] == [2, 4, 6]
    assert [report.epoch for report in watched.reports] == [1, 2, 3]
    assert len(clock.epoch_s) == 3
    says(reason, 3)


def test_one_epoch_is_not_called_many(watched: Watched) -> None:
    _, _, reason = watched.fit([0.1], epochs=1)
    says(reason)


def test_the_loss_of_an_epoch_is_the_mean_over_samples(watched: Watched) -> None:
    watched.fit([0.1], epochs=1)
    after_one_step = 0.2
    expected = (3 * 1.0**2 + 2 * (after_one_step - 2.0) ** 2) / 5
    assert watched.reports[0].loss == pytest.approx(expected)


def test_training_and_evaluation_modes_alternate(watched: Watched) -> None:
    watched.fit([0.1, 0.2], epochs=2)
    assert watched.model.was_training == [True] * 4
    assert watched.was_training_at_evaluation == [False, False]


def test_the_weights_of_the_best_epoch_are_kept(watched: Watched) -> None:
    selection, _, _ = watched.fit([0.2, 0.4, 0.4, 0.3], epochs=4)
    assert watched.frozen_encoder == pytest.approx(weights_by_hand(4)[:2])
    assert (selection.best_epoch, selection.best_value) == (2, 0.4)
    assert [report.is_best for report in watched.reports] == [True, True, False, False]


@pytest.mark.parametrize("decay", [0.15, 0.9])
def test_averaged_weights_are_evaluated_and_kept(watched: Watched, decay: float) -> None:
    watched.fit([0.1, 0.3, 0.2], epochs=3, ema=decay)
    weights = [weight for _, num_done, weight in watched.checkpoints if num_done]
    average, averages = 0.0, []
    for number, weight in enumerate(weights):
        kept = min(decay, number / (number + 9))
        average = kept * average + (1 - kept) * weight
        averages.append(average)
    assert weights[1::2] == pytest.approx(weights_by_hand(3))
    assert watched.evaluated == pytest.approx(averages[1::2])
    assert watched.frozen_encoder == pytest.approx(averages[1:4:2])


def test_the_learning_rate_falls_with_every_update(watched: Watched) -> None:
    watched.fit([0.1, 0.2], epochs=2, learning_rate_schedule="cosine")
    weight, weights, rates = 0.0, [], []
    for number, target in enumerate((1.0, 2.0, 1.0, 2.0)):
        rates.append(0.1 * (1 + math.cos(math.pi * number / 4)) / 2)
        weight -= rates[-1] * 2 * (weight - target)
        weights.append(weight)
    assert [weight for _, done, weight in watched.checkpoints if done] == pytest.approx(weights)
    reported = [report.settings["learning_rate"] for report in watched.reports]
    assert reported == pytest.approx(rates[1::2])


def test_the_last_average_is_kept_without_evaluation(watched: Watched) -> None:
    watched.fit(None, epochs=1, ema=0.9)
    first, last = (weight for _, num_done, weight in watched.checkpoints if num_done)
    assert watched.frozen_encoder == pytest.approx([0.1 * first + 0.9 * last])


@pytest.mark.parametrize(("eval_after", "epochs"), [(0, [2, 4, 5]), (2, [4, 5]), (4, [5])])
def test_evaluation_comes_at_its_interval_and_at_the_end(
    watched: Watched, eval_after: int, epochs: list[int]
) -> None:
    watched.fit([0.1, 0.2, 0.3], epochs=5, eval_every=2, eval_after=eval_after)
    evaluated = [report.epoch for report in watched.reports if report.evaluation is not None]
    assert evaluated == epochs


def test_the_target_ends_training(watched: Watched) -> None:
    selection, _, reason = watched.fit([0.1, 0.3, 0.9], epochs=9, target=0.3)
    assert len(watched.reports) == 2
    assert selection.target_epoch == 2
    says(reason, "ndcg@10", 0.3)
    assert watched.frozen_encoder == pytest.approx(weights_by_hand(2))


def test_patience_ends_training(watched: Watched) -> None:
    """Patience counts evaluations after the last gain; an equal value is no gain."""
    values = [0.3, 0.2, 0.5, 0.4, 0.5, 0.3]
    selection, _, reason = watched.fit(values, epochs=9, patience=3)
    assert len(watched.reports) == 6
    assert selection.best_epoch == 3
    says(reason, "ndcg@10", 3)


def test_without_evaluation_the_last_epoch_is_kept(watched: Watched) -> None:
    selection, _, _ = watched.fit(None, epochs=3, patience=1, target=0.1)
    assert watched.frozen_encoder == pytest.approx(weights_by_hand(3)[-1:])
    assert (selection.best_epoch, selection.best_value) == (3, None)
    assert [report.is_best for report in watched.reports] == [False, False, True]


def test_evaluation_is_counted_outside_the_training_clock(watched: Watched) -> None:
    _, clock, _ = watched.fit([0.1, 0.2], epochs=2)
    assert clock.evaluate_s == {"1": 0.5, "2": 0.5}
    assert (clock.num_evaluated_users, clock.num_evaluated_samples) == (14, 140)
    assert len(clock.epoch_s) == 2


def test_a_step_that_is_compiled_leaves_the_first_epoch_it_takes_cold(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, clock, _ = watched.fit([0.1, 0.2], epochs=2)
    assert clock.cold_epochs == []
    monkeypatch.setattr(Step, "begins_cold", True)
    monkeypatch.setattr(Step, "compile", lambda *_: 0.0)
    _, clock, _ = watched.fit([0.1, 0.2, 0.3], epochs=3)
    assert clock.cold_epochs == [1]
    watched.state.plan = replace(watched.state.plan, epochs=4)
    _, clock, _ = watched.go_on([0.4])
    assert clock.cold_epochs == [1, 4]
    assert clock.averaged_epochs(0) == [2, 3]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_names_the_setting_to_change(
    watched: Watched, bad: float
) -> None:
    watched.batches = FakeBatches([bad, 1.0])
    with raises(TrainingError, bad, 1, 1, 2, "--learning-rate", 0.1):
        watched.fit([0.1], epochs=3)
    assert watched.frozen_encoder == []


def test_divergence_is_found(watched: Watched) -> None:
    with raises(TrainingError, "inf", 2, 1, 2, "--learning-rate", "1e+10"):
        watched.fit([0.1] * 9, lr=1e10, epochs=9, eval_every=9)


def test_the_first_step_to_blame_is_named(watched: Watched) -> None:
    watched.batches = FakeBatches([1.0, math.nan])
    with raises(TrainingError, "nan", 1, 2, 2, "--learning-rate", 0.1):
        watched.fit([0.1], epochs=3)


def test_weights_that_the_last_step_spoiled_are_never_kept(watched: Watched) -> None:
    """The losses of this epoch are still finite: the next loss would not be."""
    watched.batches = FakeBatches([0.0, 2.0])
    with raises(TrainingError, 1, 2, 2, "--learning-rate", "1e+38"):
        watched.fit([0.1], lr=1e38, epochs=3)
    assert watched.frozen_encoder == []


def test_model_and_state_agree_at_every_checkpoint(watched: Watched) -> None:
    watched.fit([0.1, 0.2], epochs=2)
    positions = [(epoch, num_done) for epoch, num_done, _ in watched.checkpoints]
    assert positions == [(1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0)]
    weights = [weight for _, _, weight in watched.checkpoints]
    assert weights[1] == weights[2] == pytest.approx(weights_by_hand(2)[0])
    assert weights[4] == weights[5] == pytest.approx(weights_by_hand(2)[1])


@pytest.mark.parametrize("stop_at", [(1, 1), (1, 2), (2, 0), (2, 1)])
def test_a_training_that_stopped_at_a_checkpoint_resumes(
    watched: Watched, stop_at: tuple[int, int]
) -> None:
    whole = Watched()
    whole.fit([0.1, 0.2], epochs=2)
    watched.stop_at = stop_at
    with pytest.raises(Stopped):
        watched.fit([0.1, 0.2], epochs=2)
    assert watched.checkpoints[-1][:2] == stop_at
    watched.stop_at = None
    watched.go_on([0.1, 0.2][len(watched.reports) :])
    assert watched.checkpoints == whole.checkpoints
    assert [report.loss for report in watched.reports] == [report.loss for report in whole.reports]
    assert watched.frozen_encoder == whole.frozen_encoder
