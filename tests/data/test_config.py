from __future__ import annotations

from typing import Any

import pytest

from foretaste.data import GenerateConfig, PrepareConfig
from foretaste.errors import SettingError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "last"}, "protocol is 'last'; it must be auto, .*"),
        (
            {"min_user_interactions": 0},
            "min_user_interactions is 0; it must be a whole number of at least 1",
        ),
        ({"memory_limit": "lots"}, "memory_limit is 'lots'; it must be a size such as 500MB"),
        ({"delimiter": ""}, "delimiter is ''; it must be one to 4 bytes without quotes"),
        ({"delimiter": "€€"}, "delimiter is .*; it must be one to 4 bytes"),
        ({"columns": ("user_id",)}, "columns is 'user_id'; it must be two or more different names"),
        ({"encoding": "utf-9"}, "encoding is 'utf-9'; it must be an encoding of text, such as utf"),
        ({"encoding": "base64"}, "encoding is 'base64'; it must be an encoding of text"),
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
        ({"num_interactions": 1_999}, "num_interactions is 1999; it must be from 2,000"),
        ({"num_interactions": 1_000_001}, "to 1,000,000"),
    ],
)
def test_shapes_that_cannot_be_generated(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        GenerateConfig(**settings)


@pytest.mark.parametrize("name", ["Latin1", "latin-1", "ISO-8859-1", "latin_1"])
def test_an_encoding_has_one_name(name: str) -> None:
    assert PrepareConfig(encoding=name).content() == PrepareConfig(encoding="latin-1").content()
    assert PrepareConfig(encoding="UTF-8").content() == PrepareConfig().content()
