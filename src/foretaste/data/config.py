"""Settings of preparing raw interactions.

Annotations are evaluated here: the command line inherits from these settings in other modules,
which do not have their names.
"""

import codecs
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from foretaste._util.documents import Document
from foretaste._util.formatting import short_repr
from foretaste._util.settings import Count, Seed, Threads, check_settings, setting_error
from foretaste.errors import SettingError

Protocol = Literal[
    "auto", "leave-one-out", "held-out-users", "temporal", "new-items", "unseen", "none"
]
Validation = Literal["hold-out", "none"]
Filters = Literal["auto", "none", "reference"]
EngineName = Literal["duckdb", "spark"]
Layout = Literal["pairs", "lists"]
Quote = Literal["double", "backslash", "none"]
IdType = Literal["auto", "integer", "text"]
EmptyIds = Literal["refuse", "drop"]
Order = Literal["rows"]
WeightScale = Literal["linear", "log"]

Progress = Callable[[str], None]
"""Callback that gets the name of each step of a preparation as the step begins."""

SKIPPED = "-"
"""The name, in a list of columns, of a column that is not read."""

_MAX_DELIMITER_BYTES = 4
_MEMORY_LIMIT = re.compile(r"([1-9][0-9]*(?:\.[0-9]+)?) ?([KMGT])(i?)B", re.IGNORECASE)
# A query is no content. Its rows are content, and they have a checksum.
_NOT_CONTENT = frozenset({"engine", "spark_master", "memory_limit", "threads", "query"})
_ABSENT_IF_NONE = (
    *("weight_column", "event_column", "events", "half_life", "weight_scale", "empty_values"),
    *("order", "features"),
)
_NOT_OF_LISTS = (
    *("delimiter", "columns", "quote", "user_column", "rating_column", "time_column"),
    *("time_format", "min_rating", "weight_column", "event_column", "half_life", "order"),
)
_HALF_LIFE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([hdw])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}
MOST_WEIGHT = 1e9
"""Largest weight of a row. A column of times in milliseconds is above it, so it is refused."""

_SEEN = "seen"
_ALLOWED_EVENTS = (
    f"different names of events, each alone or with a weight above 0 and at most "
    f"{MOST_WEIGHT:,.0f}, such as purchase=4 cart=2; dislike=seen leaves what somebody disliked "
    "out of training and of that person's lists"
)


@dataclass(frozen=True, kw_only=True)
class FileFormat:
    """Format of files of delimited text. `PairsConfig` checks its values."""

    delimiter: str | None = None
    """The text between fields; None if the first row decides."""

    columns: tuple[str, ...] | None = None
    """The column names of files without a header line."""

    encoding: str = "utf-8"
    """Encoding of the characters."""

    quote: Quote = "double"
    """How double quotes enclose a field; ``none`` if quotes are text."""

    layout: Layout = "pairs"
    """``lists`` if each line has a user and all of their items."""

    query: str | None = None
    """SQL query of a database; None for a whole table."""

    is_items: bool = False
    """True for a file of items without settings of its own. Its encoding is the byte order mark's,
    UTF-8 if the whole file is UTF-8, otherwise ``encoding``."""

    @property
    def is_default(self) -> bool:
        """True if no setting of text was given."""
        return self == FileFormat(query=self.query)


@dataclass(frozen=True, kw_only=True)
class PairsConfig:
    """Settings for reading files of users, items and times: the columns, and the text format."""

    user_column: str | None = None
    """Column of the user ids; common spellings are found without it."""

    item_column: str | None = None
    """Column of the item ids, in files of interactions, in a file of items, or in both; common
    spellings are found without it."""

    time_column: tuple[str, ...] | str | None = None
    """Column of times (numbers or dates) or of each user's order, oldest first; common spellings
    are found without it. Two names are a column of dates and a column of clocks: ``date clock``."""

    time_format: str | None = None
    """Format of times stored as text, in the letters of DuckDB's ``strptime``:
    ``%d/%m/%Y %H:%M:%S``. Numbers and dates such as 2020-12-31 10:00:00 need no format."""

    delimiter: str | None = None
    """Separator of the fields in text files, such as ``::`` or ``\\t`` for a tab. A comma, tab,
    semicolon, ``|`` or ``::`` is found without it."""

    columns: tuple[str, ...] | None = None
    """Column names of text files without a header line, in order and separated by commas:
    ``user_id,item_id,rating,timestamp``. A column named ``-`` is not read."""

    encoding: str = "utf-8"
    """Encoding of text files, by any of its names: ``utf-8``, ``latin1``, ``cp1252``. A byte order
    mark is removed. A file of items may also be UTF-8."""

    quote: Quote = "double"
    """How double quotes enclose fields with delimiters and line breaks. ``double`` reads ``""`` as
    a quote within the field, ``backslash`` reads ``\\"`` as a quote. ``none`` keeps quotes as
    text; delimiters of several characters imply ``none``."""

    layout: Layout = "pairs"
    """``lists`` reads lines of a user id and then item ids, oldest first, separated by blanks, tabs
    or commas."""

    def __post_init__(self) -> None:
        check_settings(self)
        object.__setattr__(self, "encoding", _encoding(self.encoding))
        if isinstance(self.time_column, tuple):
            if len(self.time_column) not in (1, 2):
                raise setting_error(
                    "time_column",
                    " ".join(self.time_column),
                    "a column of times, or a column of dates and a column of clocks",
                )
            if len(self.time_column) == 1:
                object.__setattr__(self, "time_column", self.time_column[0])
        if self.delimiter is not None and (
            not 1 <= len(self.delimiter.encode()) <= _MAX_DELIMITER_BYTES
            or any(char in self.delimiter for char in '"\r\n')
        ):
            raise setting_error(
                "delimiter",
                self.delimiter,
                f"one to {_MAX_DELIMITER_BYTES} bytes without quotes and line breaks, such as "
                "'::' or a tab",
            )
        if self.columns is None:
            return
        read = [column for column in self.columns if column != SKIPPED]
        if len(read) < 2 or len(set(read)) < len(read) or not all(read):
            raise setting_error(
                "columns",
                ",".join(self.columns),
                "two or more different names with commas between them, such as user_id,item_id, or "
                f"{SKIPPED} for a column that is not read",
            )

    @property
    def file_format(self) -> FileFormat:
        """The format of files of interactions."""
        delimiter = "\t" if self.delimiter == r"\t" else self.delimiter
        return FileFormat(
            delimiter=delimiter,
            columns=self.columns,
            encoding=self.encoding,
            quote=self.quote,
            layout=self.layout,
        )

    @property
    def items_format(self) -> FileFormat:
        """The format of a file of items, which shares ``encoding`` alone."""
        return FileFormat(encoding=self.encoding, is_items=True)


@dataclass(frozen=True, kw_only=True)
class InputConfig(PairsConfig):
    """Settings for reading raw files: their columns, and how their text is written."""

    rating_column: str | None = None
    """Column of the ratings; common spellings are found without it. It is read only for a rating
    rule."""

    user_id_type: IdType = "auto"
    """Type of user ids. ``integer`` refuses other ids, ``text`` keeps digits as text. ``auto`` is
    integer if every id is written as an integer, otherwise text."""

    item_id_type: IdType = "auto"
    """Type of item ids, like ``user_id_type``. Choose ``text`` if later ids may have letters."""

    title_column: str | None = None
    """Column of the titles, in the file that describes items; common spellings are found without
    it."""

    query: str | None = None
    """SELECT statement for the rows to read from a database (``sqlite:///FILE``,
    ``postgresql://...``). Without a query, table ``events`` is read, or the only table."""

    @property
    def file_format(self) -> FileFormat:
        return replace(super().file_format, query=self.query)


@dataclass(frozen=True, kw_only=True)
class PrepareConfig(InputConfig):
    """Settings of a preparation: the interactions to keep, and how to split them."""

    protocol: Protocol = "auto"
    """Split of the interactions. ``leave-one-out`` holds out each user's last interaction,
    ``held-out-users`` keeps whole users out of training, ``temporal`` cuts at a moment in time,
    ``new-items`` holds out the newest items with all of their interactions, and needs ``features``.
    ``unseen`` holds out what half of the people known to the run of ``like`` have done since.
    ``none`` trains on everything. ``auto`` is leave-one-out if there is a time column, otherwise
    held-out-users."""

    validation: Validation = "hold-out"
    """``hold-out`` keeps a validation part, which chooses the best epoch. ``none`` gives that part
    to training; then the test part chooses the epoch, as in the reference."""

    filters: Filters = "auto"
    """``reference`` applies the filters of the reference systems. Under held-out-users the filters
    keep ratings of 4 and more, then users with 5 interactions, and leave out held-out items that
    training never saw; under other protocols, users with 20 interactions. ``none`` keeps
    everything. ``auto`` is reference for the named sets, none for files."""

    min_user_interactions: Count | None = None
    """Keep users with at least this many rows, repeats counted. Overrides ``filters``."""

    min_item_users: Count | None = None
    """Keep items that at least this many users have."""

    min_rating: float | None = None
    """Keep rows rated at least this high; needs a rating column. Items that a user rated
    lower train nothing, and lists of that user leave them out. Overrides ``filters``."""

    weight_column: str | None = None
    """Column of weights above 0, such as plays or hours. The weights of a pair's rows are added.
    Only popularity, ials, ease, itemknn and rp3beta learn from weights."""

    event_column: str | None = None
    """Column of event types, such as view or purchase; needs ``events``."""

    events: tuple[str, ...] | None = None
    """Event types to keep, each with an optional weight: ``purchase=4 cart=2 view=1``. A type such
    as ``dislike=seen`` trains nothing, and lists leave its items out. Rows of other types are left
    out and counted."""

    half_life: str | None = None
    """Time in which a row's weight halves, in hours, days or weeks: ``12h``, ``90d``, ``8w``. Ages
    count from the latest training row, or from the last one before a gap of more than ten
    half-lives if at most one row in a thousand follows the gap."""

    weight_scale: WeightScale | None = None
    """Scale of the sum s of a pair's weights: ``linear`` is s, ``log`` is log2(1 + s), which keeps
    1 at 1. If no other setting gives weights, every row weighs 1; if one does, the default is
    linear."""

    empty_ids: EmptyIds = "refuse"
    """Rows without a user or an item, such as purchases of guests: ``refuse`` names the first of
    them, ``drop`` leaves them out and counts them."""

    empty_values: tuple[str, ...] | None = None
    """Texts that mean a missing id, such as ``NA`` and ``\\N``; their rows are left out too. Needs
    ``empty_ids`` drop."""

    order: Order | None = None
    """``rows`` orders each user's interactions by row, the newest last. It needs one file, frame or
    sorted query without times."""

    features: tuple[str, ...] | None = None
    """Columns of ``items`` as features for models, such as ``category brand``. A text column with
    several values ends in the sign between them: ``genres|``. Items without interactions join the
    lists if they have a value."""

    num_heldout_users: Count | None = None
    """Number of users held out for validation, and again for test, under held-out-users. Default:
    a tenth of the users for each."""

    seed: Seed = 0
    """Seed of the hashes that choose the held-out users, their target items, and the order of equal
    times."""

    engine: EngineName = "duckdb"
    """The engine that runs the steps: ``duckdb`` on this machine, ``spark`` on one or many
    (``pip install "pyspark>=4.3,<5"``, and Java 17). Both give the same dataset."""

    spark_master: str | None = None
    """Spark's master URL: ``yarn``, ``spark://host:7077``, ``local[4]``. Default: the master
    of Spark's own settings, otherwise all cores of this machine."""

    memory_limit: str | None = None
    """Memory of the process, such as ``4GB``; a preparation that needs more spills to disk.
    Default: half of the memory of the machine or container, or the free memory if that is less. The
    limit never changes the result."""

    threads: Threads | None = None
    """Threads of the preparation; all cores by default. They never change the result."""

    def __post_init__(self) -> None:
        events: object = self.events
        if isinstance(events, Mapping):
            form = [f"{event}={weight}" for event, weight in events.items()]
            raise setting_error("events", events, f"a list of text, such as {form}")
        super().__post_init__()
        if self.memory_limit is not None:
            memory_bytes(self.memory_limit)
        if (self.event_column is None) != (self.events is None):
            raise SettingError(
                "event_column and events need each other: --event-column event_type --events "
                "purchase cart"
            )
        _ = self.weight_of_event, self.half_life_s
        if self.features == ():
            raise setting_error("features", "", "one or more columns of the items file")
        self._check_layout()
        if self.empty_values is not None and self.empty_ids != "drop":
            raise SettingError(
                f"empty_values is {short_repr(' '.join(self.empty_values))}, which needs empty_ids "
                "drop: --empty-ids drop (empty_ids='drop' in Python)"
            )
        for name in ("time_column", "engine") if self.order == "rows" else ():
            if (value := getattr(self, name)) not in (None, "duckdb"):
                raise SettingError(
                    f"order is rows, and {name} is {short_repr(value)}, which has another order or "
                    "none; leave one out"
                )
        if self.spark_master is not None and self.engine != "spark":
            raise SettingError(
                f"spark_master is {short_repr(self.spark_master)}, and engine is {self.engine}; "
                "ask for --engine spark (engine='spark' in Python)"
            )
        if self.spark_master is not None and self.threads is not None:
            raise SettingError(
                f"threads is {self.threads}, and spark_master is {short_repr(self.spark_master)}; "
                f"leave one out: local[{self.threads}] are as many threads of this machine"
            )

    def _check_layout(self) -> None:
        """Raise SettingError for a setting that lists do not have."""
        given = {name: getattr(self, name) for name in _NOT_OF_LISTS}
        given = {name: value for name, value in given.items() if value != getattr(type(self), name)}
        if self.protocol == "temporal":
            given["protocol"] = self.protocol
        if self.layout == "lists" and given:
            name, value = next(iter(given.items()))
            raise SettingError(
                f"{name} is {short_repr(value)}, and layout lists has neither columns nor times; "
                "leave it out"
            )

    @property
    def weight_of_event(self) -> dict[str, float | None]:
        """The weight of each kept event type; None for a type without a weight."""
        return {name: weight for name, weight in self._events.items() if weight != 0}

    @property
    def seen_events(self) -> tuple[str, ...]:
        """The event types whose items lists leave out; their rows train nothing."""
        return tuple(name for name, weight in self._events.items() if weight == 0)

    @property
    def _events(self) -> dict[str, float | None]:
        """The weight of each event type; None for a type without a weight, 0 for a seen type."""
        found: dict[str, float | None] = {}
        for text in self.events or ():
            name, equals, said = text.rpartition("=")
            name, is_seen = name if equals else text, equals and said == _SEEN
            try:
                weight = float(0 if is_seen else said) if equals else None
            except ValueError:
                weight = math.nan
            is_weight = weight is None or is_seen or 0 < weight <= MOST_WEIGHT
            if not name or name in found or not is_weight:
                raise setting_error("events", text, _ALLOWED_EVENTS)
            found[name] = weight
        if self.events is not None and all(weight == 0 for weight in found.values()):
            raise setting_error("events", " ".join(self.events), _ALLOWED_EVENTS)
        return found

    @property
    def half_life_s(self) -> float | None:
        """``half_life`` in seconds."""
        if self.half_life is None:
            return None
        found = _HALF_LIFE.fullmatch(self.half_life)
        if found is None or not float(found[1]):
            raise setting_error(
                "half_life", self.half_life, "a time in hours, days or weeks: 12h, 90d or 8w"
            )
        return float(found[1]) * _SECONDS[found[2]]

    @property
    def gives_weights(self) -> bool:
        """True if interactions have weights."""
        given = (self.weight_column, self.half_life, self.weight_scale)
        return given != (None, None, None) or any(self.weight_of_event.values())

    def content(self) -> Document:
        """Return the settings that decide the content, as JSON: all but memory and threads."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        content = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if name not in _NOT_CONTENT
        }
        # The digest of these settings names the dataset's folder. Settings younger than the format
        # are left out if nobody gave them, so that a dataset keeps its format and its folder.
        for name in _ABSENT_IF_NONE:
            if content[name] is None:
                del content[name]
        if self.layout == "pairs":
            del content["layout"]
        return content


def _encoding(name: str) -> str:
    """Return the canonical name of a text encoding; SettingError if there is no such encoding."""
    try:
        codec = codecs.lookup(name).name
        "".encode(codec)  # base64 and others encode no text
    except (LookupError, ValueError):
        raise setting_error(
            "encoding", name, "an encoding of text, such as utf-8, latin-1, cp1252 or utf-16"
        ) from None
    return {"iso8859-1": "latin-1", "utf-8-sig": "utf-8"}.get(codec, codec)


def memory_bytes(memory_limit: str) -> float:
    """Return the number of bytes in a size such as 4GB or 500MiB; SettingError if it is no size."""
    found = _MEMORY_LIMIT.fullmatch(memory_limit)
    if found is None:
        raise setting_error("memory_limit", memory_limit, "a size such as 500MB or 4GB")
    number, unit, binary = found.groups()
    thousand = 1024.0 if binary else 1000.0
    return float(number) * thousand ** (1 + "KMGT".index(unit.upper()))


PREPARE_DEFAULTS = {
    item.name: getattr(PrepareConfig(), item.name) for item in fields(PrepareConfig)
}
"""The default of each setting of a preparation."""

# The types of ids and the columns of features are read from the files of a run or dataset.
_NOT_REPEATED = {
    *("protocol", "validation", "seed", "num_heldout_users", "features"),
    *("user_id_type", "item_id_type"),
}


def settings_to_repeat(content: Mapping[str, Any]) -> Document:
    """Return settings to repeat: all but the defaults, the split and the types of ids."""
    settings = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    return {
        name: value
        for name, value in settings.items()
        if name in PREPARE_DEFAULTS
        and name not in _NOT_REPEATED
        and value != PREPARE_DEFAULTS[name]
    }
