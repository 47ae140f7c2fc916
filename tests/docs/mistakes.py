"""How a documented mistake is made: what is there before, and what is asked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from foretaste._util.signed_json import signed_text

Change = Callable[[], object]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake, made in a shop of its own (`tests.docs.shop`)."""

    command: str = ""
    """The command line that is refused, without ``foretaste``."""
    python: str = ""
    """Or the statement that is; ``foretaste`` is imported."""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    """Written beforehand, by path."""
    change: Change | None = None
    """Done beforehand."""
    within: Callable[[], AbstractContextManager[object]] = nullcontext
    """The circumstances it is made in."""


HEADER = "user_id,item_id,rating,timestamp\n"
PAIRS = "user_id,item_id\n"
PREPARE = "prepare ratings.csv"


def rows(num_users: int = 40, num_items: int = 8) -> str:
    """Good rows: users from 1, items from 100 to 128, ratings from 1 to 5, times in order."""
    return "".join(
        f"{user},{(user * 3 + place * place) % 29 + 100},{1 + place % 5},{user * 10 + place}\n"
        for user in range(1, num_users + 1)
        for place in range(num_items)
    )


RATINGS = HEADER + rows()


def run(command: str, change: Change | None = None, **files: str | bytes) -> Mistake:
    """A command; a file's name has ``__`` for its dot."""
    named = {name.replace("__", "."): content for name, content in files.items()}
    return Mistake(command=command, change=change, files=named)


def csv(content: str | bytes, command: str = PREPARE) -> Mistake:
    """Preparing a file of this content."""
    return Mistake(command=command, files={"ratings.csv": content})


def row(text: str, command: str = PREPARE) -> Mistake:
    """Preparing a file whose second row is this."""
    return csv(f"{HEADER}1,100,3,4\n{text}\n", command)


def python(statement: str, change: Change | None = None) -> Mistake:
    return Mistake(python=statement, change=change)


def parquet(columns: Mapping[str, list[object]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def damage(name: str, share: float = 0.5) -> Change:
    """Change one byte of a file, this far into it: the middle one unless given."""

    def change() -> None:
        content = bytearray(Path(name).read_bytes())
        content[int(share * (len(content) - 1))] ^= 0x40
        Path(name).write_bytes(content)

    return change


def cut(name: str) -> Change:
    """Take the second half of a file away."""
    return lambda: Path(name).write_bytes(Path(name).read_bytes()[: Path(name).stat().st_size // 2])


def remove(name: str) -> Change:
    return lambda: Path(name).unlink()


def make_folder(name: str) -> Change:
    return lambda: Path(name).mkdir()


def edit_json(name: str, *keys: str, value: object, signed: bool = False) -> Change:
    """Replace one value of a JSON file, by the keys that lead to it; ``signed`` makes its digest
    anew."""

    def change() -> None:
        document = json.loads(Path(name).read_text())
        inner = document
        for key in keys[:-1]:
            inner = inner[key]
        inner[keys[-1]] = value
        unsigned = json.dumps(document, indent=2) + "\n"
        Path(name).write_text(signed_text(document, indent=2) if signed else unsigned)

    return change
