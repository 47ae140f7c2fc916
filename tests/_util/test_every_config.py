"""Every setting of every config, given values of every kind: one wording, or a value that lasts."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretaste
from foretaste._util.settings import from_document
from foretaste.errors import SettingError


class Word(str, Enum):  # noqa: UP042  (what str() gives of it is not the text)
    AUTO = "auto"


class Unfriendly:
    """An object of which nothing can be asked."""

    def _fail(self, *_: object) -> Any:
        raise RuntimeError

    __repr__ = __eq__ = __iter__ = __len__ = __bool__ = __index__ = __float__ = _fail
    __contains__ = __hash__ = _fail


VALUES: list[Any] = [
    *(None, True, False, np.True_, np.False_),
    *(0, 1, -1, 3, 2**31, 2**63 - 1, 2**63, -(2**63), 10**18, 10**30, 10**400, 10**5000),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e308, 5e-324, math.nan, math.inf, -math.inf),
    *(np.int8(-1), np.int64(3), np.uint64(2**64 - 1), np.float16(0.5), np.float32(0.1)),
    *(np.float64(0.25), np.float64(math.nan), np.longdouble(0.5), np.str_("auto"), Word.AUTO),
    *(np.array(3), np.array([4, 2]), np.array([1.5]), np.array(["fp32"]), np.datetime64("2026")),
    *("", "no", "yes", "auto", "1", "0.5", "nan", "full", "fp32", "a,b", "/", "a\0b", "\ud800"),
    *(b"1", [], [1], [4, 2], [True], ["a", "b"], [[1]], [None], (), (8, 4), ("fp32",), range(1, 3)),
    *({}, {"a": 1}, {1}, frozenset({2}), {1: 2}.values(), object(), int, len, 1j),
    *(Path("runs"), Decimal(1), Fraction(1, 2), date(2026, 1, 1), Unfriendly(), [Unfriendly()]),
]

NEEDED = {"PretrainingConfig": {"pretrained_gmf": Path("a"), "pretrained_mlp": Path("b")}}
"""What a config cannot be made without."""

BETWEEN_FIELDS = (
    "num_(heldout_)?users belongs to|dataset serves the time|a NeuMF begins with both|"
    "num_interactions is .*; it must be from|widths is .*; it must be one width for all|"
    "spark_master is .*, and engine is duckdb|schedule_epochs is .*, and a constant learning rate|"
    "logit_adjustment is .*, which only the loss softmax|"
    "temperature is .*, which only the cosines|loss is softmax, which compares"
    r"|host .* can be reached"
)
"""What is said of settings that do not go together."""

INTERNAL = {
    "FileFormat",
    "CandidateRule",
    "Between",
    "DatasetReference",
    "RunConfig",
    "TrainingSize",
    "WrittenFile",
    "BlendConfig",
    "Member",
}
"""Dataclasses of config modules that nobody gives settings to."""


def configs() -> Iterator[type[Any]]:
    """Every class of settings: the dataclasses of all modules called config."""
    for module in pkgutil.walk_packages(foretaste.__path__, "foretaste."):
        if module.name.endswith(".config"):
            for name, kind in vars(importlib.import_module(module.name)).items():
                mine = getattr(kind, "__module__", None) == module.name
                if mine and is_dataclass(kind) and name not in INTERNAL:
                    assert isinstance(kind, type)
                    yield kind


CONFIGS = list(configs())


def check(kind: type[Any], name: str, value: Any) -> None:
    """A SettingError in the one wording, or a config that is the same after writing and reading."""
    try:
        made = kind(**NEEDED.get(kind.__name__, {}) | {name: value})
    except SettingError as error:
        message = str(error)
        assert len(message) < 600, message
        assert "\n" not in message
        assert re.match(rf"{name} is .*; it must be |{BETWEEN_FIELDS}", message), message
        return
    written = json.dumps(asdict(made), allow_nan=False, default=str).encode()
    assert from_document(kind, json.loads(written)) == made


def test_every_config_is_found() -> None:
    assert {"TrainingConfig", "PrepareConfig", "VAEConfig", "EvaluationConfig", "TrainBench"} <= {
        kind.__name__ for kind in CONFIGS
    }


@pytest.mark.parametrize("kind", CONFIGS, ids=lambda kind: kind.__name__)
def test_a_value_of_any_kind_is_refused_or_lasts(kind: type[Any]) -> None:
    for item in fields(kind):
        for value in VALUES:
            check(kind, item.name, value)


def test_no_flag_is_the_opposite_of_what_was_said() -> None:
    for kind in CONFIGS:
        for item in fields(kind):
            if isinstance(item.default, bool):
                with pytest.raises(SettingError, match=f"{item.name} is 'no'; it must be True or"):
                    kind(**{item.name: "no"})
