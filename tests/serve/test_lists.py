"""JSON of lists, and the cache of the lists of known users."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretaste.data.ids import IdTable
from foretaste.recommend.config import ListRequest
from foretaste.recommend.top_k import TopItems
from foretaste.serve.lists import ListCache, ListWriter, WrittenList
from tests.runs.tiny import FIRST_USER
from tests.serve.conftest import serving
from tests.serve.test_load import counted, rounded

TOP = TopItems(
    np.array([[1, 0, 0], [0, 0, 0]]),
    np.array([[2.5, 1e-7, 0], [0, 0, 0]]),
    length=np.array([2, 0]),
    num_known=np.array([3, 0]),
    remarks=[["only 2 of 9", '"x"'], []],
)


@pytest.mark.parametrize("titles", [None, ["%d 100 %", None], ['"\\', "\u2028 ü"]])
def test_a_list_is_the_json_of_its_parts(titles: list[str | None] | None) -> None:
    columns: dict[str, Any] = {} if titles is None else {"title": titles}
    items = IdTable.from_ids("item", ['50% "b"', "%b"], **columns)
    writer = ListWriter(items)
    expected = [{"item_id": "%b", "score": 2.5}, {"item_id": '50% "b"', "score": 1e-7}]
    for place, one in enumerate(expected):
        if titles is not None:
            one["title"] = titles[1 - place]
    for _ in range(2):  # now they are cached
        written = writer.write(TOP, ["a", None], [True, False])
        assert [json.loads(one.content) for one in written] == [
            {"user_id": "a", "known": True, "items": expected, "reason": 'only 2 of 9; "x"'},
            {"user_id": None, "known": False, "items": [], "reason": None},
        ]
        assert [one[1:] for one in written] == [(True, False, False), (False, True, False)]


def test_lists_asked_for_last_stay_in_the_cache() -> None:
    written = WrittenList(b"x" * 600, is_known=True, is_popularity=False)
    cache = ListCache(2500)
    for user in (1, 2, 2, "1"):
        cache.put((user, ListRequest()), written)
        assert cache.get((1, ListRequest(k=10))) == written._replace(is_cached=True)
    assert cache.get((2, ListRequest())) is None
    assert cache.get(("1", ListRequest())) is not None
    assert cache.get(("1", ListRequest(k=11))) is None
    assert cache.get(None) is None
    assert cache._num_bytes == 2300


def test_only_what_depends_on_the_run_alone_is_cached(runs: Path, tmp_path: Path) -> None:
    user = {"user_id": FIRST_USER}
    with serving(runs / "vae", events=str(tmp_path / "events.db")) as (client, _):

        def cached(num_asked: int = 2, **body: Any) -> float:
            """Check that answers agree; return the number from the cache."""
            before = counted(client.get("/metrics").text, "foretaste_cached_lists_total")
            asked = {"users": [user]} | body
            found = [client.post("/v1/recommend", json=asked) for _ in range(num_asked)]
            assert {one.status_code for one in found} == {200}
            assert all(rounded(one.json()) == rounded(found[0].json()) for one in found)
            after = counted(client.get("/metrics").text, "foretaste_cached_lists_total")
            return after - before

        assert cached() == 1
        assert cached(k=3) == 1
        assert cached(users=[{"user_id": FIRST_USER + 1}, {"history": [1]}, user]) == 3
        for body in (
            {"users": [{"user_id": "nobody"}]},
            {"users": [user | {"history": [1]}]},
            {"include_seen": True},
            {"exclude": [2]},
            {"candidates": [1, 2, 3]},
        ):
            assert cached(**body) == 0
        before = client.post("/v1/recommend", json={"users": [user]}).json()["answers"][0]
        event = {"event_id": "1", **user, "item_id": before["items"][0]["item_id"]}
        assert client.post("/v1/events", json={"events": [event]}).json()["new"] == 1
        assert cached() == 0
        after = client.post("/v1/recommend", json={"users": [user]}).json()["answers"][0]
        assert event["item_id"] not in [item["item_id"] for item in after["items"]]


def test_a_served_autoencoder_is_laid_out_for_few_users(runs: Path) -> None:
    with serving(runs / "vae") as (_, service):
        model = service.store.get(None).recommender.model
    assert not model.output.weight.is_contiguous()  # type: ignore[union-attr]
