"""Settings of preparing raw interactions.

Annotations are evaluated here: the command line inherits from these settings in other modules,
which do not have their names.
"""

import codecs
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from foretaste._util.formatting import shown
from foretaste._util.settings import Count, Seed, Threads, check_settings, wrong
from foretaste.errors import SettingError

Protocol = Literal["auto", "leave-one-out", "held-out-users", "temporal", "none"]
Validation = Literal["hold-out", "none"]
Filters = Literal["auto", "none", "reference"]
EngineName = Literal["duckdb", "spark"]
Quote = Literal["double", "none"]
IdType = Literal["auto", "integer", "text"]
TargetInCandidates = Literal["keep", "drop"]
UnseenTargets = Literal["auto", "keep", "drop"]
EmptyIds = Literal["refuse", "drop"]
WeightScale = Literal["linear", "log"]

Progress = Callable[[str], None]
"""Called with the name of each step of a preparation as it begins."""

SKIPPED = "-"
"""Stands in a list of column names for a column that nobody reads."""

_MAX_DELIMITER_BYTES = 4
_MEMORY_LIMIT = re.compile(r"([1-9][0-9]*(?:\.[0-9]+)?) ?([KMGT])(i?)B", re.IGNORECASE)
_LARGEST_MEMORY = 2**60
# Of a query the rows that it returns decide, and these have a checksum.
_NOT_CONTENT = frozenset({"engine", "spark_master", "memory_limit", "threads", "query"})
_OF_WEIGHTS = ("weight_column", "event_column", "events", "half_life", "weight_scale")
_HALF_LIFE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([hdw])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
MOST_WEIGHT = 1e9
"""Of a row: a time in milliseconds, taken for a weight, is more."""


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """Format of files of delimited text; checked by the settings it comes from."""

    delimiter: str | None = None
    """The text between fields; None where it is to be found out."""

    columns: tuple[str, ...] | None = None
    """The column names of files without a header line."""

    encoding: str = "utf-8"
    """Encoding of the characters."""

    quote: Quote = "double"
    """``double`` where a field may stand in double quotes."""

    query: str | None = None
    """The query that a database is asked; None for a whole table."""

    prefix: str = ""
    """The beginning of the names of the settings that these came from."""

    @property
    def is_default(self) -> bool:
        """True where nothing was given about text."""
        return self == FileFormat(prefix=self.prefix, query=self.query)

    def option(self, name: str) -> str:
        """The option of a setting, as a person would give it: ``--items-encoding``."""
        return f"--{self.prefix}{name}".replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class PairsConfig:
    """Settings of reading files of users and items: their columns, and how text is written."""

    user_column: str | None = None
    """Column of the user ids; common spellings are found without it."""

    item_column: str | None = None
    """Column of the item ids; common spellings are found without it."""

    delimiter: str | None = None
    """What separates the fields of text files, such as ``::`` or ``\\t`` for a tab. A comma, tab,
    semicolon, ``|`` or ``::`` is found without it."""

    columns: tuple[str, ...] | None = None
    """Column names of text files without a header line, in order and separated by commas:
    ``user_id,item_id,rating,timestamp``. A column named ``-`` is not read."""

    encoding: str = "utf-8"
    """How text files store characters, by any name of it: ``utf-8``, ``latin1``, ``cp1252``. A byte
    order mark is taken off."""

    quote: Quote = "double"
    """``double`` lets a field stand in double quotes, and then hold delimiters and line breaks;
    ``none`` takes quotes as they are. A delimiter of several characters always does that."""

    def __post_init__(self) -> None:
        check_settings(self)
        self._check_format("")

    @property
    def file_format(self) -> FileFormat:
        """The format of files of interactions."""
        return self._format("")

    def _check_format(self, prefix: str) -> None:
        setting = f"{prefix}encoding"
        if (encoding := getattr(self, setting)) is not None:
            object.__setattr__(self, setting, _encoding(setting, encoding))
        delimiter, columns = (getattr(self, prefix + name) for name in ("delimiter", "columns"))
        if delimiter is not None and (
            not 1 <= len(delimiter.encode()) <= _MAX_DELIMITER_BYTES
            or any(char in delimiter for char in '"\r\n')
        ):
            raise wrong(
                f"{prefix}delimiter",
                delimiter,
                f"one to {_MAX_DELIMITER_BYTES} bytes without quotes and line breaks, such as '::' "
                "or a tab",
            )
        if columns is None:
            return
        read = [column for column in columns if column != SKIPPED]
        if len(read) < 2 or len(set(read)) < len(read) or not all(read):
            raise wrong(
                f"{prefix}columns",
                ",".join(columns),
                "two or more different names with commas between them, such as user_id,item_id, or "
                f"{SKIPPED} for a column that is not read",
            )

    def _format(self, prefix: str) -> FileFormat:
        names = ("delimiter", "columns", "encoding", "quote")
        given = {name: getattr(self, prefix + name) for name in names}
        given["encoding"] = given["encoding"] or self.encoding
        if given["delimiter"] == r"\t":
            given["delimiter"] = "\t"
        return FileFormat(**given, prefix=prefix)


@dataclass(frozen=True, kw_only=True)
class InputConfig(PairsConfig):
    """Settings of reading raw files: their columns, and how text in them is written."""

    rating_column: str | None = None
    """Column of the ratings; common spellings are found without it. Read only for a rating rule."""

    time_column: str | None = None
    """Column of times (numbers or dates) or of each user's order, oldest first; common spellings
    are found without it."""

    user_id_type: IdType = "auto"
    """``integer`` refuses user ids that are none, ``text`` keeps digits as text. ``auto`` is
    integer where every one is written as an integer, else text."""

    item_id_type: IdType = "auto"
    """The same of item ids: ``text`` where letters are to be expected later."""

    time_format: str | None = None
    """How times that are text are written, as DuckDB's ``strptime`` has it: ``%d/%m/%Y %H:%M:%S``.
    Dates such as 2020-12-31 10:00:00 and numbers are read without it."""

    title_column: str | None = None
    """Column of the titles, in the file that describes items; common spellings are found without
    it."""

    query: str | None = None
    """The rows to read of a database (``sqlite:///FILE``, ``postgresql://...``): a SELECT. Without
    it the table ``events`` is read, or the only table there is."""

    items_delimiter: str | None = None
    """``delimiter`` of the file that describes items."""

    items_columns: tuple[str, ...] | None = None
    """``columns`` of the file that describes items, where it has no header line."""

    items_encoding: str | None = None
    """``encoding`` of the file that describes items; that of the interactions unless given."""

    items_quote: Quote = "double"
    """``quote`` of the file that describes items."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_format("items_")

    @property
    def file_format(self) -> FileFormat:
        return replace(super().file_format, query=self.query)

    @property
    def items_format(self) -> FileFormat:
        """The format of the file that describes items."""
        return self._format("items_")


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(InputConfig):
    """Settings of a preparation: the interactions to keep, and how to split them."""

    protocol: Protocol = "auto"
    """How interactions are split. ``leave-one-out`` holds out the last of each user,
    ``held-out-users`` keeps whole users out of training, ``temporal`` cuts at a moment in time,
    ``none`` trains on everything. ``auto`` is leave-one-out where there is a time column,
    held-out-users otherwise."""

    validation: Validation = "hold-out"
    """``hold-out`` keeps a validation part for choosing the best epoch; ``none`` gives it to
    training, so that the best epoch can only be chosen on the test part, as the reference does."""

    filters: Filters = "auto"
    """``reference`` keeps what the reference systems keep: ratings of 4 and more, then users with 5
    interactions, for held-out-users; users with 20 interactions otherwise. ``none`` keeps
    everything. ``auto`` is reference for the named sets, none for files."""

    min_user_interactions: Count | None = None
    """Keep users with at least this many rows, repeats counted. Goes before ``filters``."""

    min_item_users: Count | None = None
    """Keep items that at least this many users interacted with."""

    min_rating: float | None = None
    """Keep rows rated at least this high; needs a rating column. Goes before ``filters``."""

    weight_column: str | None = None
    """Column of the rows' weights, such as plays or hours, above 0: rows of a pair add up. Training
    alone heeds weights, and of the models ials, ease, itemknn and rp3beta."""

    event_column: str | None = None
    """Column of what happened, such as view or purchase; needs ``events``."""

    events: tuple[str, ...] | None = None
    """The events to keep, each with the weight of its rows where rows are to have some:
    ``purchase=4 cart=2 view=1``. Rows of others are left out, and counted."""

    half_life: str | None = None
    """Time in which a row's weight halves, in hours, days or weeks: ``12h``, ``90d``, ``8w``. Ages
    count from the latest training row."""

    weight_scale: WeightScale | None = None
    """Scale of the sum s of a pair's weights: ``linear`` is s, ``log`` is log2(1 + s), which leaves
    1 as it is. Alone it has every row weigh 1; linear where other settings give weights."""

    empty_ids: EmptyIds = "refuse"
    """Rows without a user or an item, such as purchases of guests: ``refuse`` names the first of
    them, ``drop`` leaves them out and counts them."""

    num_heldout_users: Count | None = None
    """Users held out for validation, and as many for test, under held-out-users; a tenth of the
    users each unless given."""

    unseen_targets: UnseenTargets = "auto"
    """Held-out items that training never saw, which no model can find: ``keep`` counts them as
    misses, ``drop`` leaves them out. ``auto`` is drop where ``filters`` is reference under
    held-out-users, as the reference does, keep otherwise. They are counted either way."""

    target_in_candidates: TargetInCandidates = "keep"
    """``drop`` takes users out of the test part whose own test item is among the candidates that
    came with it; ``keep`` ranks it against the others, as the NCF paper did. They are counted."""

    seed: Seed = 0
    """Decides by hash which users are held out, which of their items are targets, and ties in
    time."""

    engine: EngineName = "duckdb"
    """The engine that runs the steps: ``duckdb`` on this machine, ``spark`` on one or many
    (``pip install "pyspark>=4,<5"``, and Java 17). Never changes what the dataset holds."""

    spark_master: str | None = None
    """Master of the cluster, as Spark has it: ``yarn``, ``spark://host:7077``, ``local[4]``. That
    of Spark's own settings unless given, else all cores of this machine."""

    memory_limit: str | None = None
    """Memory the process may take before the preparation spills to disk, such as ``4GB``; half of
    the machine's or of what its container may take unless given, less where less is free. Never
    changes the result."""

    threads: Threads | None = None
    """Threads of the preparation; all cores unless given. Never changes the result."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.memory_limit is not None:
            memory_bytes(self.memory_limit)
        both = {"event_column": self.event_column, "events": self.events}
        given = {name: value for name, value in both.items() if value is not None}
        if len(given) == 1:
            ((name, value),) = given.items()
            (missing,) = both.keys() - given
            raise wrong(
                name,
                value,
                f"given with {missing}: --event-column event_type --events purchase cart",
            )
        _ = self.weight_of_event, self.half_life_s
        if self.spark_master is not None and self.engine != "spark":
            raise SettingError(
                f"spark_master is {shown(self.spark_master)}, and engine is {self.engine}; ask for "
                "--engine spark (engine='spark' in Python)"
            )
        if self.spark_master is not None and self.threads is not None:
            raise SettingError(
                f"threads is {self.threads}, and spark_master is {shown(self.spark_master)}; leave "
                f"one out: local[{self.threads}] are as many threads of this machine"
            )

    @property
    def weight_of_event(self) -> dict[str, float | None]:
        """The weight of each event that is kept; None where it has none."""
        allowed = (
            f"different names of events, each alone or with a weight above 0 and at most "
            f"{MOST_WEIGHT:,.0f}, such as purchase=4 cart=2"
        )
        if self.events == ():
            raise wrong("events", "", allowed)
        found: dict[str, float | None] = {}
        for text in self.events or ():
            name, equals, number = text.rpartition("=")
            try:
                weight = float(number) if equals else None
            except ValueError:
                weight = math.nan
            name = name if equals else text
            if not name or name in found or not (weight is None or 0 < weight <= MOST_WEIGHT):
                raise wrong("events", " ".join(self.events or ()), allowed)
            found[name] = weight
        return found

    @property
    def half_life_s(self) -> float | None:
        """``half_life`` in seconds."""
        if self.half_life is None:
            return None
        found = _HALF_LIFE.fullmatch(self.half_life)
        if found is None or not float(found[1]):
            raise wrong(
                "half_life", self.half_life, "a time in hours, days or weeks: 12h, 90d or 8w"
            )
        return float(found[1]) * _SECONDS[found[2]]

    @property
    def gives_weights(self) -> bool:
        """True where interactions have weights."""
        given = (self.weight_column, self.half_life, self.weight_scale)
        return given != (None, None, None) or any(self.weight_of_event.values())

    def content(self) -> dict[str, Any]:
        """The settings that decide what the dataset holds, as JSON has them; memory and threads do
        not."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        content = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in _NOT_CONTENT
        }
        for name in _OF_WEIGHTS:  # without them the place of a dataset is what it was before
            if content[name] is None:
                del content[name]
        return content


def _encoding(setting: str, name: str) -> str:
    """The one name of an encoding of text; SettingError where it is none."""
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # base64 and others are no encodings of text
    except (LookupError, ValueError):
        raise wrong(
            setting, name, "an encoding of text, such as utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return {"iso8859-1": "latin-1", "utf-8-sig": "utf-8"}.get(codec, codec)


def memory_bytes(memory_limit: str) -> float:
    """The bytes of a size such as 4GB or 500MiB; SettingError where it is none."""
    found = _MEMORY_LIMIT.fullmatch(memory_limit)
    allowed = "a size such as 500MB or 4GB"
    if found is None:
        raise wrong("memory_limit", memory_limit, allowed)
    number, unit, binary = found.groups()
    thousand = 1024.0 if binary else 1000.0
    num_bytes = float(number) * thousand ** (1 + "KMGT".index(unit.upper()))
    if num_bytes > _LARGEST_MEMORY:
        raise wrong("memory_limit", memory_limit, f"{allowed}, and at most 1EiB")
    return num_bytes
