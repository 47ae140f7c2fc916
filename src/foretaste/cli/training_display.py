"""A training as ``foretaste train`` shows it: to its end, with the final numbers."""

from __future__ import annotations

from rich.console import Console

from foretaste.cli.console import DEFINED_ELSEWHERE, say
from foretaste.cli.training_session import FitLogs
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.definitions import parse_metric
from foretaste.report.tables import evaluation_grid
from foretaste.training.callbacks import TrainingSummary
from foretaste.training.config import TrainingConfig
from foretaste.training.display import TrainingDisplay


class SessionDisplay(TrainingDisplay):
    """A display that ends with the table of the test part."""

    def __init__(self, console: Console, asked: TrainingConfig, logs: FitLogs) -> None:
        super().__init__(console, asked, verbose=logs.verbose)
        self.with_definitions = logs.definitions

    def finished(self, summary: TrainingSummary) -> None:
        super().finished(summary)
        test = summary.test
        if test is not None:
            self.console.print(evaluation_grid(test, _shown_lengths(summary)).to_rich())
            brief = [*test.conditions(), DEFINED_ELSEWHERE]
            for line in test.definitions() if self.with_definitions else brief:
                say(self.console, line, "dim", folded=True)


def _shown_lengths(summary: TrainingSummary) -> tuple[int, ...]:
    """The usual list lengths, and the one that chose the epoch."""
    chosen = () if summary.select_by is None else (parse_metric(summary.select_by)[1],)
    return EvaluationConfig().k + chosen
