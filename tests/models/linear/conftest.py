"""Histories for models that weigh pairs of items."""

from __future__ import annotations

import numpy as np
import pytest

NUM_USERS, NUM_ITEMS = 60, 23


@pytest.fixture
def dense() -> np.ndarray:
    """Users' 0/1 histories: one is empty, one holds nearly all items, and one item has no user."""
    matrix = (np.random.default_rng(1).random((NUM_USERS, NUM_ITEMS)) < 0.2).astype(np.float64)
    matrix[0] = 1
    matrix[-1] = 0
    matrix[:, -1] = 0
    return matrix
