"""Batches of steps: the pairs of an epoch, the places of the pads, and the shares of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import pytest
import torch

from foretaste.models.parts import SINGLE, Shards
from foretaste.models.sasrec.batches import StepBatch, StepBatches, newest_items
from tests.models.sasrec.sequences import in_order, parts, random_sequences

LENGTH = 5


def batches_of(
    sequences: Sequence[Sequence[int]], batch_size: int = 16, parts: Shards = SINGLE
) -> StepBatches:
    return StepBatches(in_order(sequences), LENGTH, batch_size, seed=7, parts=parts)


def rows_of(batch: StepBatch) -> list[tuple[list[int], list[int]]]:
    """The read items and the target items of each row, without its pads."""
    width = batch.item_index_RW.shape[1]
    rows, places = batch.step_index_S // width, batch.step_index_S % width
    found = []
    for row, items in enumerate(batch.item_index_RW):
        of_row = rows == row
        assert places[of_row].tolist() == list(range(int(of_row.sum())))
        found.append((items[: int(of_row.sum())].tolist(), batch.target_S[of_row].tolist()))
    return found


def windows_of(row: Sequence[int]) -> list[Sequence[int]]:
    """The windows of a history, the newest first."""
    return [row[max(0, last - LENGTH) : last + 1] for last in range(len(row) - 1, 0, -LENGTH)]


def test_an_epoch_has_each_step_once_in_windows_cut_from_the_newest_end() -> None:
    sequences = [*random_sequences(60), list(range(3, 35))]
    windows = [window for row in sequences for window in windows_of(row)]
    expected = Counter((tuple(row[:-1]), tuple(row[1:])) for row in windows)
    batches = batches_of(sequences)
    assert batches.num_samples == sum(len(row) - 1 for row in sequences if row)
    for epoch in (0, 5):
        found = [row for batch in batches.epoch(epoch) for row in rows_of(batch)]
        assert Counter((tuple(read), tuple(targets)) for read, targets in found) == expected


def test_every_epoch_has_as_many_batches_and_none_is_empty() -> None:
    for num_users in (2, 5, 31, 60):
        for batch_size in (1, 7, 16, 1000):
            batches = batches_of(random_sequences(num_users), batch_size)
            for epoch in range(6):
                made = list(batches.epoch(epoch))
                assert len(made) == batches.num_batches
                assert all(len(batch.target_S) == batch.num_samples > 0 for batch in made)
                assert sum(batch.num_samples for batch in made) == batches.num_samples
                # A batch has room for any row, and the last of its rows may end behind it.
                most = max(batch_size, 2 * LENGTH) + LENGTH
                assert max(batch.num_samples for batch in made) <= most


def test_epochs_mix_and_batches_come_in_another_order() -> None:
    batches = batches_of(random_sequences(200))
    first, second, again = (
        [batch.target_S.tolist() for batch in batches.epoch(epoch)] for epoch in (0, 1, 0)
    )
    assert first == again
    assert not {tuple(targets) for targets in first} & {tuple(targets) for targets in second}
    assert [len(targets) for targets in first] != [len(targets) for targets in second]
    widths = [batch.item_index_RW.shape[1] for batch in batches.epoch(0)]
    assert widths != sorted(widths)


def test_people_of_like_length_share_a_batch() -> None:
    sequences = random_sequences(4000)
    places = steps = 0
    for batch in batches_of(sequences, 256).epoch(0):
        places, steps = places + batch.item_index_RW.numel(), steps + batch.num_samples
    assert places < 1.05 * steps


def test_pads_stand_behind_and_hold_the_last_item_that_is_read() -> None:
    (batch,) = batches_of([[4, 5], [1, 2, 3, 9], [7], [8, 6, 0]]).epoch(0)
    assert sorted(batch.item_index_RW.tolist()) == [[1, 2, 3], [4, 4, 4], [8, 6, 6]]
    assert batch.num_samples == len(batch.target_S) == 6


def test_an_epoch_resumes_in_its_middle() -> None:
    batches = batches_of(random_sequences(60))
    whole = list(batches.epoch(3))
    for first in (1, 4):
        for one, other in zip(batches.epoch(3, first), whole[first:], strict=True):
            pairs = zip(vars(one).values(), vars(other).values(), strict=True)
            assert all(torch.equal(*pair) for pair in pairs if isinstance(pair[0], torch.Tensor))


@pytest.mark.parametrize("of", [2, 3, 50])
def test_parts_have_consecutive_rows_of_each_batch(of: int) -> None:
    sequences = random_sequences(60)
    whole = list(batches_of(sequences).epoch(1))
    shared = [list(batches_of(sequences, parts=one).epoch(1)) for one in parts(of)]
    for batch, *own in zip(whole, *shared, strict=True):
        assert [row for part in own for row in rows_of(part) if row[0]] == rows_of(batch)
        assert {part.num_samples for part in own} == {batch.num_samples}
        assert {int(part.dropout_key) for part in own} == {int(batch.dropout_key)}
        rows = [len(part.item_index_RW) if len(part.target_S) else 0 for part in own]
        assert [int(part.first_row) for part in own] == [sum(rows[:n]) for n in range(of)]


def test_newest_items_are_the_same_however_many_are_sorted_at_once(
    limit: Callable[..., None],
) -> None:
    sequences = [*random_sequences(50), list(range(40)), []]
    histories = in_order(sequences)
    expected = [item for row in sequences for item in row[-LENGTH:]]
    for at_once in (1, 7, 60, 1 << 22):
        limit(sorted_entries=at_once)
        assert newest_items(histories, LENGTH).tolist() == expected


def test_a_person_with_20_000_items_has_rows_like_others() -> None:
    histories = in_order([range(20_000), [3, 1], [5, 2]], 20_000)
    batches = StepBatches(histories, LENGTH, 4, seed=1)
    assert batches.num_samples == 19_999 + 2
    made = list(batches.epoch(0))
    assert {batch.item_index_RW.shape[1] for batch in made} <= set(range(1, LENGTH + 1))
    targets = sorted(int(item) for batch in made for item in batch.target_S)
    assert targets == sorted([*range(1, 20_000), 1, 2])


def test_the_most_places_and_steps_bound_every_epoch() -> None:
    for num_users, batch_size in ((5, 4), (60, 16), (300, 50), (300, 1000)):
        batches = batches_of(random_sequences(num_users), batch_size)
        for epoch in range(3):
            made = list(batches.epoch(epoch))
            places = max(batch.item_index_RW.numel() for batch in made)
            assert batches.most() == (places, max(batch.num_samples for batch in made))
