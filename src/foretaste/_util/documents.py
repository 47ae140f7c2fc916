"""Types of JSON values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON value."""

Document = dict[str, Any]
"""A JSON object whose keys its readers know."""
