"""A training as ``foretaste train`` shows it: to its end, with the final numbers."""

from __future__ import annotations

from foretaste.cli.console import say
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.definitions import parse_metric
from foretaste.report.tables import evaluation_grid
from foretaste.training.display import TrainingDisplay
from foretaste.training.progress import TrainingSummary


class SessionDisplay(TrainingDisplay):
    """A display that ends with the table of the test part."""

    def finished(self, summary: TrainingSummary) -> None:
        super().finished(summary)
        if summary.test is not None:
            self.console.print(evaluation_grid(summary.test, _shown_lengths(summary)).to_rich())
            for line in summary.test.definitions():
                say(self.console, line, "dim", folded=True)


def _shown_lengths(summary: TrainingSummary) -> tuple[int, ...]:
    """The usual list lengths, and the one that chose the epoch."""
    chosen = () if summary.select_by is None else (parse_metric(summary.select_by)[1],)
    return EvaluationConfig().k + chosen
