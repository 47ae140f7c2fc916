"""Settings as keywords for type checkers: ``python -m tests.typed_keywords`` writes them again.

A setting is declared once, in its config, and type checkers do not take the fields of a dataclass
for keywords of a function. So one module repeats the names and types, and is written from them.
"""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import foretaste
from foretaste.data import PrepareConfig
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.training import LogConfig, PretrainingConfig, TrainingConfig

FILE = Path(foretaste.__file__).with_name("keywords.py")

KEYWORDS: dict[str, tuple[str, str, list[Any]]] = {
    "DataKeywords": ("TypedDict", "Settings of a preparation.", [PrepareConfig]),
    "PrepareKeywords": ("DataKeywords", "Settings of `prepare`.", [PrepareConfig]),
    "CompeteKeywords": ("DataKeywords", "Settings of `compete`.", [TrainingConfig]),
    "TrainKeywords": (
        "CompeteKeywords",
        "Settings of `train`, `tune_model` and `fit`, of every model.",
        [*map(config_class, MODEL_NAMES), PretrainingConfig, LogConfig],
    ),
}
"""Base, description and configs of each class; keywords of the base are not repeated."""

OF_VERBS = {"threads"}
"""Settings of a preparation that other verbs take as a parameter of their own."""

HEAD = '''\
"""Settings as keywords of the verbs, for type checkers.

``python -m tests.typed_keywords`` writes this from the configs, which declare them.
"""

from pathlib import Path
from typing import Literal, TypedDict

ModelName = Literal[{models}]
"""The models of foretaste. One of another package, or a name that is known at run time, goes into
a `TrainRequest`."""
'''


def text() -> str:
    """The text of the module."""
    parts = [HEAD.format(models=_listed(MODEL_NAMES))]
    written: dict[str, set[str]] = {"TypedDict": OF_VERBS}
    for name, (base, about, configs) in KEYWORDS.items():
        known = written[base] - (OF_VERBS if name == "PrepareKeywords" else set())
        hints = defaultdict[str, dict[str, None]](dict)
        for config in configs:
            for setting, hint in get_type_hints(config).items():
                if setting in {item.name for item in fields(config)} - known:
                    hints[setting] |= dict.fromkeys(_arms(hint))
        written[name] = known | hints.keys()
        lines = "".join(f"    {setting}: {_union(arms)}\n" for setting, arms in hints.items())
        parts.append(f'class {name}({base}, total=False):\n    """{about}"""\n\n{lines}')
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(FILE), "-"]
    module = "\n\n".join(parts)
    return subprocess.run(ruff, input=module, capture_output=True, text=True, check=True).stdout


def _union(arms: dict[str, None]) -> str:
    """Join several hints into one: all choices of models, None last."""
    choices = [arm for arm in arms if arm.startswith('"')]
    others = [arm for arm in arms if arm not in choices and arm != "None"]
    literal = [f"Literal[{_listed(one.strip(chr(34)) for one in choices)}]"] if choices else []
    return " | ".join([*others, *literal, *(["None"] if "None" in arms else [])])


def _arms(hint: Any) -> Iterator[str]:
    """The values that a caller may write: lists for tuples, text for paths."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        for one in inner:
            yield from _arms(one)
    elif origin is Literal:
        yield from (f'"{choice}"' for choice in inner)
    elif origin is tuple:
        items = _union(dict.fromkeys(_arms(inner[0])))
        yield from (f"list[{items}]", f"tuple[{items}, ...]")
    elif hint is Path:
        yield from ("Path", "str")
    else:
        yield "None" if hint is NoneType else hint.__name__


def _listed(names: Any) -> str:
    return ", ".join(f'"{name}"' for name in names)


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
