"""The columns of each role, in interactions and items: spellings and errors."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from foretaste._util.formatting import pluralize, short_repr, similar_names
from foretaste.data.config import InputConfig, PairsConfig
from foretaste.data.ids import group_by_form
from foretaste.data.preparation import steps
from foretaste.data.preparation.casts import cast, literals
from foretaste.data.preparation.notes import problems_of
from foretaste.data.preparation.reading import check_storage, prefix_errors
from foretaste.data.sources.arrow import Frame
from foretaste.data.sources.shape import hint_lists
from foretaste.data.sources.source import TIMES, Source, identifier, refuse_nul
from foretaste.data.sources.text import NO_DELIMITER, TextFile, rewrite_command, start_of_text
from foretaste.data.spellings import (
    EVENTS,
    KNOWN,
    OPTIONS,
    PAIR,
    STRENGTHS,
    TITLES,
    find_spelling,
    flag,
    plain,
)
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

# Columns of items with these names are left out.
_RESERVED = frozenset({"", "id", "item_id", "item_index", "described_id"})

_TIME_LIKE = re.compile(r"(?<![a-z])([Tt]ime|[Dd]ate)|[a-z](Time|Date)|_(at|on)$")

# A number, or a date such as 2020-12-31: seldom the name of a column.
_VALUE = re.compile(r"[-+]?\d[-+.:\dTZ ]*")


def find_columns(
    source: Source,
    config: PairsConfig,
    roles: Sequence[str] = PAIR,
    items: Source | None = None,
) -> dict[str, str]:
    """Return the columns of a source by role, for every role with a column.

    If ``item_column`` is a column of ``items`` alone, the spelling decides the source's own column.
    Raises InputError if users or items are not found, SettingError if settings give one column two
    roles.
    """
    columns = [*source.columns, *source.repeated]
    named = {role: name for role in roles if (name := getattr(config, OPTIONS[role])) is not None}
    if "clock" in roles:
        named["time"], named["clock"] = named["time"]
    if items is not None and named.get("item_id") in items.columns.keys() - set(columns):
        del named["item_id"]
    found = {role: name for role, name in named.items() if name in columns}
    # A column that a setting gives to one role is not guessed for another. Only a column of
    # weights may have the ratings too.
    taken = {name for role, name in found.items() if role != "weight"}
    free = [column for column in columns if column not in taken]
    for role in roles:
        if role not in named and (
            name := find_spelling(columns if role in PAIR else free, role, source.name)
        ):
            found[role] = name
    absent = {OPTIONS[role]: name for role, name in named.items() if role not in found}
    missing = [role for role in PAIR if role not in found and role not in named]
    if absent or missing:
        looks_for_time = "time" in roles and "time" not in found | named
        error = InputError(
            _missing_columns_error(source, absent, missing, looks_for_time=looks_for_time)
        )
        if type(source) is TextFile and KNOWN.isdisjoint(map(plain, columns)):
            error = hint_lists(error, source.path, start_of_text(source.path, source.format))
        raise error
    _refuse_repeated(source, found.values())
    by_column: dict[str, str] = {}
    for role in roles:
        if role == "weight" and found[role] == found.get("rating"):
            continue
        if role in found and by_column.setdefault(found[role], role) != role:
            raise SettingError(
                f"{OPTIONS[by_column[found[role]]]} and {OPTIONS[role]} are both "
                f"{short_repr(found[role])}; they must be different columns"
            )
    return {role: found[role] for role in roles if role in found}


def check_time_format(config: PairsConfig, columns: Mapping[str, str]) -> None:
    """Raise SettingError for a format of times without a column of times."""
    if config.time_format is not None and "time" not in columns:
        raise SettingError(
            f"time_format is {short_repr(config.time_format)}, and there is no time column; name "
            "one with --time-column (time_column=... in Python), or leave it out"
        )


def check_columns(sources: Sequence[Source], needed: Iterable[str]) -> None:
    """Raise InputError if a source lacks a column of the first source, or repeats its name."""
    names = list(needed)
    for source in sources:
        _refuse_repeated(source, names)
        if absent := [short_repr(name) for name in names if name not in source.columns]:
            raise InputError(
                f"{source.name}: has no column {', nor '.join(absent)}, which {sources[0].name} "
                f"has; its columns are {_join_names(list(source.columns))}"
            )


def _refuse_repeated(source: Source, names: Iterable[str]) -> None:
    """Raise InputError if several columns of a source share one of these names."""
    if twice := sorted({*names} & {*source.repeated}):
        raise InputError(
            f"{source.name}: column {short_repr(twice[0])} appears more than once; rename one of "
            "them"
        )


def describe_unused(
    columns: Iterable[str],
    used: Collection[str],
    items: ItemDescriptions | None = None,
    *,
    has_weights: bool = False,
    matrix: Any = None,
) -> dict[str, str]:
    """Return notes on the columns that are not read; empty if all are read. The column of titles
    counts as read if ``items`` reads it. ``matrix`` is the SciPy matrix behind the columns, if
    any."""
    read = {*used, None if items is None else items.title}
    unused = list(dict.fromkeys(name for name in columns if name not in read))
    if not unused:
        return {}
    if matrix is not None:
        advice = (
            'values other than 1; every entry counts as one (weight_column="rating" takes the '
            'values for weights, rating_column="rating" with min_rating leaves low ones out)'
        )
        return {} if has_weights or (matrix.tocoo().data == 1).all() else {"not used": advice}
    reason = ""
    if not has_weights and not STRENGTHS.isdisjoint(map(plain, unused)):
        reason = (
            "; every row counts as one (--weight-column takes ratings or counts for weights, "
            "--rating-column with --min-rating leaves low ones out)"
        )
    if events := [name for name in unused if plain(name) in EVENTS]:
        reason += f"; --events with --event-column {shlex.quote(events[0])} takes some of its kinds"
    titles = [name for name in unused if plain(name) in TITLES]
    if titles and items is None:
        reason += f"; --items with this file takes titles from {short_repr(titles[0])}"
    return {"not used": _abbreviate(unused) + reason}


def find_time_like(source: Source) -> str | None:
    """Return the first column that looks like times by its type or name; None if there is none."""
    for name, column in source.columns.items():
        if column.storage in TIMES or _TIME_LIKE.search(name):
            return name
    return None


def is_rank(name: str) -> bool:
    """Return whether a column of times is a rank, by its name: an order within one user."""
    return plain(name).endswith("rank")


class ItemDescriptions:
    """A source that describes items: the columns of their ids, titles, and others.

    Raises InputError if no column of item ids is found, SettingError if ``title_column`` is that
    column.
    """

    def __init__(self, source: Source, config: InputConfig) -> None:
        self.source = self.registered = source
        columns = [*source.columns, *source.repeated]
        # foretaste serve has no --item-column, so the advice to rename comes first.
        named = f"name it with {flag('item_column')}"
        advice = f"rename one, or {named}"
        key = (
            config.item_column
            if config.item_column in columns
            else find_spelling(columns, "item_id", source.name, advice)
        )
        # In a file of items these columns have the item's id; in interactions a code may mean
        # anything.
        key = key or next((name for name in ("id", "code") if name in columns), None)
        if key is None:
            none = _explain_missing_role(columns, "item_id", source.name)
            taken = config.item_column  # by the interactions
            others = f", or {named}" if taken is None else f" or {short_repr(taken)}"
            raise InputError(
                f"{none}. Rename the column of the ids to item_id{others}.{_header_hint(source)}"
            )
        self.key = key
        if config.title_column == self.key:
            raise SettingError(
                f"title_column is {short_repr(self.key)}, which is the column of the item ids"
            )
        self._others = [name for name in columns if name != self.key]
        self._repeats: list[str] = []
        self._has_several_titles = False
        self._columns: list[str] = []
        self.title = config.title_column
        """The column of the titles; None without titles."""
        if self.title is None:
            advice = f"say which with {flag('title_column')}"
            self.title = find_spelling(self._others, "title", source.name, advice)
        elif self.title not in self._others:
            raise InputError(has_no_column(source, {"title_column": self.title}))
        check_columns([source], filter(None, (self.key, self.title)))
        self._others = [name for name in self._others if name in source.columns]
        refuse_nul(self._others, source.name)

    def read(self, engine: Engine) -> list[str]:
        """Make table ``described`` of the columns, as text; returns their names in a query.

        The column of titles is called ``title``. If ids repeat, as in an export of orders, an item
        gets the title of most of its rows, and another column is kept if it has one value per item.
        """
        taken = _RESERVED if self.title is None else _RESERVED | {"title"}
        names: dict[str, str] = {}
        by_lower: dict[str, str] = {}
        for name in self._others:
            if name == self.title:
                names[name] = identifier("title")
            elif name.lower() not in taken:
                if (other := by_lower.setdefault(name.lower(), name)) != name:
                    raise InputError(
                        f"{self.source.name}: columns {short_repr(other)} and {short_repr(name)} "
                        "differ in case alone, and a condition of a rule means either; rename one"
                    )
                names[name] = identifier(name)
        with prefix_errors([self.source]):
            (source,) = engine.register([self.source])
        self.registered = source
        columns = source.columns
        texts = {"described_id": cast(engine.sql, columns[self.key], "text")}
        texts |= {sql: f"CAST({columns[name].sql} AS STRING)" for name, sql in names.items()}
        selected = ", ".join(f"{text} AS {sql}" for sql, text in texts.items())
        with prefix_errors([self.source]):
            check_storage(engine, [source], {"item_id": self.key})
            engine.make("described", f"SELECT {selected} FROM {source.relation}")
        if engine.count(
            "(SELECT described_id FROM described WHERE described_id IS NOT NULL "
            "GROUP BY described_id HAVING count(*) > 1)"
        ):
            names = self._merge_repeats(engine, names)
        self._columns = list(names.values())
        return [f"described.{sql}" for sql in self._columns]

    def describe_ids(self, engine: Engine) -> dict[str, str]:
        """Return notes on ids of the source that another program changed."""
        ids = "SELECT described_id AS id, 1 AS num_rows FROM described"
        problems = problems_of(engine, f"({ids} WHERE described_id IS NOT NULL)")
        return {f"ids of {Path(self.source.name).name}": "; ".join(problems)} if problems else {}

    def match_forms(self, engine: Engine) -> list[tuple[str, str]]:
        """Describe also the items whose id has another Unicode form in the source, if only one of
        the source's ids has that form; returns each id with the source's spelling."""
        is_ascii = engine.sql.matches.format(text="{id}", pattern=r"[\x00-\x7F]*")
        unmatched = engine.run(
            f"SELECT item_id FROM items{steps.DESCRIBED} "
            f"WHERE described_id IS NULL AND NOT {is_ascii.format(id='CAST(item_id AS STRING)')}"
        )
        if not unmatched:
            return []
        is_other = f"described_id IS NOT NULL AND NOT {is_ascii.format(id='described_id')}"
        others = engine.run(f"SELECT described_id FROM described WHERE {is_other}")
        spellings = group_by_form(found for (found,) in others)
        ids = [
            (str(item_id), spelled[0])
            for (item_id,) in unmatched
            if len(spelled := spellings.get(normalize("NFC", item_id), [])) == 1
        ]
        if not ids:
            return []
        respell(engine, "described", self._columns, ids)
        return ids

    def _merge_repeats(self, engine: Engine, names: dict[str, str]) -> dict[str, str]:
        """Reduce ``described`` to one row per id; returns the kept columns."""
        engine.rename("described", "repeated")
        repeated = "FROM repeated WHERE described_id IS NOT NULL GROUP BY described_id"
        ranges = "".join(f", min({sql}) <> max({sql}) AS {sql}" for sql in names.values())
        differing = "".join(f", bool_or({sql})" for sql in names.values())
        _, *found = engine.row(f"SELECT count(*){differing} FROM (SELECT 1{ranges} {repeated})")
        differs = dict(zip(names, found, strict=True))
        own = {name: sql for name, sql in names.items() if name == self.title}
        own |= {name: sql for name, sql in names.items() if not differs[name]}
        selected = "".join(f", max({sql}) AS {sql}" for n, sql in own.items() if n != self.title)
        rows = f"(SELECT described_id{selected} {repeated})"
        if self.title is None:
            engine.make("described", f"SELECT * FROM {rows}")
        else:
            # The most common title is taken, not the first: exports have typing errors, and these
            # rows have no order.
            title = names[self.title]
            engine.make(
                "described",
                f"SELECT * FROM {rows} LEFT JOIN (SELECT described_id, {title} FROM ("
                f"SELECT described_id, {title}, row_number() OVER (PARTITION BY described_id "
                f"ORDER BY count(*) DESC, {title}) AS nth FROM repeated "
                f"WHERE {title} <> '' GROUP BY described_id, {title}) WHERE nth = 1) "
                "USING (described_id)",
            )
            if differs[self.title]:
                several = f"SELECT described_id {repeated} HAVING count(DISTINCT {title}) > 1"
                engine.make("several_titles", several)
                self._has_several_titles = True
        engine.drop("repeated")
        if left_out := [name for name in names if name not in own]:
            self._repeats.append(
                f"not kept, because they differ within an item: {_abbreviate(left_out)}"
            )
        return own

    def check_used(self, engine: Engine) -> None:
        """Raise InputError if none of the kept items is described."""
        num_found, kept = engine.row(
            f"SELECT count(described_id), min(CAST(item_id AS STRING)) FROM items{steps.DESCRIBED}"
        )
        if num_found == 0:
            (found,) = engine.row("SELECT min(described_id) FROM described")
            raise InputError(
                f"{self.source.name}: describes none of the kept items: its ids are such as "
                f"{short_repr(found)}, the items' ids such as {short_repr(kept)}; give the file of "
                "these items, or leave it out"
            )

    def describe_titles(self, engine: Engine) -> str:
        """Return a note on the column of the titles, with the number of items with a title."""
        # The note omits the file's folder, which differs from machine to machine.
        file = Path(self.source.name).name
        if self.title is None:
            if not self._others:
                return f"none, because {file} has no column but the ids"
            none = (
                f"none, because no column of {file} looks like a title: "
                f"{_abbreviate(self._others)} (--title-column names one)"
            )
            return "; ".join([none, *self._repeats])
        num_titled, num_items = engine.row(
            f"SELECT count(nullif(described.title, '')), count(*) FROM items{steps.DESCRIBED}"
        )
        items = pluralize(num_items, "item")
        notes = [f"{short_repr(self.title)} of {file}, for {num_titled:,} of {items}"]
        if self._has_several_titles and (num_several := engine.count(steps.SEVERAL_TITLES)):
            notes.append(f"the most common of several for {pluralize(num_several, 'item')}")
        return "; ".join([*notes, *self._repeats])


def respell(
    engine: Engine, table: str, columns: Sequence[str], ids: Sequence[tuple[str, str]]
) -> None:
    """Repeat the rows of each ``described_id`` in a table for an item that spells the id in another
    Unicode form. ``ids`` has the item's spelling, then the table's spelling."""
    engine.rename(table, "spelled")
    pairs = ", ".join(f"({literals(pair)})" for pair in ids)
    engine.make(
        table,
        f"SELECT {', '.join(['described_id', *columns])} FROM spelled UNION ALL "
        f"SELECT {', '.join(['item_text AS described_id', *columns])} FROM spelled "
        f"JOIN (VALUES {pairs}) AS pairs(item_text, described_id) USING (described_id)",
    )
    engine.drop("spelled")


def spellings_of_filtered(engine: Engine) -> list[str]:
    """Return the described ids that spell an undescribed, filtered id in another Unicode form."""
    is_ascii = engine.sql.matches.format(text="described_id", pattern=r"[\x00-\x7F]*")
    lacking, others = (
        engine.run(
            f"SELECT described_id FROM {one} ANTI JOIN {other} USING (described_id) "
            f"WHERE NOT {is_ascii}"
        )
        for one, other in (("known_items", "described"), ("described", "known_items"))
    )
    forms = {normalize("NFC", item_id) for (item_id,) in lacking}
    return [spelled for (spelled,) in others if normalize("NFC", spelled) in forms]


def _missing_columns_error(
    source: Source, absent: Mapping[str, str], missing: Sequence[str], *, looks_for_time: bool
) -> str:
    """Return the message about all missing columns. With one message for each column, a user with a
    table in another language would have to try again and again."""
    hint = _header_hint(source) + _index_hint(source)
    if not missing:
        return has_no_column(source, absent, hint)
    roles, flags = " or ".join(missing), flag(*(OPTIONS[role] for role in missing))
    advice = f"{'Name it' if len(missing) == 1 else 'Name them'} with {flags}"
    if looks_for_time:
        advice += ", and a column of times, if there is one, with --time-column"
    if absent:
        return f"{has_no_column(source, absent, hint)} None looks like {roles} either. {advice}."
    return f"{_explain_missing_role(_names(source), roles, source.name)}. {advice}.{hint}"


def has_no_column(source: Source, absent: Mapping[str, str], hint: str = "") -> str:
    """Return the message about columns that options name and a source lacks."""
    columns = _names(source)
    asked = ", nor ".join(
        f"{short_repr(name)}, asked for with {flag(option)}" for option, name in absent.items()
    )
    message = f"{source.name}: has no column {asked}; its columns are {_join_names(columns)}"
    meant = [match for name in absent.values() for match in similar_names(name, columns)]
    if meant:
        return f"{message}; did you mean {' and '.join(map(short_repr, meant))}?"
    return f"{message}.{hint}"


def _names(source: Source) -> list[str]:
    """Return the names of a source's columns, also names that several columns share."""
    return [*source.columns, *filter(None, source.repeated)]


def _explain_missing_role(columns: Sequence[str], role: str, where: str) -> str:
    return f"{where}: none of its columns looks like {role}: {_join_names(columns)}"


def _header_hint(source: Source) -> str:
    """Return a hint that the first line may be values, because it resembles no header."""
    if not isinstance(source, TextFile) or source.format.columns is not None:
        return ""
    _, second = next(source.rows(), (0, []))
    has_no_name = KNOWN.isdisjoint(map(plain, source.names))
    is_like_second = has_no_name and not any(map(_VALUE.match, second))
    if not any(map(_VALUE.fullmatch, source.names)) and not is_like_second:
        return ""
    if source.format.is_items:
        anew = rewrite_command(source.path, source.format, source.delimiter, has_header=False)
        return f" The first line may be data: {anew}"
    has_none = len(source.columns) == 1 and source.format.delimiter is None
    return (
        " The first line may be data: if the file has no line of column names, give them with "
        f"{flag('columns')}, in order, such as user_id,item_id,rating,timestamp."
        f"{f' It {NO_DELIMITER}.' if has_none else ''}"
    )


def _index_hint(source: Source) -> str:
    """Return a sentence on the named index of a frame, which is not read."""
    if not isinstance(source, Frame) or not source.index_names:
        return ""
    names = _join_names(source.index_names)
    return f" Its index has {names}: frame.reset_index() makes columns of it."


def _join_names(names: Sequence[str], most: int = 20) -> str:
    """Return names; if there are many, the first names and the number of the others."""
    if len(names) <= most + 1:  # the last name takes no more room than "and 1 more"
        return ", ".join(map(short_repr, names))
    return f"{', '.join(map(short_repr, names[:most]))} and {len(names) - most} more"


def _abbreviate(names: Sequence[str]) -> str:
    """Return names for a line of a summary."""
    return _join_names(names, 5)
