"""The best epoch, and when to stop."""

from __future__ import annotations

from foretaste.training.early_stopping import EarlyStopping
from tests.training.plans import make_plan


def test_the_best_is_the_highest_and_the_first_of_equals() -> None:
    stopping = EarlyStopping(make_plan())
    values = [0.1, 0.3, 0.2, 0.3, 0.4, 0.4]
    is_best = [stopping.update(epoch, value) for epoch, value in enumerate(values, start=1)]
    assert is_best == [True, True, False, False, True, False]
    assert stopping.best_epoch == 5
    assert stopping.best_value == 0.4


def test_a_first_value_of_zero_is_the_best_so_far() -> None:
    stopping = EarlyStopping(make_plan())
    assert stopping.update(3, 0.0)
    assert stopping.best_epoch == 3
    assert not stopping.update(4, 0.0)


def test_patience_counts_evaluations_without_gain() -> None:
    stopping = EarlyStopping(make_plan(patience=2))
    for epoch, value in enumerate([0.3, 0.2, 0.4, 0.4], start=1):
        stopping.update(epoch, value)
        assert stopping.reason_to_stop() is None
    stopping.update(5, 0.3)
    assert stopping.reason_to_stop() == "ndcg@10 did not improve in 2 evaluations"


def test_patience_zero_never_stops() -> None:
    stopping = EarlyStopping(make_plan(patience=0))
    for epoch in range(1, 50):
        stopping.update(epoch, 1.0 / epoch)
    assert stopping.reason_to_stop() is None


def test_the_target_stops_and_the_first_epoch_to_reach_it_is_kept() -> None:
    stopping = EarlyStopping(make_plan(target=0.3))
    stopping.update(1, 0.2)
    assert stopping.reason_to_stop() is None
    stopping.update(2, 0.3)
    assert stopping.reason_to_stop() == "ndcg@10 reached 0.3"
    stopping.update(3, 0.5)
    assert stopping.target_epoch == 2


def test_without_evaluations_the_last_epoch_is_the_best() -> None:
    stopping = EarlyStopping(make_plan(epochs=3, patience=1))
    assert [stopping.update(epoch, None) for epoch in (1, 2, 3)] == [False, False, True]
    assert (stopping.best_epoch, stopping.best_value) == (3, None)
    assert stopping.reason_to_stop() is None


def test_epochs_between_evaluations_do_not_count() -> None:
    stopping = EarlyStopping(make_plan(epochs=6, patience=2))
    values = [0.3, None, 0.2, None]
    is_best = [stopping.update(epoch, value) for epoch, value in enumerate(values, start=1)]
    assert is_best == [True, False, False, False]
    assert (stopping.best_epoch, stopping.num_without_gain) == (1, 1)
