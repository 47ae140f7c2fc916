"""Rules over HTTP: requests name them, and a reload reads them again with the items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretaste.errors import InputError, SettingError
from foretaste.serve.store import ModelStore
from tests.messages import Named, raises, says
from tests.runs.tiny import FIRST_USER
from tests.serve.conftest import serving

USER = {"user_id": FIRST_USER}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Rules, and the stock and brand of the first items."""
    rules, stock = tmp_path / "rules.toml", tmp_path / "stock.csv"
    rules.write_text('in-stock = "stock > 0"\nacme = "brand = \'acme\'"\n')
    write_stock(stock, {item: item % 2 for item in range(12)})
    return {"rules_file": rules, "items": stock}


def write_stock(path: Path, stock: dict[int, int]) -> None:
    rows = [f"{item},{number},{'acme' if item < 6 else 'apex'}" for item, number in stock.items()]
    path.write_text("\n".join(["item_id,stock,brand", *rows, ""]))


def items_of(client: Any, **body: Any) -> list[int]:
    response = client.post("/v1/recommend", json={"users": [USER], "include_seen": True} | body)
    assert response.status_code == 200, response.text
    return [item["item_id"] for item in response.json()["answers"][0]["items"]]


def test_rules_are_asked_for_by_name(runs: Path, files: dict[str, Path]) -> None:
    with serving(runs / "ease", runs / "vae", **files) as (client, _):
        for model in ("ease", "vae"):
            ranking = items_of(client, k=1000, model=model)
            found = items_of(client, k=1000, model=model, rules=["in-stock", "acme"])
            assert found == [item for item in ranking if item in (1, 3, 5)]
            found = items_of(client, k=1000, model=model, candidates=[*range(12)],
                             max_per={"brand": 1})  # fmt: skip
            assert len(found) == 2
            assert sorted(item < 6 for item in found) == [False, True]
            assert found[0] == next(item for item in ranking if item < 12)
        models = client.get("/v1/models").json()["models"]
        assert [one["rules"] for one in models] == [["in-stock", "acme"]] * 2


REFUSED: list[tuple[dict[str, Any], str, Named]] = [
    ({"rules": ["stock > 0"]}, "rules", ("stock > 0", "in-stock", "acme")),
    ({"rules": ["in-stock", "sale"]}, "rules", ("sale", "in-stock", "acme")),
    ({"where": "stock > 0"}, "where", ("/openapi.json",)),
    ({"max_per": {"size": 1}}, "max_per", ("size", "title", "stock", "brand")),
    ({"max_per": {"brand": 0}}, "max_per.brand", (1,)),
    ({"max_per": {"brand": "1"}}, "max_per.brand", ("integer",)),
    ({"rules": "in-stock"}, "rules", ()),
]


def test_sql_and_names_that_are_not_known_are_refused(runs: Path, files: dict[str, Path]) -> None:
    with serving(runs / "ease", **files) as (client, _):
        for body, field, named in REFUSED:
            response = client.post("/v1/recommend", json={"users": [USER]} | body)
            assert response.status_code == 422, body
            error = response.json()["error"]
            assert (error["code"], error["field"]) == ("invalid", field)
            says(error["message"], *named)


def test_a_reload_reads_rules_and_items_again(runs: Path, files: dict[str, Path]) -> None:
    with serving(runs / "ease", **files) as (client, service):

        def reload() -> int:
            return int(client.post("/v1/reload", json={}).status_code)

        def in_stock() -> list[int]:
            # Lists without include_seen are cached.
            return sorted(items_of(client, k=1000, rules=["in-stock"], include_seen=False))

        seen = set(range(12)) - set(items_of(client, k=1000, include_seen=False))
        assert in_stock() == sorted({1, 3, 5, 7, 9, 11} - seen)
        digest = service.store.get(None).digest
        write_stock(files["items"], dict.fromkeys(range(12), 1))
        assert reload() == 200
        assert in_stock() == sorted(set(range(12)) - seen)
        assert service.store.get(None).digest == digest
        assert not service.store.find_changes()
        for path, text, *named in (
            (files["rules_file"], 'in-stock = "stok > 0"', "in-stock", "stok > 0", "stok"),
            (files["items"], "item_id,stock\n999999,1\n", "stock.csv", 999999),
        ):
            kept = path.read_text()
            path.write_text(text)
            assert reload() == 409
            says(client.get("/v1/models").json()["reload_failed"], *named)
            assert in_stock() == sorted(set(range(12)) - seen)
            path.write_text(kept)
        files["rules_file"].write_text('in-stock = "stock > 5"\n')
        assert reload() == 200
        assert in_stock() == []
        response = client.post("/v1/recommend", json={"users": [USER], "rules": ["acme"]})
        assert response.status_code == 422


def test_a_change_of_the_files_is_seen(runs: Path, files: dict[str, Path]) -> None:
    with serving(runs / "ease", **files) as (_, service):
        store = service.store
        assert not store.find_changes()
        old = store.get(None)
        files["items"].unlink()
        gone = store.find_changes()
        assert gone
        with raises(InputError, "stock.csv"):
            store.load()
        assert store.get(None) is old
        write_stock(files["items"], {1: 1})
        assert store.find_changes() not in ([], gone)
        store.load()
        assert not store.find_changes()
        assert store.get(None) is not old
        assert store.get(None).recommender.model is old.recommender.model


def test_a_service_does_not_start_with_wrong_rules(runs: Path, files: dict[str, Path]) -> None:
    files["rules_file"].write_text('in-stock = "stok > 0"')
    with raises(SettingError, "in-stock", "stok > 0", "stok"):
        ModelStore([runs / "ease"], "cpu", **files).load()


def test_lists_by_rules_are_kept(runs: Path, files: dict[str, Path]) -> None:
    with serving(runs / "ease", **files) as (client, service):
        served = service.store.get(None)
        num_first = len(served._cache._lists)
        for body in ({"rules": ["in-stock"]}, {"max_per": {"brand": 1}}, {}):
            before = len(served._cache._lists)
            first, second = (items_of(client, include_seen=False, **body) for _ in range(2))
            assert first == second
            assert len(served._cache._lists) == before + 1
        one = items_of(client, include_seen=False, rules=["in-stock", "acme"])
        assert one == items_of(client, include_seen=False, rules=["acme", "in-stock"])
        assert len(served._cache._lists) == num_first + 4
