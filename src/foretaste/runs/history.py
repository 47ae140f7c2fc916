"""History of a run: its epochs, and the final evaluation, as its log has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, overload

from foretaste._util.formatting import html_table
from foretaste.errors import MissingExtraError

if TYPE_CHECKING:
    import pyarrow as pa

    from foretaste.evaluation.result import Evaluation


class RunHistory(Sequence[dict[str, Any]]):
    """The epochs of a training, first to last, each a dict of its numbers.

    All have ``epoch``, ``step``, ``loss``, ``train_s`` and ``samples_per_s``; some models and
    precisions others, such as ``beta`` and ``loss_scale``. An epoch that was evaluated has its
    metrics too: ``validation/ndcg@10``.
    """

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        epochs: dict[int | None, dict[str, Any]] = {}
        for event in events:
            if event["event"] == "epoch":
                numbers = {name: value for name, value in event.items() if name != "event"}
                epochs[event["epoch"]] = {"epoch": event["epoch"], **numbers}
            elif event["event"] == "evaluation" and event["epoch"] in epochs:
                found = event["evaluation"]
                epochs[event["epoch"]] |= {
                    f"{found['split']}/{name}": metric["value"]
                    for name, metric in found["metrics"].items()
                }
        self._epochs = list(epochs.values())

    def __len__(self) -> int:
        return len(self._epochs)

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._epochs[index]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._epochs)

    def __repr__(self) -> str:
        if not self._epochs:
            return "RunHistory(no epochs)"
        first, last = self._epochs[0]["loss"], self._epochs[-1]["loss"]
        return f"RunHistory(epochs {len(self)}, loss {first} to {last})"

    def _repr_html_(self) -> str:
        table = self.to_arrow()
        rows = [
            [f"{value:.6g}" if isinstance(value, float) else value or "" for value in row.values()]
            for row in table.to_pylist()
        ]
        return html_table(repr(self), table.column_names, rows)

    def to_arrow(self) -> pa.Table:
        """An Arrow table with a row for every epoch; numbers that it does not have are null."""
        import pyarrow as pa

        names = dict.fromkeys(name for epoch in self._epochs for name in epoch)
        return pa.table({name: [epoch.get(name) for epoch in self._epochs] for name in names})

    def to_pandas(self) -> Any:
        """The table of `to_arrow` as a DataFrame; MissingExtraError where pandas is not there."""
        if find_spec("pandas") is None:
            raise MissingExtraError("pandas is not installed; pip install pandas, or use to_arrow")
        return self.to_arrow().to_pandas()


def final_evaluation(events: Sequence[Mapping[str, Any]]) -> Evaluation | None:
    """The evaluation of a finished training's kept weights, on the test part where there is one."""
    from foretaste.evaluation.result import Evaluation

    summary = events[-1] if events else {}
    evaluations = [event for event in events if event["event"] == "evaluation"]
    if summary.get("event") != "summary" or not evaluations:
        return None
    of_best = [event for event in evaluations if event["epoch"] == summary["best_epoch"]]
    return Evaluation.from_dict((of_best or evaluations)[-1]["evaluation"])
