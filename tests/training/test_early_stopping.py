"""The best epoch, and when to stop."""

from __future__ import annotations

from foretaste.training.early_stopping import EarlyStopping
from tests.training.plans import make_plan


def test_a_first_value_of_zero_is_the_best_so_far() -> None:
    stopping = EarlyStopping(make_plan())
    assert stopping.update(3, 0.0)
    assert stopping.best_epoch == 3
    assert not stopping.update(4, 0.0)


def test_epochs_between_evaluations_do_not_count() -> None:
    stopping = EarlyStopping(make_plan(epochs=6, patience=2))
    values = [0.3, None, 0.2, None]
    is_best = [stopping.update(epoch, value) for epoch, value in enumerate(values, start=1)]
    assert is_best == [True, False, False, False]
    assert (stopping.best_epoch, stopping.num_without_gain) == (1, 1)
