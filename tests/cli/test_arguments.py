"""How command lines are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import get_type_hints

import pytest
from cyclopts import App

from foretaste.cli.app import app
from foretaste.cli.arguments import (
    DEFAULTS,
    ID_LISTS,
    METRIC_LISTS,
    NAME_LISTS,
    NUMBER_LISTS,
    spread_lists,
)
from foretaste.cli.train_options import RawData
from foretaste.data import PrepareConfig
from foretaste.evaluation.config import EvaluationConfig
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.runs import Run
from tests.cli.conftest import Done


@pytest.mark.parametrize(
    ("line", "spread"),
    [
        ("--layers 64 32 ds", "--layers 64 --layers 32 ds"),
        ("--layers 64,32 ds", "--layers 64 --layers 32 ds"),
        ("--layers=64,32 ds", "--layers 64 --layers 32 ds"),
        ("--layers 64, 32, ds", "--layers 64 --layers 32 ds"),
        ("--layers 64 --layers 32", "--layers 64 --layers 32"),
        ("-k 5 10 -k 20", "-k 5 -k 10 -k 20"),
        ("ds --hidden 600 --epochs 3", "ds --hidden 600 --epochs 3"),
        ("--layers wide", "--layers wide"),
        ("--layers", "--layers"),
        ("recommend run --user 42 43 -k 2", "recommend run --user 42 --user 43 -k 2"),
        ("recommend run --history a,b -7 --all", "recommend run --history a,b --history -7 --all"),
        ("recommend run --exclude=1 --user 2", "recommend run --exclude=1 --user 2"),
        ("recommend run --user", "recommend run --user"),
        ("recommend --user 42 run", "recommend --user 42 run"),
        ("similar run --item a b", "similar run --item a --item b"),
        ("compare a b -m x@5 y@5", "compare a b -m x@5 -m y@5"),
        ("compare a --metric x@5 y@5 b", "compare a --metric x@5 --metric y@5 b"),
        ("compare a --metric=x@5 b", "compare a --metric=x@5 b"),
        ("compare a b -m luck", "compare a b -m luck"),
        ("evaluate run --candidates full", "evaluate run --candidates full"),
        ("recommend", "recommend"),
        ("--columns a,b,- ds", "--columns=a --columns=b --columns=- ds"),
        ("--items_columns=a,b", "--items_columns=a --items_columns=b"),
        ("--columns", "--columns"),
        ("", ""),
    ],
)
def test_lists_end_where_their_parts_do(line: str, spread: str) -> None:
    assert spread_lists(line.split()) == spread.split()


def test_every_list_of_numbers_is_known() -> None:
    kinds = [EvaluationConfig, *map(config_class, MODEL_NAMES)]
    lists = {
        f"--{name}".replace("_", "-")
        for kind in kinds
        for name, hint in get_type_hints(kind).items()
        if hint in (tuple[int, ...], tuple[int, ...] | None)
    }
    assert lists | {"-k", "--weights"} == NUMBER_LISTS  # those of a blend belong to no config


def options_of(command: App) -> list[str]:
    arguments = command.assemble_argument_collection(default_parameter=DEFAULTS)
    return [
        name
        for argument in arguments
        if argument.parse
        for name in argument.names
        if name.startswith("--")
    ]


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_the_settings_that_share_an_option_name_are_listed(model: str) -> None:
    """An option of two configs must be listed here, and its meaning documented.

    ``--seed`` is the training's, as in Python; the others mean the same in both commands.
    """
    options = options_of(app["train"][model])
    assert len(options) == len(set(options))
    of_raw_files = {f"--{entry.name}".replace("_", "-") for entry in fields(RawData)}
    shared = set(options) & set(options_of(app["prepare"])) - of_raw_files
    seed = {"--seed"} if config_class(model).has_epochs else set()
    assert shared == {"--overwrite", "--quiet"} | seed


def test_the_seed_is_that_of_the_training(
    foretaste: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{n % 9},{n % 7}\n" for n in range(60))
    (tmp_path / "few.csv").write_text(f"user_id,item_id\n{rows}")
    done = foretaste("train gmf few.csv --epochs 1 --factors 2 --seed 7 --run run")
    assert done.status == 0, done.err
    config = Run.open(tmp_path / "run").config
    assert (config.seed, config.dataset.seed) == (7, PrepareConfig.seed)


@pytest.mark.parametrize(
    "verb", ["recommend", "similar", "compare", "compete", "evaluate", "report"]
)
def test_every_list_of_ids_and_metrics_is_known(verb: str) -> None:
    lists = {
        name
        for argument in app[verb].assemble_argument_collection(default_parameter=DEFAULTS)
        if argument.hint in (tuple[str, ...], list[str])
        for name in argument.names
        if name.startswith("-")
    }
    has_metrics = verb in ("compare", "compete", "evaluate", "report")
    known = ID_LISTS.get(verb, frozenset()) | (METRIC_LISTS if has_metrics else frozenset())
    assert lists - NAME_LISTS == known


def test_every_list_of_names_is_known() -> None:
    lists = {entry.name for entry in fields(PrepareConfig) if "tuple[str" in str(entry.type)}
    assert {f"--{name}".replace("_", "-") for name in lists} == NAME_LISTS


@pytest.mark.parametrize(
    "line",
    [
        "--factors 8 --layers 16 8 --negatives 2 --batch-size 64 --learning-rate 0.01 --epochs 1",
        "-f 8 --layers 16,8 -n 2 -b 64 -l 0.01 -e 1",
        "--layers=16,8 --factors=8 --negatives=2 --batch_size=64 --learning_rate=1e-2 --epochs=1",
    ],
)
def test_spellings_of_one_command(
    foretaste: Callable[..., Done], line: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("spelled") / "run"
    done = foretaste(f"train neumf {line} data --seed 7 --run", path)
    assert done.status == 0, done.err
    config = Run.open(path).config
    given = {"factors": 8, "layers": [16, 8]}
    assert config.model_config.items() >= given.items()
    asked = {name: config.asked[name] for name in ("negatives", "batch_size", "learning_rate")}
    assert asked == {"negatives": 2, "batch_size": 64, "learning_rate": 0.01}
    assert (config.asked["epochs"], config.seed) == (1, 7)
