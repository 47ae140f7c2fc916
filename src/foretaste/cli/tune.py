"""``foretaste tune``: one command for each model with a search space."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from cyclopts import App

from foretaste.cli.arguments import FLAG, given_settings
from foretaste.cli.console import MetricsFormat, print_metrics, say, say_next, stdout_console
from foretaste.cli.other_models import add_commands
from foretaste.cli.train_options import (
    RawOptions,
    Source,
    options_of,
    train_on_everything,
)
from foretaste.errors import SettingError
from foretaste.models.config import ModelConfig
from foretaste.models.registry import MODELS, config_class
from foretaste.training.config import TrainingConfig
from foretaste.tune.config import TRIALS

tune = App(name="tune")


def command_for(model: str) -> Callable[..., None]:
    """Return the command that searches a model's settings, with its training's options."""

    def command(
        *dataset: Source,
        trials: int = TRIALS,
        time: str | None = None,
        output: Path | None = None,
        config: TrainingConfig | None = None,
        model_config: ModelConfig | None = None,
        threads: int | None = None,
        raw: RawOptions = None,
        format: MetricsFormat = "table",
        quiet: Annotated[bool, FLAG] = False,
    ) -> None:
        """Search settings.

        Args:
            dataset: Directory made by foretaste prepare, or raw files, which are prepared first.
            trials: Number of trials in all; the same command with more continues the search.
            time: Time after which no further trial begins: --time 90s, 10m or 2h.
            output: Directory of the runs, and of the trials as table.md, table.csv and table.json;
                by default searches/MODEL-NAME.
            threads: CPU threads of each rank; by default PyTorch's number.
            format: Format of the printed table; csv and json have more of each trial.
            quiet: Print the table and nothing else: no progress and no notes.
        """
        time_s = None if time is None else _seconds(time)

        from foretaste.training import Callback
        from foretaste.tune.search import TuneRequest, search_settings

        request = TuneRequest.of(
            model,
            dataset,
            trials=trials,
            time_s=time_s,
            output=output,
            threads=threads,
            **given_settings(raw),
            **given_settings(model_config),
            **given_settings(config),
        )
        data = request.train.data
        found = search_settings(request, Callback() if quiet else None)
        print_metrics(found.rows(), [("", found.grid())], [] if quiet else found.notes(), format)
        if format == "table" and not quiet:
            console = stdout_console()
            say(console)
            say_next(
                console,
                ("foretaste", "evaluate", found.best.run),
                *train_on_everything(found.best.run, data),
            )
            if data.is_prepared:
                say(
                    console,
                    "For production, prepare the same files with --protocol none, and: foretaste "
                    f"train --like {found.best.run} DATASET",
                )

    types = options_of(config_class(model))
    command.__annotations__ |= {name: types[name] for name in ("model_config", "config")}
    return command


def _seconds(time: str) -> float:
    """Return the seconds of a time such as 90s, 10m or 2h; SettingError for any other."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", time)
    if found is None:
        raise SettingError(f"--time is {time!r}; give a number and its unit: 90s, 10m or 2h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


for position, name in enumerate(MODELS):
    if config_class(name).search_space:
        tune.command(
            command_for(name), name=name, help=config_class(name).__doc__, sort_key=position
        )
add_commands(tune, "tune", sort_key=len(MODELS))
