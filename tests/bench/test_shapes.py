"""Named and spelled-out data shapes."""

from __future__ import annotations

import pytest

from foretaste.bench.shapes import parse_shape
from foretaste.errors import SettingError


def test_names_are_those_of_movielens() -> None:
    shape = parse_shape("ml-1m", "neumf")
    assert (shape.num_users, shape.num_items, shape.num_interactions) == (6_040, 3_706, 1_000_209)


def test_ml_20m_is_what_each_reference_trains_on() -> None:
    assert parse_shape("ml-20m", "neumf").num_items == 26_744
    vae = parse_shape("ml-20m", "vae")
    assert (vae.num_users, vae.num_items) == (116_677, 20_108)


@pytest.mark.parametrize("text", ["60x40x500", "60X40X500", "60×40×500", "60x40x5_00"])
def test_counts_are_spelled_out(text: str) -> None:
    shape = parse_shape(text, "neumf")
    assert (shape.num_users, shape.num_items, shape.num_interactions) == (60, 40, 500)


@pytest.mark.parametrize("text", ["ml-2m", "60x40", "", "-1x2x3"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(SettingError, match="use ml-100k, ml-1m, ml-20m or users"):
        parse_shape(text, "vae")
