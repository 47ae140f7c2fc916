"""``python -m foretaste.bench``: the benchmarks where only PyTorch, NumPy and PyArrow are there.

    python -m foretaste.bench train neumf --shape ml-20m --precision bf16 --against plain

Takes the options of ``foretaste bench``, made from the same settings.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from foretaste._util.terminal import run_command, share_cores, tell
from foretaste.bench.commands import BENCHMARKS, MODELS, model_settings, run_benchmark
from foretaste.bench.rows import Row, read_rows
from foretaste.bench.tables import summary, tables
from foretaste.models.neumf.config import SamplingConfig


def main(tokens: Sequence[str] | None = None) -> None:
    """Run one benchmark and print its tables; a mistake exits with status 2."""
    share_cores()
    run_command(lambda: _print_tables(vars(_parser().parse_args(tokens))))


def _print_tables(given: dict[str, Any]) -> None:
    if given["benchmark"] == "show":
        print(summary([row for path in given["files"] for row in read_rows(path)]).to_markdown())
        return
    for table in tables(_run(given)):
        print(f"\n{table.to_markdown()}")


def _run(given: dict[str, Any]) -> list[Row]:
    name, model = given["benchmark"], given["model"]
    return run_benchmark(
        name,
        _made(model_settings(model), given),
        _made(BENCHMARKS[name].options[model], given),
        sampling=_made(SamplingConfig, given) if model == "neumf" else None,
        tell=tell,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m foretaste.bench")
    names = parser.add_subparsers(dest="benchmark", required=True)
    for name, benchmark in BENCHMARKS.items():
        models = names.add_parser(name, help=benchmark.help).add_subparsers(
            dest="model", required=True
        )
        for model in MODELS:
            command = models.add_parser(model, argument_default=argparse.SUPPRESS)
            for settings in _settings(name, model):
                _add_options(command, settings)
    show = names.add_parser("show", help="Rows of earlier benchmarks in one narrow table.")
    show.add_argument("files", nargs="+", type=Path)
    return parser


def _settings(name: str, model: str) -> Iterator[type[Any]]:
    yield BENCHMARKS[name].options[model]
    yield model_settings(model)
    if model == "neumf":
        yield SamplingConfig


def _add_options(parser: argparse.ArgumentParser, settings: type[Any]) -> None:
    hints = get_type_hints(settings)
    for field in fields(settings):
        option = f"--{field.name.replace('_', '-')}"
        assert field.default is not MISSING, f"{settings.__name__}.{field.name} needs a default"
        parser.add_argument(option, dest=field.name, **_reading(hints[field.name]))


def _reading(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of that type."""
    options = [inner for inner in get_args(hint) if inner is not NoneType]
    if NoneType in get_args(hint) and len(options) == 1:
        return _reading(options[0])
    if hint is bool:
        return {"action": argparse.BooleanOptionalAction}
    if get_origin(hint) is tuple:
        return {"nargs": "+", **_reading(get_args(hint)[0])}
    if get_origin(hint) is Literal:
        return {"choices": get_args(hint)}
    assert hint in (int, float, str, Path), f"no way to read {hint}"
    return {"type": hint}


def _made(settings: type[Any], given: dict[str, Any]) -> Any:
    """The settings with what was given of them."""
    names = {field.name for field in fields(settings)}
    values = {name: value for name, value in given.items() if name in names}
    return settings(**{name: tuple(v) if isinstance(v, list) else v for name, v in values.items()})


if __name__ == "__main__":
    main()
