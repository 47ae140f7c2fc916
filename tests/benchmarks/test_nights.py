"""Simulated nights: a twin passes the gate, and a model that lost half of its value does not."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import nights


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::foretaste.errors.DataWarning")
def test_a_twin_passes_and_a_worse_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nights, "LOSSES", (0.1, 0.2, 0.6))
    rows = nights.walkers(600, seed=1)
    is_new = nights.newest_of_a_third(rows, np.random.default_rng(1))
    found = nights.night(rows, is_new, "slist", number=20261129)
    assert found.has_other_weights
    assert found.verdict is not None
    assert found.verdict.num_users > 60
    assert found.verdict.outcome in ("passed", "not seen")
    assert found.refused[0.6] == 1.0


def test_the_night_is_the_end_of_each_history() -> None:
    rows = nights.walkers(300, seed=2)
    is_new = nights.newest_of_a_third(rows, np.random.default_rng(2))
    strangers, come_back = [], 0
    for user in range(300):
        mask = is_new[rows[:, 0] == user]
        assert (np.diff(mask.astype(int)) >= 0).all(), "the newest"
        strangers.append(bool(mask.all()))
        come_back += bool(mask.any() and not mask.all())
        assert mask.all() or mask.sum() <= 3
    assert 5 <= sum(strangers) <= 30
    assert 70 <= come_back <= 130
