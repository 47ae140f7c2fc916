"""Options of the commands that measure runs: ``evaluate``, ``compare`` and ``report``."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting

if TYPE_CHECKING:
    from foretaste.evaluation.config import EvaluationConfig
    from foretaste.measure.evaluate_runs import Progress
    from foretaste.measure.request import MeasureRequest


@dataclass(frozen=True, kw_only=True)
class MeasureOptions:
    """On which held-out users runs are measured, and where."""

    split: Literal["test", "validation"] = "test"
    """Held-out part that is measured."""

    dataset: Path | None = None
    """Dataset to measure on: the present directory of the runs' own, or another dataset. Users and
    items are matched by id. Runs of different datasets need it."""

    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:N."""

    threads: int | None = None
    """CPU threads of each rank; by default PyTorch's number."""

    quiet: Annotated[bool, FLAG] = False
    """Print the result and nothing else: no progress, definitions or notes."""

    def request(self, config: EvaluationConfig) -> MeasureRequest:
        """Return the request, with these settings of the evaluation."""
        from foretaste.measure.request import MeasureRequest

        return MeasureRequest(
            dataset=self.dataset,
            split=self.split,
            config=config,
            device=self.device,
            threads=self.threads,
        )

    def counting(self) -> AbstractContextManager[Progress | None]:
        """Return a progress bar, unless ``quiet``."""
        return counting(f"Ranking {self.split}", quiet=self.quiet)


Measuring = Annotated[MeasureOptions | None, Parameter(name="*")]
