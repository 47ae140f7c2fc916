from __future__ import annotations

from typing import Any

import pytest

from foretaste.data import GenerateConfig, PrepareConfig
from foretaste.errors import SettingError
from tests.messages import Named, raises


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"protocol": "last"}, ("protocol", "last")),
        (
            {"min_user_interactions": 0},
            ("min_user_interactions", 0, 1),
        ),
        ({"memory_limit": "lots"}, ("memory_limit", "lots")),
        ({"delimiter": ""}, ("delimiter", 4)),
        ({"delimiter": "€€"}, (4,)),
        ({"columns": ("user_id",)}, ("columns", "user_id")),
        ({"encoding": "utf-9"}, ("encoding", "utf-9")),
        ({"encoding": "base64"}, ("encoding", "base64")),
    ],
)
def test_settings_out_of_range(settings: dict[str, Any], named: Named) -> None:
    with raises(SettingError, *named):
        PrepareConfig(**settings)


def test_memory_and_threads_are_no_matter_of_content() -> None:
    assert PrepareConfig(memory_limit="1GB", threads=1).content() == PrepareConfig().content()
    assert PrepareConfig(seed=1).content() != PrepareConfig().content()


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_interactions": 1_999}, ("num_interactions", 1999, "2,000")),
        ({"num_interactions": 1_000_001}, ("1,000,000",)),
    ],
)
def test_shapes_that_cannot_be_generated(settings: dict[str, Any], named: Named) -> None:
    with raises(SettingError, *named):
        GenerateConfig(**settings)


@pytest.mark.parametrize("name", ["Latin1", "latin-1", "ISO-8859-1", "latin_1"])
def test_an_encoding_has_one_name(name: str) -> None:
    assert PrepareConfig(encoding=name).content() == PrepareConfig(encoding="latin-1").content()
    assert PrepareConfig(encoding="UTF-8").content() == PrepareConfig().content()
