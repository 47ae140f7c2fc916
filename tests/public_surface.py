"""The public surface as text: ``python -m tests.public_surface`` writes it again."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import foretaste
from foretaste.cli.app import app
from foretaste.cli.arguments import DEFAULTS
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.serve.openapi import document
from tests.docs.test_settings import commands_of
from tests.fixtures.write import FORMATS
from tests.test_walls import BELOW

FILE = Path(__file__).with_suffix(".txt")
PACKAGES = ["foretaste", "foretaste.testing", *(f"foretaste.{room}" for room in BELOW)]


def commands() -> Iterator[str]:
    """Each command and its options."""
    for name, command in commands_of(app).items():
        if command.default_command is None:
            continue
        arguments = command.assemble_argument_collection(default_parameter=DEFAULTS)
        options = {name for one in arguments if one.parse for name in one.names} - {"*"}
        yield from textwrap.wrap(
            f"{name}: {' '.join(sorted(options))}",
            100,
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )


def names() -> Iterator[str]:
    """Each name of an ``__all__``, at its first place with the signatures of its members."""
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in sorted(getattr(module, "__all__", ())):
            value = getattr(module, name)
            if callable(value) and value not in seen:
                seen.add(value)
                yield f"{package}.{name}{signature(value)}"
                yield from members(value) if inspect.isclass(value) else ()
            else:
                yield f"{package}.{name}"


def members(kind: type) -> Iterator[str]:
    """Public methods and properties, also inherited from our base classes."""
    own = [one for one in kind.__mro__ if one.__module__.startswith("foretaste")]
    found = {name: value for one in reversed(own) for name, value in vars(one).items()}
    for name, value in sorted(found.items()):
        value = getattr(value, "__func__", value)
        is_private = name.startswith("_") and name not in getattr(kind, "__abstractmethods__", ())
        if is_private or inspect.isclass(value):
            continue
        if inspect.isfunction(value):
            yield f"  .{name}{signature(value)}"
        elif not is_dataclass(kind) or hasattr(value, "__get__"):
            yield f"  .{name}"


def signature(value: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(value))
    except ValueError:  # a class with its base's constructor
        return ""


def settings() -> Iterator[str]:
    """The settings of each model."""
    for name in MODEL_NAMES:
        kind = config_class(name)
        is_listed = kind.__name__ in foretaste.__all__
        yield f"{name}: {kind.__name__}{'' if is_listed else signature(kind)}"


def routes() -> Iterator[str]:
    """Each route with the fields of requests and answers; a star marks required ones."""
    described = document([])
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            query = [
                f"{one['name']}{'*' * one['required']}" for one in operation.get("parameters", ())
            ]
            yield " ".join([method.upper(), path, *query, *operation["responses"]])
    for name, one in sorted(described["components"]["schemas"].items()):
        needed = one.get("required", ())
        fields = (f"{field}{'*' * (field in needed)}" for field in one.get("properties", ()))
        yield f"{name}: {' '.join(fields)}"


def text() -> str:
    formats = (f"{kind} {number}" for kind, number in FORMATS.items())
    parts = {
        "commands": commands(),
        "names": names(),
        "settings of models": settings(),
        "routes": routes(),
        "formats": formats,
    }
    whole = "\n".join(
        f"# {title}\n" + "".join(f"{line}\n" for line in lines) for title, lines in parts.items()
    )
    return re.sub(r" at 0x[0-9a-f]+", "", whole)


def untold(stored: str, found: str, changelog: str) -> list[str]:
    """Added or removed names that the changelog lacks."""
    old, new, told = (set(re.findall(r"-*\w[\w-]*", one)) for one in (stored, found, changelog))
    return sorted((old ^ new) - told)


if __name__ == "__main__":
    new = text()
    changelog = FILE.parents[1].joinpath("CHANGELOG.md").read_text(encoding="utf-8")
    if missing := untold(FILE.read_text(encoding="utf-8"), new, changelog):
        sys.exit(f"say first in CHANGELOG.md what users do now: {', '.join(missing)}")
    FILE.write_text(new, encoding="utf-8")
