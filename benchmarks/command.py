"""Command line of a measurement: a model, then options made from its settings.

It needs PyTorch, NumPy, PyArrow and safetensors only.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from benchmarks.session import CachedSession
from benchmarks.show import HEADINGS
from foretaste import host
from foretaste._util.terminal import exit_with_status
from foretaste.bench.config import BenchConfig
from foretaste.bench.measure import Spread
from foretaste.bench.rows import table_of
from foretaste.bench.session import Session
from foretaste.models.registry import config_class

PLAIN = "plain"

Options = Mapping[str, type[BenchConfig]]
"""Class of a measurement's options by model."""


def run(
    name: str,
    options: Options,
    measure: Callable[[Session, Any], None],
    tokens: Sequence[str] | None = None,
) -> None:
    """Read the command line, measure, and print a table; a mistake exits with status 2."""
    with exit_with_status():
        host.keep_freed_memory()
        values = vars(parser(name, options).parse_args(tokens))
        model = values["model"]
        with CachedSession.of_ranks(
            name,
            _settings(config_class(model), values),
            _settings(options[model], values),
            log=lambda line: print(line, file=sys.stderr, flush=True),
            cache=values.get("data_cache"),
        ) as session:
            measure(session, session.options)
        if session.ranks.is_first:
            print(f"\n{table_of(session.rows, HEADINGS).to_markdown()}")


def parser(name: str, options: Options) -> argparse.ArgumentParser:
    """Parser of one measurement's command line."""
    made = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name.removeprefix('train-').replace('-', '_')}"
    )
    models = made.add_subparsers(dest="model", required=True)
    for model, kind in options.items():
        command = models.add_parser(model, argument_default=argparse.SUPPRESS)
        command.add_argument("--data-cache", type=Path, help="keep generated data in this folder")
        for settings in (kind, config_class(model)):
            hints = get_type_hints(settings)
            for field in fields(settings):
                option = f"--{field.name.replace('_', '-')}"
                command.add_argument(option, dest=field.name, **_reading(hints[field.name]))
    return made


def _reading(hint: Any) -> dict[str, Any]:
    """Arguments that let argparse read a value of that type."""
    if get_origin(hint) in (Union, UnionType):
        members = [inner for inner in get_args(hint) if inner is not NoneType]
        words = [word for inner in members for word in get_args(inner)]
        numbers = [inner for inner in members if get_origin(inner) is not Literal]
        if not numbers:
            return {"choices": words}
        return {"type": lambda text: text if text in words else numbers[0](text)}
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(hint) is tuple:
        return {"nargs": "+", **_reading(get_args(hint)[0])}
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    assert hint in (int, float, str, Path), f"no way to read {hint}"
    return {"type": hint}


def _settings(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """An instance of ``kind`` with the fields that were named."""
    found = {field.name: values[field.name] for field in fields(kind) if field.name in values}
    return kind(**{name: tuple(v) if isinstance(v, list) else v for name, v in found.items()})


def add_ratio(ours: dict[str, Any], plain: dict[str, Any], rate: str) -> None:
    """Put the ratio of our rate to the plain one's of the same turn among our numbers."""
    pairs = zip(ours[rate]["values"], plain[rate]["values"], strict=True)
    ours["times_plain"] = Spread(tuple(a / b for a, b in pairs)).as_dict()
