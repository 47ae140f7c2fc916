"""Disliked items: no model learns from them, no metric changes, and the dataset keeps them as
seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretaste.data import Dataset, prepare
from foretaste.errors import SettingError
from foretaste.runs import Run, verify
from tests.data.conftest import PrepareText, refuse
from tests.data.test_protocols import pairs_of
from tests.messages import says
from tests.runs.tiny import make_run

HEADINGS = "user_id,item_id,rating,timestamp\n"
# Users 1 to 6 like items; before that, each user rated the item with their own number low.
LIKED = [(user, item, 5, 10 * item) for user in range(1, 7) for item in range(1, 7) if item != user]
LOW = [(user, user, 1, 7) for user in range(1, 7)]
# A pair that also has a kept row, before or after it; an item and a user without another row.
OTHERS = [(1, 2, 2, 1), (2, 1, 1, 999), (3, 50, 1, 8), (60, 1, 1, 8)]
SEEN = {(user, user) for user in range(1, 7)}


def text(*rows: list[tuple[int, int, int, int]]) -> str:
    return HEADINGS + "".join("{},{},{},{}\n".format(*row) for part in rows for row in part)


def seen_of(dataset: Dataset | Run) -> set[tuple[Any, Any]]:
    """The seen pairs, in the customer's ids."""
    seen = dataset.seen
    assert seen is not None
    users, items = dataset.users.ids(), dataset.items.ids()
    return {
        (users[user], items[item])
        for user, item in zip(seen.row_index(), seen.item_index, strict=True)
    }


def parts_of(dataset: Dataset) -> dict[str, str]:
    return {name: part.content_digest for name, part in dataset.manifest.parts.items()}


@pytest.mark.parametrize("protocol", ["leave-one-out", "held-out-users", "temporal", "none"])
def test_what_is_rated_low_is_seen_and_in_no_other_part(
    prepared: PrepareText, protocol: str
) -> None:
    liked = prepared(text(LIKED), "liked", protocol=protocol)
    dataset = prepared(text(LIKED, LOW, OTHERS), "all", protocol=protocol, min_rating=4)
    assert seen_of(dataset) == SEEN
    manifest = dataset.manifest
    assert (manifest.counts["num_rows_rated_too_low"], manifest.counts["num_seen_pairs"]) == (10, 6)
    others = parts_of(dataset)
    assert others.pop("seen.parquet") == manifest.seen_digest
    assert others == parts_of(liked)
    assert manifest.digest == liked.manifest.digest
    document = json.loads((dataset.path / "manifest.json").read_text())
    assert document["seen_digest"] == manifest.seen_digest
    assert verify(dataset.path) == []
    heldout = dataset.all_interactions(), liked.all_interactions()
    assert heldout[0].item_index.tolist() == heldout[1].item_index.tolist()


def test_data_without_a_rule_on_ratings_have_no_such_part(prepared: PrepareText) -> None:
    dataset = prepared(text(LIKED), protocol="none")
    assert (dataset.seen, dataset.manifest.seen_digest) == (None, "")
    assert "seen" not in (dataset.path / "manifest.json").read_text()
    run = make_run(dataset.path.with_name("run"), dataset)
    assert run.seen is None
    assert "seen" not in (run.path / "config.json").read_text()


def test_a_rule_that_leaves_nothing_out_has_an_empty_part(prepared: PrepareText) -> None:
    """The part is empty, so the next night notices that the last dislike was withdrawn."""
    dataset = prepared(text(LIKED), protocol="none", min_rating=4)
    assert seen_of(dataset) == set()
    assert dataset.manifest.counts["num_seen_pairs"] == 0


def test_the_digest_of_what_is_seen_goes_by_content_alone(prepared: PrepareText) -> None:
    first = prepared(text(LIKED, LOW), "first", protocol="none", min_rating=4)
    again = prepared(text(LOW[::-1], LIKED), "again", protocol="none", min_rating=2)
    fewer = prepared(text(LIKED, LOW[1:]), "fewer", protocol="none", min_rating=4)
    digests = [one.manifest.seen_digest for one in (first, again, fewer)]
    assert digests[0] == digests[1] != digests[2]
    assert len({one.manifest.digest for one in (first, again, fewer)}) == 1


def test_the_filters_of_the_reference_keep_what_is_seen(prepared: PrepareText) -> None:
    rows = [(user, item, 3 + (item != user), 1) for user in range(1, 30) for item in range(1, 8)]
    dataset = prepared(text(rows), filters="reference", protocol="held-out-users")
    assert dataset.manifest.filters == {"min_rating": 4.0, "min_user_interactions": 5}
    assert seen_of(dataset) == {(user, user) for user in range(1, 8)}


EVENTS = """user_id,item_id,event,time
1,5,purchase,1
1,6,purchase,2
2,5,purchase,1
2,6,dislike,2
3,5,dislike,1
3,5,view,2
3,6,purchase,3
1,7,view,4
"""


def test_an_event_may_be_seen(prepared: PrepareText) -> None:
    events = ("purchase=4", "dislike=seen")
    dataset = prepared(EVENTS, protocol="none", event_column="event", events=events)
    assert pairs_of(dataset, "train") == {(1, 5), (1, 6), (2, 5), (3, 6)}
    assert seen_of(dataset) == {(2, 6), (3, 5)}
    counts = dataset.manifest.counts
    assert (counts["num_rows_of_seen_events"], counts["num_rows_of_other_events"]) == (2, 2)
    assert dataset.manifest.notes["weights"].startswith("'purchase' 4")
    kept = ("purchase", "view", "dislike=seen")
    dataset = prepared(EVENTS, "view", protocol="none", event_column="event", events=kept)
    assert (3, 5) in pairs_of(dataset, "train")
    assert seen_of(dataset) == {(2, 6)}
    assert dataset.manifest.mean_weight is None


def test_an_event_that_is_seen_need_not_have_happened_yet(prepared: PrepareText) -> None:
    events = ("purchase", "returned=seen")
    dataset = prepared(EVENTS, protocol="none", event_column="event", events=events)
    assert seen_of(dataset) == set()
    says(dataset.manifest.notes["seen"], "event", "returned")


@pytest.mark.parametrize("wrong", ["dislike=-1", "dislike=0", "dislike=nan", "=seen", "like=Seen"])
def test_the_message_names_the_event_and_the_way_for_dislikes(wrong: str) -> None:
    events = {"event_column": "event", "events": ("like=1", wrong)}
    refuse(EVENTS, "events", wrong, error=SettingError, **events)


def test_something_has_to_be_learned_from() -> None:
    events = {"event_column": "event", "events": ("dislike=seen",)}
    refuse(EVENTS, "events", "dislike=seen", error=SettingError, **events)


def test_a_run_keeps_what_is_seen(prepared: PrepareText, tmp_path: Path) -> None:
    dataset = prepared(text(LIKED, LOW), protocol="none", min_rating=4)
    run = Run.open(make_run(tmp_path / "run", dataset).path)
    assert seen_of(run) == SEEN
    assert run.config.dataset.seen_digest == dataset.manifest.seen_digest
    file = run.path / "seen.parquet"
    file.write_bytes(file.read_bytes()[:-1])
    problem = f"{file} is torn or was changed: its sha256 is not the one in config.json"
    assert problem in verify(run.path)


def test_what_is_seen_follows_like_and_protocol_unseen(
    prepared: PrepareText, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"protocol": "none", "min_rating": 4}
    source = tmp_path / "before.csv"
    source.write_text(text(LIKED, LOW))
    run = make_run(tmp_path / "run", prepare(source, tmp_path / "before", **settings))
    news = [(1, 5, 5, 500), (1, 90, 5, 501), (2, 90, 1, 502)]
    tonight = tmp_path / "tonight.csv"
    tonight.write_text(text(LIKED, LOW, news))
    trial = tmp_path / "unseen"
    dataset = prepare(tonight, trial, protocol="unseen", like=run.path, min_rating=4)
    assert pairs_of(dataset, "test") == {(1, 90)}
    assert seen_of(dataset) == SEEN | {(2, 90)}
    again = prepare(tonight, tmp_path / "again", protocol="none", like=tmp_path / "before")
    assert seen_of(again) == SEEN | {(2, 90)}
