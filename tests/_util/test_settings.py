"""The validator of settings: conversions, refusals, and their words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from foretaste._util.settings import Count, Range, Seed, check_settings, from_document
from foretaste.errors import SettingError
from tests.messages import Named, raises


@dataclass(frozen=True, kw_only=True)
class Inner:
    rows: int

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True, kw_only=True)
class Example:
    epochs: Annotated[int | Literal["auto"], Range(at_least=1)] = "auto"
    rate: Annotated[float, Range(above=0, below=1)] = 0.5
    seed: Seed = 0
    fast: bool = False
    name: str = "a"
    place: Path | None = None
    widths: Annotated[tuple[int, ...], Range(at_least=1)] = (4,)
    betas: tuple[float, float] = (0.9, 0.999)
    kind: Literal["left", "right"] = "left"
    threads: Count | None = None
    parts: Mapping[str, Inner] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("epochs", np.int64(3), 3),
        ("rate", np.float32(0.25), 0.25),
        ("seed", np.uint64(2**63 - 1), 2**63 - 1),
        ("fast", np.True_, True),
        ("place", "runs/a", Path("runs/a")),
        ("widths", np.array([8, 4]), (8, 4)),
        ("widths", 5, (5,)),
        ("betas", [0.5, 0.25], (0.5, 0.25)),
    ],
)
def test_values_with_a_clear_meaning_are_converted(name: str, given: Any, kept: object) -> None:
    found = getattr(Example(**{name: given}), name)
    assert found == kept
    assert type(found) is type(kept)
    members = found if isinstance(found, tuple) else ()
    assert all(type(member) is (float if name == "betas" else int) for member in members)


@pytest.mark.parametrize(
    ("name", "given", "named"),
    [
        ("epochs", 1.0, (1,)),
        ("rate", float("nan"), (0, 1)),
        ("seed", 2**63, (0, "2^63")),
        ("fast", "no", ()),
        ("name", 5, ()),
        ("place", 5, ()),
        ("place", "", ()),
        ("betas", (1, 2, 3), (2,)),
        ("widths", 0, (1,)),
        ("widths", "12", (1,)),
        ("kind", "up", ("left", "right")),
        ("parts", {"a": {"rows": 1}}, ("Inner",)),
    ],
)
def test_anything_else_is_refused_in_one_wording(name: str, given: Any, named: Named) -> None:
    with raises(SettingError, name, repr(given), *named):
        Example(**{name: given})


def test_a_long_value_is_shown_short_and_on_one_line() -> None:
    with pytest.raises(SettingError) as caught:
        Example(seed=np.zeros((1000, 1000)))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_documents_are_read_by_the_same_rules() -> None:
    read = from_document(Example, {"widths": [3, 2], "parts": {"a": {"rows": 1}}, "place": "x"})
    assert read == Example(widths=(3, 2), parts={"a": Inner(rows=1)}, place=Path("x"))
    cases: list[tuple[dict[str, object], Named]] = [
        ({"wide": 1}, ("wide",)),
        ({"parts": {"a": {}}}, ("rows",)),
        ({"parts": {"a": {"rows": True}}}, ("rows", True)),
        ({"parts": {"a": 1}}, ("parts", {"a": 1}, "Inner")),
        ({"parts": [1]}, ("parts", [1], "Inner")),
    ]
    for document, named in cases:
        with raises(SettingError, *named):
            from_document(Example, document)
