"""How command lines are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass

import pytest
from cyclopts import App

import foretaste
from foretaste.cli.app import app
from foretaste.cli.arguments import DEFAULTS, join_skipped_columns
from foretaste.cli.train_options import RawData
from foretaste.data import GivenSplit, PrepareConfig
from foretaste.data.config import PairsConfig
from foretaste.data.request import PrepareRequest
from foretaste.evaluation.config import EvaluationConfig
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.serve import serve
from foretaste.serve.config import ServeConfig
from foretaste.training import LogConfig, PretrainingConfig, TrainingConfig


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("train neumf ds --layers 64 32", {"layers": (64, 32)}),
        ("train neumf ds --layers=64,32", {"layers": (64, 32)}),
        ("train neumf ds --layers 64, 32,", {"layers": (64, 32)}),
        ("evaluate run -k 5 10 -k 20", {"k": (5, 10, 20)}),
        ("blend a b --weights 0.7 -0.3", {"weights": (0.7, -0.3)}),
        ("recommend run --user 42 43 -k 2", {"user": ("42", "43"), "k": 2}),
        ("recommend run --history a,b -7 --all", {"history": ("a,b", "-7"), "all": True}),
        ("compare a b -m x@5 y@5", {"metrics": ("x@5", "y@5")}),
        ("compare a b --metrics x@5,y@5", {"metrics": ("x@5", "y@5")}),
        ("compete ds --models ease,vae", {"models": ("ease", "vae")}),
        ("prepare ds --columns a,b,- --overwrite", {"columns": ("a", "b", "-")}),
        ("prepare ds --columns -,a,b --items x", {"columns": ("-", "a", "b")}),
        ("prepare a,b.csv --columns=a,b", {"columns": ("a", "b")}),
    ],
)
def test_lists_end_with_the_next_option(line: str, values: dict[str, object]) -> None:
    words = join_skipped_columns(line.split())
    _, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)
    found = dict(bound.arguments)
    for value in bound.arguments.values():
        if is_dataclass(value):
            found |= vars(value)
    assert found.items() >= values.items()


def options_of(command: App) -> list[str]:
    arguments = command.assemble_argument_collection(default_parameter=DEFAULTS)
    return [
        name
        for argument in arguments
        if argument.parse
        for name in argument.names
        if name.startswith("--") and name not in argument.negatives
    ]


OF_A_COMMAND = {
    *("format", "quiet", "verbose", "help", "version"),
    *("overwrite", "log_path"),
    *("threads", "bind"),  # of this process: torch.set_num_threads and the launcher's in Python
}
"""Options about printing, writing and the process; Python does these by other means."""

OTHERWISE_IN_PYTHON = {
    "train": {"from"},  # start_from: from is a word of Python's own
    "tune": {"time"},  # time_s: 90s and 2h are text
    "evaluate": {"metrics"},  # these choose the shown part of an evaluation
    "compare": {"metrics", "gate"},  # compare_runs(...).check_not_worse(metric)
    "report": {"output"},  # report_runs(...).write(path)
    "recommend": {"user", "history", "users_file", "histories_file", "all", "unknown"},
    "similar": {"item", "all"},
}
"""Options whose arguments in Python have other names, with the reason."""


_BESIDE = {"recommend": (foretaste.Recommender.recommend, foretaste.Recommender.read_rules)}
"""Further functions that a command calls."""


@pytest.mark.parametrize(
    ("words", "function", "configs"),
    [
        ("prepare", foretaste.prepare, [PrepareConfig, GivenSplit]),
        (
            "train gmf",
            foretaste.train,
            [config_class("gmf"), TrainingConfig, PretrainingConfig, LogConfig, PrepareConfig],
        ),
        ("train --resume", foretaste.resume, [LogConfig]),
        ("tune gmf", foretaste.tune_model, [config_class("gmf"), TrainingConfig, PrepareConfig]),
        ("compete", foretaste.compete, [TrainingConfig, PrepareConfig]),
        ("blend", foretaste.blend, []),
        ("evaluate", foretaste.evaluate_run, [EvaluationConfig]),
        ("compare", foretaste.compare_runs, [EvaluationConfig]),
        ("report", foretaste.report_runs, [EvaluationConfig]),
        ("export", foretaste.export_run, []),
        ("serve", serve, [ServeConfig]),
        ("recommend", foretaste.Recommender.recommend_all, [PairsConfig]),
        ("similar", foretaste.Recommender.similar_all, []),
    ],
)
def test_an_option_has_the_name_of_its_argument_in_python(
    words: str, function: Callable[..., object], configs: list[type]
) -> None:
    named = {
        name
        for one in (function, PrepareRequest, foretaste.Recommender.open, *_BESIDE.get(words, ()))
        for name in inspect.signature(one).parameters
    }
    named |= {entry.name for config in configs for entry in fields(config)}
    options = {name.removeprefix("--").replace("-", "_") for name in options_of(app_of(words))}
    others = OTHERWISE_IN_PYTHON.get(words.split()[0], set())
    assert options - OF_A_COMMAND - others <= named


def app_of(words: str) -> App:
    found = app
    for word in words.split():
        found = found[word]
    return found


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_the_settings_that_share_an_option_name_are_listed(model: str) -> None:
    """An option that two configs share must be listed here, and its meaning documented.

    ``--seed`` is the training's, as in Python; the others mean the same in both commands.
    """
    options = options_of(app["train"][model])
    assert len(options) == len(set(options))
    of_raw_files = {f"--{entry.name}".replace("_", "-") for entry in fields(RawData)}
    shared = set(options) & set(options_of(app["prepare"])) - of_raw_files
    seed = {"--seed"} if config_class(model).has_epochs else set()
    assert shared == {"--overwrite", "--quiet", "--threads"} | seed
