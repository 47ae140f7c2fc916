"""Measurements as rows: one JSON object each, written as soon as they are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from foretaste.bench.environment import environment
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.bench.config import BenchConfig
    from foretaste.data.synthetic_config import GenerateConfig

OURS = "foretaste"
PLAIN = "plain"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One measurement of one side."""

    benchmark: str
    """train, train-target, inference, recommend, rank-all or scaling."""
    model: str
    side: str
    """foretaste or plain."""
    case: Mapping[str, Any]
    """What distinguishes it from its neighbours: precision, batch size, ..."""
    clock: str
    """What the clock covers, in words."""
    measured: Mapping[str, Any]
    """Numbers by name with unit; spreads hold median, min, max and values."""


_PLACES = frozenset({"output", "data_cache"})
"""Options that say where files are on one machine, and nothing about what was measured."""


class Recorder:
    """Collects the rows of one benchmark, and appends them to a file where one was named."""

    def __init__(
        self,
        benchmark: str,
        model: str,
        options: BenchConfig,
        device: torch.device,
        settings: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self.rows: list[Row] = []
        self.tell = tell
        self._benchmark = benchmark
        self._model = model
        self._output = options.output
        asked = {
            name: _plain_value(value)
            for name, value in asdict(options).items()
            if name not in _PLACES
        }
        self._context = {**environment(device), "settings": dict(settings), "options": asked}

    def add(
        self,
        side: str,
        case: Mapping[str, Any],
        clock: str,
        measured: Mapping[str, Any],
        *,
        shape: GenerateConfig | Mapping[str, Any],
        benchmark: str | None = None,
    ) -> Row:
        """Keep, write and announce one measurement on data of ``shape``."""
        row = Row(
            benchmark=benchmark or self._benchmark,
            model=self._model,
            side=side,
            case=dict(case),
            clock=clock,
            measured=dict(measured),
        )
        self.rows.append(row)
        if self._output is not None:
            self._append(self._output, asdict(row) | {"shape": _plain_value(shape)})
        return row

    def _append(self, path: Path, document: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(document | self._context, allow_nan=False) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that benchmarks wrote; SettingError where it holds anything else."""
    names = [field.name for field in fields(Row)]
    try:
        documents = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return [Row(**{name: document[name] for name in names}) for document in documents]
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(f"{path} does not hold rows of a benchmark: {error!r}") from error


def _plain_value(value: Any) -> Any:
    """A value as JSON knows it."""
    if is_dataclass(value) and not isinstance(value, type):
        return {name: _plain_value(inner) for name, inner in asdict(value).items()}
    return str(value) if isinstance(value, Path) else value
