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
    ("name", "given", "said"),
    [
        ("epochs", 1.0, "epochs is 1.0; it must be a whole number of at least 1 or auto"),
        ("rate", float("nan"), "rate is nan; it must be a number above 0 and below 1"),
        ("seed", 2**63, "seed is .*; it must be .* below 2.63"),
        ("fast", "no", "fast is 'no'; it must be True or False"),
        ("name", 5, "name is 5; it must be text"),
        ("place", 5, "place is 5; it must be a path"),
        ("place", "", "place is ''; it must be a path"),
        ("betas", (1, 2, 3), r"betas is \(1, 2, 3\); it must be a list of 2 numbers"),
        ("widths", 0, "widths is 0; it must be a list of whole numbers of at least 1"),
        ("widths", "12", "widths is '12'; it must be a list of whole numbers of at least 1"),
        ("kind", "up", "kind is 'up'; it must be left or right"),
        ("parts", {"a": {"rows": 1}}, r"it must be an object of Inner\(...\), with settings by"),
    ],
)
def test_anything_else_is_refused_in_one_wording(name: str, given: Any, said: str) -> None:
    with pytest.raises(SettingError, match=f"^{name} is .*; it must be "):
        Example(**{name: given})
    with pytest.raises(SettingError, match=said):
        Example(**{name: given})


def test_a_long_value_is_shown_short_and_on_one_line() -> None:
    with pytest.raises(SettingError) as caught:
        Example(seed=np.zeros((1000, 1000)))  # type: ignore[arg-type]
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_documents_are_read_by_the_same_rules() -> None:
    read = from_document(Example, {"widths": [3, 2], "parts": {"a": {"rows": 1}}, "place": "x"})
    assert read == Example(widths=(3, 2), parts={"a": Inner(rows=1)}, place=Path("x"))
    for document, said in (
        ({"wide": 1}, "'wide' is unknown"),
        ({"parts": {"a": {}}}, "rows is missing"),
        ({"parts": {"a": {"rows": True}}}, "rows is True; it must be a whole number"),
        ({"parts": {"a": 1}}, "parts is {'a': 1}; it must be an object of Inner"),
        ({"parts": [1]}, "parts is .*; it must be an object"),
    ):
        with pytest.raises(SettingError, match=said):
            from_document(Example, document)
