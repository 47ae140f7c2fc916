"""Commands of the models of other packages, imported on use."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from cyclopts import App

from foretaste.models.registry import other_models


def add_commands(app: App, verb: str, sort_key: int) -> None:
    """Add a command for each of these models to the app of a verb."""
    for name, found in other_models().items():
        about = f"Model of {found.dist.name if found.dist else found.module}."
        app.command(f"{__name__}:{verb}_{name}", name=name, help=about, sort_key=sort_key)


def __getattr__(name: str) -> Callable[..., None]:
    verb, _, model = name.partition("_")
    if verb not in ("train", "tune"):
        raise AttributeError(name)
    command: Callable[..., None] = import_module(f"foretaste.cli.{verb}").command_for(model)
    return command
