"""Which epoch is the best, and when to stop."""

from __future__ import annotations

from foretaste.training.state import EarlyStopping
from tests.training.plans import make_plan


def test_the_best_is_the_highest_and_the_first_of_equals() -> None:
    selection = EarlyStopping(make_plan())
    values = [0.1, 0.3, 0.2, 0.3, 0.4, 0.4]
    is_best = [selection.update(epoch, value) for epoch, value in enumerate(values, start=1)]
    assert is_best == [True, True, False, False, True, False]
    assert selection.best_epoch == 5
    assert selection.best_value == 0.4


def test_a_first_value_of_zero_is_the_best_so_far() -> None:
    selection = EarlyStopping(make_plan())
    assert selection.update(3, 0.0)
    assert selection.best_epoch == 3
    assert not selection.update(4, 0.0)


def test_patience_counts_evaluations_without_gain() -> None:
    selection = EarlyStopping(make_plan(patience=2))
    for epoch, value in enumerate([0.3, 0.2, 0.4, 0.4], start=1):
        selection.update(epoch, value)
        assert selection.reason_to_stop() is None
    selection.update(5, 0.3)
    assert selection.reason_to_stop() == "ndcg@10 did not improve in 2 evaluations"


def test_patience_zero_never_stops() -> None:
    selection = EarlyStopping(make_plan(patience=0))
    for epoch in range(1, 50):
        selection.update(epoch, 1.0 / epoch)
    assert selection.reason_to_stop() is None


def test_the_target_stops_and_the_first_epoch_to_reach_it_is_kept() -> None:
    selection = EarlyStopping(make_plan(target=0.3))
    selection.update(1, 0.2)
    assert selection.reason_to_stop() is None
    selection.update(2, 0.3)
    assert selection.reason_to_stop() == "ndcg@10 reached 0.3"
    selection.update(3, 0.5)
    assert selection.target_epoch == 2
