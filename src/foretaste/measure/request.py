"""The request of a measurement: one value for evaluations, comparisons and reports."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from foretaste._util.keywords import assign_settings
from foretaste._util.settings import Threads, check_settings
from foretaste.data.dataset import Dataset, Split
from foretaste.evaluation.config import EvaluationConfig, EvaluationOptions


class MeasureOptions(EvaluationOptions, total=False):
    """Keywords of `MeasureRequest` and of its part, in the types that callers have."""

    split: Split
    device: str
    threads: int | None


@dataclass(frozen=True, kw_only=True)
class MeasureRequest:
    """How runs are measured: on which held-out users, in which way and where."""

    dataset: Dataset | Path | None = None
    """Dataset to measure on, or its directory; None for the runs' own dataset, at the path it had
    during training."""

    split: Split = "test"
    """Held-out part that is measured."""

    config: EvaluationConfig = field(default_factory=EvaluationConfig)
    """Candidates, lengths of lists and further metrics."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:N."""

    threads: Threads | None = None
    """CPU threads of each rank; None for PyTorch's number."""

    @classmethod
    def of(cls, verb: str, **given: Any) -> MeasureRequest:
        """Return the request of ``verb``'s keywords; evaluation settings override ``config``.

        SettingError for a keyword that ``verb`` does not have, and for a value that does not fit.
        """
        own = [item.name for item in fields(cls) if item.name != "config"]
        return cls(**assign_settings(verb, given, own, {"config": EvaluationConfig}))

    def __post_init__(self) -> None:
        check_settings(self)
