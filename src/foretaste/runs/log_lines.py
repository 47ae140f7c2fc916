"""Lines of ``metrics.jsonl``: the names that they may hold, and how each is signed.

The last key of a line is the sha256 of all text before it, and the one before names the digest of
the line before. So no line can be changed, taken out or moved without notice.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from foretaste._util.signed_json import SHA256, check_signed, signed_text

UNITS = {
    "event": "kind of event",
    "time": "ISO 8601, UTC",
    "epoch": "epochs, counted from 1",
    "step": "optimizer steps since the start",
    "num_epochs": "epochs",
    "num_warm_up_epochs": "epochs left out of minima, means and samples_per_s",
    "num_steps": "optimizer steps",
    "num_samples": "samples",
    "num_parameters": "parameters",
    "num_users": "users",
    "num_items": "items",
    "num_interactions": "interactions",
    "loss": "mean over samples (neumf, gmf, mlp) or users (vae, dae), nats",
    "evaluation": "protocol, candidates, counts and metrics of one evaluation",
    "beta": "weight of the KL term, 0 to 1",
    "loss_scale": "factor on the loss (fp16)",
    "num_skipped_steps": "optimizer steps left out since the start, gradients not finite (fp16)",
    "metrics": "by name@k: value with its 95 % interval (low, high), 0 to 1",
    "select_by": "name of the metric that chooses the epoch",
    "best_epoch": "epochs, counted from 1",
    "best_value": "of select_by, 0 to 1",
    "target_epoch": "first epoch that reached the target, counted from 1",
    "target_s": "seconds from the start to the evaluation that reached it, compiling included",
    "elapsed_s": "seconds",
    "train_s": "seconds",
    "compile_s": "seconds, before the first epoch",
    "samples_per_s": "samples per second",
    "started_from": "runs whose weights it began with, and users and items found there",
    "versions": "of what decides the numbers",
    "hardware": "that decides the numbers: name of the GPU, or number of CPU threads",
    "stopped_because": "why training ended",
    "min_epoch_s": "seconds",
    "avg_epoch_s": "seconds",
    "min_evaluation_s": "seconds, of an epoch's evaluation",
    "avg_evaluation_s": "seconds, of an epoch's evaluation",
    "evaluated_users_per_s": "users per second",
    "evaluated_samples_per_s": "(user, candidate) pairs per second",
    "selection_split": "held-out part that chose the epoch",
    "memory_mib": "MiB",
    "best_weights": "epoch and sha256 of the weights that best.safetensors has from now on",
    "previous": "first digits of the sha256 of the line before",
    "sha256": "of this line's text up to here",
}
"""Every name an event may carry at its top level, with its unit or meaning."""

PREVIOUS = "previous"
"""The key before the last: what the digest of the line before begins with, empty in the first."""

_NUM_DIGITS = 16


def first_line() -> str:
    """The line that declares names and units."""
    schema = {"event": "schema", "not finite": "null", "units": UNITS}
    return signed_text({**schema, PREVIOUS: ""})


def is_first_line(line: str) -> bool:
    """Whether a log begins with this line, of whatever version."""
    with suppress(ValueError):
        values = json.loads(line)
        return isinstance(values, dict) and values.get("event") == "schema"
    return False


def line_after(previous: str, event: str, **values: Any) -> str:
    """An event of the present time, as a log has it after the line that ``previous_of`` names."""
    undeclared = values.keys() - UNITS.keys()
    assert not undeclared, f"declare in UNITS first: {sorted(undeclared)}"
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return signed_text(_finite({"event": event, "time": time, **values, PREVIOUS: previous}))


def previous_of(line: str | bytes) -> str:
    """The name of a line in the one after it."""
    return str(json.loads(line)[SHA256])[:_NUM_DIGITS]


def event_of(line: str) -> dict[str, Any]:
    """The event of a line, without what signs it."""
    return _unsigned(json.loads(line))


def _unsigned(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (PREVIOUS, SHA256)}


def checked_line(content: bytes, previous: str) -> tuple[str, dict[str, Any]]:
    """A line and its event; ValueError says why it is none after the one named ``previous``."""
    try:
        line = content.decode()
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"is not a JSON object: {values!s:.80}")
    try:
        check_signed(line)
    except ValueError as error:
        raise ValueError(f"is torn or was changed: {error}") from error
    if values.get(PREVIOUS) != previous:
        raise ValueError("does not follow the line before it: lines were taken out or moved")
    return line, _unsigned(values)


def _finite(value: Any) -> Any:
    """The same JSON value with null for every number that JSON cannot write."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
