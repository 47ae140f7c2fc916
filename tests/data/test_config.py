from __future__ import annotations

from typing import Any

import pytest

from foretaste.data import GenerateConfig, PrepareConfig
from foretaste.errors import SettingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "last"}, "protocol must be one of auto, .*; got 'last'"),
        ({"validation": "some"}, "validation must be one of hold-out, none; got 'some'"),
        ({"filters": "all"}, "filters must be one of auto, none, reference; got 'all'"),
        ({"min_user_interactions": 0}, "min_user_interactions must be at least 1, got 0"),
        ({"min_item_users": -1}, "min_item_users must be at least 1, got -1"),
        ({"min_rating": float("nan")}, "min_rating must be a finite number, got nan"),
        ({"num_heldout_users": 0}, "num_heldout_users must be at least 1, got 0"),
        ({"num_heldout_users": 5, "protocol": "none"}, "belongs to protocol held-out-users"),
        ({"seed": -1}, "seed must be an integer from 0"),
        ({"memory_limit": "lots"}, "memory_limit must be a size such as .* got 'lots'"),
        ({"threads": 0}, "threads must be at least 1, got 0"),
        ({"target_in_candidates": "ask"}, "target_in_candidates must be one of keep, drop"),
        ({"delimiter": ""}, "delimiter must be one to 4 bytes without quotes .* got ''"),
        ({"delimiter": "=====>"}, "delimiter must be one to 4 bytes"),
        ({"delimiter": "€€"}, "delimiter must be one to 4 bytes"),
        ({"items_delimiter": '"'}, "items_delimiter must be one to 4 bytes without quotes"),
        ({"columns": ("user_id",)}, "columns must be two or more different names.* got 'user_id'"),
        ({"columns": ("a", "-", "a")}, "columns must be two or more different names"),
        ({"items_columns": ("a", "")}, "items_columns must be two or more different names"),
        ({"encoding": "cp1252"}, "encoding must be one of utf-8, latin-1, utf-16; got 'cp1252'"),
        ({"items_quote": "'"}, "items_quote must be one of double, none"),
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
        ({"num_users": 0}, "num_users must be at least 1"),
        ({"num_interactions": 1_999}, "num_interactions must be from 2,000"),
        ({"num_interactions": 1_000_001}, "to 1,000,000"),
        ({"taste": -0.1}, "taste must be from 0 to 10"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_shapes_that_cannot_be_generated(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        GenerateConfig(**settings)
