"""Features of items, and new items: their order and values, beside a short version in pandas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretaste.data import prepare

PLAYS = pd.DataFrame({"user_id": [1, 1, 1, 2, 2, 2, 3, 3, 3], "item_id": [*"abcacdbce"]})
PLAYS["time"] = range(9)
ITEMS = pd.DataFrame(
    {
        "item_id": [*"abcdexyz"],
        "kind": ["w", "w", "b", "b", None, " w ", "q", None],
        "tags": [["1", "2"], [], None, ["2"], ["3"], [" 1"], ["7"], []],
    }
)


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"items": ITEMS, "features": ["kind", "tags"]}


@pytest.mark.filterwarnings("ignore::foretaste.errors.DataWarning")
def test_items_with_a_value_stand_behind_those_of_training(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    """Training has a and b; c and d are held out, x is new; e and y share no value."""
    dataset = prepare(PLAYS, tmp_path / "out", **settings)
    assert dataset.items.ids() == ["a", "b", "c", "d", "x", "e"]
    manifest = dataset.manifest
    assert (manifest.num_items, manifest.num_listed_items, manifest.num_all_items) == (2, 5, 6)
    assert dataset.features is not None
    assert dataset.features.names == (("kind", "b"), ("kind", "w"), ("tags", "1"), ("tags", "2"))
    assert dataset.features.columns == ("kind", "tags")
    rows = dataset.features.histories
    found = [
        list(rows.item_index[a:b]) for a, b in zip(rows.offsets[:-1], rows.offsets[1:], strict=True)
    ]
    assert found == [[2, 3], [0, 1, 4], [0, 4], [0, 3]]
    assert dataset.train.num_items == dataset.heldout("test").history.num_items == 5
    assert dataset.all_interactions().num_items == 6
    assert list(dataset.heldout("test").history[2:].item_index) == [1, 2]
