from __future__ import annotations

from typing import Any

import pytest

from foretaste.data import GenerateConfig, PrepareConfig
from foretaste.errors import SettingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "last"}, "protocol is 'last'; it must be auto, .*"),
        ({"validation": "some"}, "validation is 'some'; it must be hold-out or none"),
        ({"filters": "all"}, "filters is 'all'; it must be auto, none or reference"),
        (
            {"min_user_interactions": 0},
            "min_user_interactions is 0; it must be a whole number of at least 1",
        ),
        ({"min_item_users": -1}, "min_item_users is -1; it must be a whole number of at least 1"),
        ({"min_rating": float("nan")}, "min_rating is nan; it must be a number"),
        (
            {"num_heldout_users": 0},
            "num_heldout_users is 0; it must be a whole number of at least 1",
        ),
        ({"num_heldout_users": 5, "protocol": "none"}, "belongs to protocol held-out-users"),
        ({"seed": 1.5}, "seed is 1.5; it must be a whole number"),
        ({"seed": True}, "seed is True; it must be a whole number"),
        ({"threads": "2"}, "threads is '2'; it must be a whole number"),
        ({"seed": -1}, "seed is -1; it must be a whole number of at least 0 and below 2.63"),
        ({"memory_limit": "lots"}, "memory_limit is 'lots'; it must be a size such as 500MB"),
        ({"threads": 0}, "threads is 0; it must be a whole number of at least 1"),
        ({"target_in_candidates": "ask"}, "target_in_candidates is 'ask'; it must be keep or drop"),
        ({"delimiter": ""}, "delimiter is ''; it must be one to 4 bytes without quotes"),
        ({"delimiter": "=====>"}, "delimiter is .*; it must be one to 4 bytes"),
        ({"delimiter": "€€"}, "delimiter is .*; it must be one to 4 bytes"),
        (
            {"items_delimiter": '"'},
            "items_delimiter is .*; it must be one to 4 bytes without quotes",
        ),
        ({"columns": ("user_id",)}, "columns is 'user_id'; it must be two or more different names"),
        ({"columns": ("a", "-", "a")}, "columns is .*; it must be two or more different names"),
        (
            {"items_columns": ("a", "")},
            "items_columns is .*; it must be two or more different names",
        ),
        ({"encoding": "utf-9"}, "encoding is 'utf-9'; it must be an encoding of text, such as utf"),
        (
            {"items_encoding": "base64"},
            "items_encoding is 'base64'; it must be an encoding of text",
        ),
        ({"encoding": ""}, "encoding is ''; it must be an encoding of text"),
        ({"items_quote": "'"}, "items_quote is .*; it must be double or none"),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        PrepareConfig(**settings)


def test_memory_and_threads_are_no_matter_of_content() -> None:
    assert PrepareConfig(memory_limit="1GB", threads=1).content() == PrepareConfig().content()
    assert PrepareConfig(seed=1).content() != PrepareConfig().content()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_users": 0}, "num_users is 0; it must be a whole number of at least 1"),
        ({"num_interactions": 1_999}, "num_interactions is 1999; it must be from 2,000"),
        ({"num_interactions": 1_000_001}, "to 1,000,000"),
        ({"taste": -0.1}, "taste is -0.1; it must be a number of at least 0 and at most 10"),
        ({"seed": -1}, "seed is -1; it must be a whole number"),
    ],
)
def test_shapes_that_cannot_be_generated(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        GenerateConfig(**settings)


@pytest.mark.parametrize("name", ["Latin1", "latin-1", "ISO-8859-1", "latin_1"])
def test_an_encoding_has_one_name(name: str) -> None:
    assert PrepareConfig(encoding=name).content() == PrepareConfig(encoding="latin-1").content()
    assert PrepareConfig(encoding="UTF-8").content() == PrepareConfig().content()
