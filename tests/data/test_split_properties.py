"""Properties of every split, for any interactions."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretaste.data import Dataset, HeldOut, Histories, PrepareConfig, prepare
from foretaste.errors import InputError, SettingError

rows_of = st.lists(
    st.tuples(st.integers(-3, 9), st.sampled_from("abcdefgh"), st.integers(0, 5)),
    min_size=1,
    max_size=80,
)
Pairs = set[tuple[int, int]]


def pairs_of(rows: Histories, user_index: list[int] | None = None) -> Pairs:
    users = rows.row_index() if user_index is None else np.array(user_index)[rows.row_index()]
    return set(zip(users.tolist(), rows.item_index.tolist(), strict=True))


@pytest.mark.slow
@settings(max_examples=40)
@given(
    rows=rows_of,
    protocol=st.sampled_from(["leave-one-out", "held-out-users", "temporal", "none"]),
    validation=st.sampled_from(["hold-out", "none"]),
    seed=st.integers(0, 3),
)
def test_every_split_has_these_properties(
    rows: list[tuple[int, str, int]], protocol: str, validation: str, seed: int
) -> None:
    users, items, times = zip(*rows, strict=True)
    table = pa.table({"user": users, "item": items, "time": times})
    config = PrepareConfig(protocol=protocol, validation=validation, seed=seed)  # type: ignore[arg-type]
    with tempfile.TemporaryDirectory() as directory:
        try:
            dataset = prepare(table, Path(directory) / "out", config)
        except (InputError, SettingError):
            assert protocol != "none"
            return
        check_ids(dataset, set(zip(users, items, strict=True)))
        check_parts(dataset)


def check_ids(dataset: Dataset, expected: set[tuple[int, str]]) -> None:
    """Ids survive the round trip, numbered in their order within each part."""
    num_train, num_items = dataset.manifest.num_train_users, dataset.manifest.num_items
    user_ids, item_ids = dataset.users.ids(), dataset.items.ids()
    for ids, first in ((user_ids, num_train), (item_ids, num_items)):
        assert ids[:first] == sorted(ids[:first])
        assert ids[first:] == sorted(ids[first:])
    everything = pairs_of(dataset.all_interactions())
    assert {(user_ids[user], item_ids[item]) for user, item in everything} == expected


def check_parts(dataset: Dataset) -> None:
    """Each kept interaction is in exactly one part, and no history knows its target."""
    train = pairs_of(dataset.train)
    assert dataset.train.lengths().min() > 0
    assert {item for _, item in train} == set(range(dataset.manifest.num_items))
    splits = [name for name in ("validation", "test") if dataset.has_split(name)]  # type: ignore[arg-type]
    heldout = [dataset.heldout(name) for name in splits]  # type: ignore[arg-type]
    held = [pairs for split in heldout for pairs in check_split(split, train, dataset)]
    everything = pairs_of(dataset.all_interactions())
    seen_by_models = train.union(*held) if held else train
    assert seen_by_models <= everything
    assert sum(map(len, held)) + len(train) == len(seen_by_models)
    # Only items of held-out users that the catalogue lacks are missing.
    for user, item in everything - seen_by_models:
        assert user >= dataset.manifest.num_train_users
        assert item >= dataset.manifest.num_items


def check_split(split: HeldOut, train: Pairs, dataset: Dataset) -> list[Pairs]:
    """The split's own interactions: its targets, and the fold-in items of new users."""
    user_index = split.user_index.tolist()
    assert user_index == sorted(set(user_index))
    assert split.target.lengths().min() > 0
    target, history, known = (
        pairs_of(rows, user_index) for rows in (split.target, split.history, split.known)
    )
    assert not target & known
    assert history <= known
    assert split.history.num_items == split.known.num_items == dataset.manifest.num_items
    own = {pair for pair in train if pair[0] in set(user_index)}
    assert own <= history
    return [target, history - own]
