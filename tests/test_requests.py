"""One request by the command line, by Python and by HTTP: the same values make equal requests."""

from __future__ import annotations

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest

from foretaste import Recommender, load
from foretaste.recommend.config import FilterOptions, ListOptions, ListRequest
from foretaste.serve.schemas import RecommendBody
from tests.cli.conftest import call
from tests.runs.tiny import FIRST_USER, make_dataset, make_run


class Given(NamedTuple):
    """A field's value by each door; None for a door that has no such field."""

    command: str | None
    python: dict[str, Any]
    body: dict[str, Any] | None


LISTS = {
    "nothing": Given("", {}, {}),
    "k": Given("-k 3", {"k": 3}, {"k": 3}),
    "exclude": Given("--exclude 3 4", {"exclude": [3, 4]}, {"exclude": [3, 4]}),
    "candidates": Given("--candidates 3 4", {"candidates": (3, 4)}, {"candidates": [3, 4]}),
    "include_seen": Given("--include-seen", {"include_seen": True}, {"include_seen": True}),
    "rules": Given("--rules b a b", {"rules": ["b", "a"]}, {"rules": ["a", "b"]}),
    # HTTP takes no SQL: a rule is written by those who start the service.
    "where": Given("--where item_id>3", {"where": "item_id>3"}, None),
    "max_per": Given(
        "--max-per title=2 genre=1",
        {"max_per": {"genre": 1, "title": 2}},
        {"max_per": {"title": 2, "genre": 1}},
    ),
    "reasons": Given("--reasons", {"reasons": True}, {"reasons": True}),
}


class Asked(Exception):  # noqa: N818 (it carries a request out of a verb)
    """A request that reached the one function of its verb."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("requests")
    return make_run(root / "run", make_dataset(root, titles=True)).path


def test_every_field_of_a_list_is_in_the_table() -> None:
    assert {item.name for item in fields(ListRequest)} == LISTS.keys() - {"nothing"}
    assert ListOptions.__annotations__.keys() == LISTS.keys() - {"nothing", "k"}
    assert FilterOptions.__annotations__.keys() == LISTS.keys() - {"nothing", "k", "reasons"}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_the_same_request_by_every_door(name: str, run: Path) -> None:
    given = LISTS[name]
    made = []

    def keep(self: Recommender, users: object, request: ListRequest, *others: object) -> Any:
        made.append(request)
        raise Asked

    recommender = load(run, "cpu")
    with patch.object(Recommender, "answers", keep), patch.object(Recommender, "write", keep):
        with pytest.raises(Asked):
            recommender.recommend([FIRST_USER], **given.python)
        with pytest.raises(Asked):
            recommender.recommend_for([[1, 5]], **given.python)
        with pytest.raises(Asked):
            recommender.recommend_all(run / "all.csv", **given.python)
        with pytest.raises(Asked):
            recommender.recommend_all_for(run / "all.csv", [[1, 5]], **given.python)
        for users in (f"--user {FIRST_USER}", "--history 1 5", "--all --output all.csv"):
            if (name, users[:5]) == ("reasons", "--all"):
                continue  # reasons are not written to a file
            with pytest.raises(Asked):
                call("recommend", run, *users.split(), *(given.command or "").split())
    if given.body is not None:
        body = {"users": [{"user_id": FIRST_USER}]} | given.body
        made.append(RecommendBody.model_validate_json(json.dumps(body)).request())
    assert len(set(made)) == 1
    assert (made[0] == ListRequest()) == (name == "nothing")


@pytest.mark.parametrize("method", [Recommender.recommend, Recommender.recommend_for])
def test_help_has_every_keyword_of_a_list(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    for item in fields(ListRequest):
        assert parameters[item.name].default == item.default
        assert f"\n            {item.name}: " in str(Recommender.recommend.__doc__)
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
