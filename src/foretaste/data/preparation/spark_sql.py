"""SQL as Spark spells it: what the steps leave to the engine, and literals."""

from __future__ import annotations

import re

from foretaste.data.preparation.engine import Spellings

SPELLINGS = Spellings(
    wide_integer="DECIMAL(38, 0)",
    matches="regexp_like({text}, '^({pattern})\\z')",
    finds="regexp_like({text}, '{pattern}')",
    without="regexp_replace({text}, '{pattern}', '')",
    quotient="{value} div {divisor}",
    real="TRY_CAST({text} AS DOUBLE)",
    micros="unix_micros(CAST({value} AS TIMESTAMP))",
    # Spark has no type for them, and reads them as integers.
    nanos="{value}",
    # A time has a type here.
    text_micros="CAST(NULL AS BIGINT)",
    zoned_text_micros="CAST(NULL AS BIGINT)",
)

_LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")


def with_backslashes(sql: str) -> str:
    """Standard SQL for Spark, which takes a backslash in a literal for an escape."""

    def escaped(found: re.Match[str]) -> str:
        return found[0].replace("\\", "\\\\") if found[0].startswith("'") else found[0]

    return _LITERAL.sub(escaped, sql)
