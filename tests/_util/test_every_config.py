"""Every setting of every config with values of every kind: one wording of errors, or a lasting
value."""

from __future__ import annotations

import importlib
import json
import math
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretaste
from foretaste._util.settings import from_document
from foretaste.errors import SettingError
from tests.messages import raises

VALUES: list[Any] = [
    *(None, True, 0, 1, -1, 2**31, 0.0, 0.5, 1.5, math.nan, math.inf, np.int64(3), np.float32(0.1)),
    *("", "no", "auto", "1", "full", "fp32", "a,b", [], [4, 2], ["a", "b"], (8, 4), np.array([4])),
    *({}, {"a": 1}, object(), Path("runs")),
]

NEEDED = {"PretrainingConfig": {"pretrained_gmf": Path("a"), "pretrained_mlp": Path("b")}}
"""Settings that a config needs."""

BETWEEN_FIELDS = (
    "num_(heldout_)?users belongs to|dataset serves the time|a NeuMF begins with both|"
    "num_interactions is .*; it must be from|widths is .*; it must be one width for all|"
    "spark_master is .*, and engine is duckdb|schedule_epochs is .*, and a constant learning rate|"
    "logit_adjustment is .*, which only the loss softmax|"
    "temperature is .*, which only the cosines|loss is softmax, which compares"
    "|event_column and events need each other|empty_values is .*, which needs empty_ids drop"
    r"|host .* can be reached"
)
"""Messages about settings that contradict each other."""

INTERNAL = {
    "FileFormat",
    "CandidateRule",
    "Between",
    "DatasetReference",
    "RunConfig",
    "TrainingSize",
    "WrittenFile",
    "BlendConfig",
    "ListRequest",
    "Member",
}
"""Dataclasses of config modules that hold no settings of a user."""


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
    """Expect a SettingError in the one wording, or a config that stays equal after writing and
    reading."""
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
                with raises(SettingError, item.name, "no"):
                    kind(**{item.name: "no"})
