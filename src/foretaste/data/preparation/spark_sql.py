"""SQL as Spark spells it: what the steps leave to the engine, literals, and formats of times."""

from __future__ import annotations

import re

from foretaste._util.formatting import shown
from foretaste.data.preparation.engine import Spellings
from foretaste.errors import SettingError

_SPACES = "[ \t\r\n]*"
_NUMBER = f"{_SPACES}[-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?{_SPACES}"
# Times that Spark and DuckDB read alike; each reads some that the other does not.
_DATE = "-?[0-9]{4,6}[-/][0-9]{1,2}[-/][0-9]{1,2}"
_CLOCK = "[ T][0-9]{1,2}:[0-9]{1,2}(:[0-9]{1,2}([.][0-9]*)?)?"
_FULL_CLOCK = "[ T][0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.][0-9]*)?"
_OFFSET = "([-+][0-9]{2}(:?[0-9]{2}(:[0-9]{2})?)?|Z| UTC| GMT)"
_ZONE = "[A-Za-z_]+/[A-Za-z_/+-]*[0-9]*"

_DASHED = "regexp_replace({text}, '^(-?[0-9]+)/([0-9]+)/', '$1-$2-')"
_MOMENT = f"TRY_CAST({_DASHED} AS TIMESTAMP)"
_NAME_OF_ZONE = f"regexp_extract({{text}}, '{_ZONE}$', 0)"
# Of an hour that comes twice, as clocks go back, the later one, as in DuckDB.
_LATER = (
    f"CASE WHEN from_utc_timestamp({_MOMENT} + INTERVAL 1 HOUR, {_NAME_OF_ZONE}) "
    f"= from_utc_timestamp({_MOMENT}, {_NAME_OF_ZONE}) THEN 3600000000 ELSE 0 END"
)


def _where(pattern: str, value: str) -> str:
    """A template of a value of ``text`` where it matches a pattern."""
    braced = pattern.replace("{", "{{").replace("}", "}}")
    return f"WHEN regexp_like({{text}}, '^({braced})$') THEN {value}"


SPELLINGS = Spellings(
    wide_integer="DECIMAL(38, 0)",
    matches="regexp_like({text}, '^({pattern})\\z')",
    finds="regexp_like({text}, '{pattern}')",
    without="regexp_replace({text}, '{pattern}', '')",
    quotient="{value} div {divisor}",
    # Java reads 1d, 1f and 0x1p3 as numbers too, and orders -0 before 0.
    real=f"CASE {_where(_NUMBER, 'TRY_CAST({text} AS DOUBLE) + 0e0')} END",
    micros="unix_micros(CAST({value} AS TIMESTAMP))",
    # Spark has no type for them, and reads them as integers.
    nanos="{value}",
    text_micros=f"CASE {_where(f'{_DATE}({_CLOCK})? *', f'unix_micros({_MOMENT})')} END",
    zoned_text_micros=(
        f"CASE {_where(f'{_DATE}{_FULL_CLOCK}{_OFFSET}', f'unix_micros({_MOMENT})')} "
        f"{_where(f'{_DATE}{_FULL_CLOCK} {_ZONE}', f'unix_micros({_MOMENT}) + {_LATER}')} END"
    ),
    fields_after_first="explode(slice(split({line}, chr(9)), 2, 2147483647))",
)

_LITERAL = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"")

_DIRECTIVES = {
    "Y": "[0-9]{4}",
    **dict.fromkeys("mdHMS", "[0-9]{1,2}"),
    "f": "[0-9]{1,6}",
    "n": "[0-9]{1,9}",
    "z": "[-+][0-9]{2}(?::?[0-9]{2})?",
}


def with_backslashes(sql: str) -> str:
    """Standard SQL for Spark, which takes a backslash in a literal for an escape."""

    def escaped(found: re.Match[str]) -> str:
        return found[0].replace("\\", "\\\\") if found[0].startswith("'") else found[0]

    return _LITERAL.sub(escaped, sql)


def reformatted(text: str, format: str) -> str:
    """SQL of times in ``text``, written by a format of ``strptime``, as 2020-12-31 10:00:00.0.

    Raises SettingError where the format has a directive that is none of these.
    """
    pattern, found = "", dict.fromkeys("YmdHMSfnz", "")
    number = 0
    for literal, directive in re.findall(r"([^%]*)(%-?.|$)", format):
        pattern += re.escape(literal)
        letter = directive[-1:]
        if letter == "%":
            pattern += "%"
        elif letter in _DIRECTIVES and not found[letter]:
            number += 1
            pattern += f"({_DIRECTIVES[letter]})"
            found[letter] = f"${number}"
        elif directive:
            raise SettingError(
                f"time_format is {shown(format)}; engine spark reads %Y %m %d %H %M %S %f %n and "
                f"%z, each once, and {directive} is none of them; engine duckdb reads it"
            )
    if not found["Y"]:
        raise SettingError(f"time_format is {shown(format)}; engine spark needs the year, as %Y")
    date = f"{found['Y']}-{found['m'] or '01'}-{found['d'] or '01'}"
    clock = ":".join(found[letter] or "00" for letter in "HMS")
    decimals = found["f"] or found["n"] or "0"
    pattern = pattern.replace("'", "''")
    return (
        f"CASE WHEN regexp_like({text}, '^{pattern}$') "
        f"THEN regexp_replace({text}, '^{pattern}$', '{date} {clock}.{decimals}{found['z']}') END"
    )
