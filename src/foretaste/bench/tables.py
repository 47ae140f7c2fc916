"""Rows as tables: Markdown here; the command line draws the same cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretaste._util.formatting import compact

if TYPE_CHECKING:
    from foretaste.bench.rows import Row

_HEADINGS = {
    "precision": "precision",
    "batch_size": "batch",
    "users": "of",
    "num_users": "users",
    "history_length": "items each",
    "form": "tables",
    "grown": "grown",
    "factor": "times",
    "items": "items",
    "width": "width",
    "metric": "metric",
    "target": "target",
    "candidates": "candidates",
    "chunk": "chunk",
    "compiled": "compiled",
    "samples_per_s": "samples/s",
    "users_per_s": "users/s",
    "pairs_per_s": "pairs/s",
    "times_plain": "× plain",
    "epoch_s": "epoch",
    "seconds": "time",
    "us_per_sample": "per sample",
    "us_per_user": "per user",
    "negatives_share": "negatives",
    "reached": "reached",
    "epochs": "epochs",
    "train_s": "training",
    "average": "average",
    "p90": "p90",
    "p95": "p95",
    "p99": "p99",
    "peak_memory_mib": "memory",
    "compile_s": "compile",
    "warmup_s": "warm-up",
    "first_call_s": "first call",
    "left_out": "left out",
}
"""Columns in their order; those without a value in any row are left out."""

_MILLISECONDS = frozenset({"average", "p90", "p95", "p99"})


@dataclass(frozen=True)
class Table:
    """Cells as text, and what they are of."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """The table in Markdown, its title above."""
        rule = ("---", *("---:" for _ in self.headings[1:]))
        lines = [f"| {' | '.join(row)} |" for row in (self.headings, rule, *self.rows)]
        return "\n".join([f"**{self.title}**", "", *lines])


def tables(rows: Sequence[Row]) -> list[Table]:
    """One table per kind of benchmark, in the order the rows came."""
    kinds = dict.fromkeys((row.benchmark, row.model) for row in rows)
    return [
        _table(f"{benchmark} {model}", [row for row in rows if (row.benchmark, row.model) == kind])
        for kind in kinds
        for benchmark, model in (kind,)
    ]


def summary(rows: Sequence[Row]) -> Table:
    """All rows in one narrow table: medians only."""
    return Table(
        "summary",
        ("benchmark", "side", "case", "rate", "× plain", "p99", "memory"),
        tuple(
            (
                f"{row.benchmark} {row.model}",
                row.side,
                " ".join(_cell(name, row.case[name]) for name in _HEADINGS if name in row.case),
                _rate(row),
                _median("times_plain", row),
                _cell("p99", _values(row).get("p99")),
                _cell("peak_memory_mib", row.measured.get("peak_memory_mib")),
            )
            for row in rows
        ),
    )


def _rate(row: Row) -> str:
    """Its first rate, or what there is instead."""
    for name in ("samples_per_s", "users_per_s"):
        if name in row.measured:
            return f"{_median(name, row)} {name.removesuffix('_per_s')}/s"
    if "train_s" in row.measured:
        return f"{_seconds(row.measured['train_s'])}, {row.measured['epochs']} epochs"
    return "left out" if "left_out" in row.measured else ""


def _median(name: str, row: Row) -> str:
    spread = row.measured.get(name)
    return compact(spread["median"]) if spread else ""


def _table(title: str, rows: Sequence[Row]) -> Table:
    values = [_values(row) for row in rows]
    names = [name for name in _HEADINGS if any(name in of_row for of_row in values)]
    return Table(
        title,
        ("side", *(_HEADINGS[name] for name in names)),
        tuple(
            (row.side, *(_cell(name, of_row.get(name)) for name in names))
            for row, of_row in zip(rows, values, strict=True)
        ),
    )


def _values(row: Row) -> dict[str, Any]:
    """What may be shown of a row, by the names of the columns."""
    return {**row.case, **row.measured, **row.measured.get("latency_ms", {})}


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return _spread(name, value)
    if name in _MILLISECONDS:
        return _milliseconds(value)
    if name.endswith("_mib"):
        return f"{value:,.0f} MiB"
    if name.startswith("us_per_"):
        return f"{value:.3g} µs"
    if name == "negatives_share":
        return f"{value:.1%}"
    if name.endswith("_s"):
        return _seconds(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _spread(name: str, value: Mapping[str, Any]) -> str:
    """The median, and the extremes behind it."""
    is_number = name.endswith("_per_s") or name == "times_plain"
    write = compact if is_number else _seconds
    ends = " to ".join(write(value[end]) for end in ("min", "max"))
    return f"{write(value['median'])} ({ends})"


def _seconds(number: float) -> str:
    return f"{number:.3g} s" if number >= 0.1 else f"{1e3 * number:.3g} ms"


def _milliseconds(number: float) -> str:
    return f"{number:.3g} ms" if number < 1e3 else _seconds(1e-3 * number)
