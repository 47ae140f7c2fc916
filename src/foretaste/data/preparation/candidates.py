"""Candidates given with the test part of a split: read, checked and numbered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.config import PairsConfig, PrepareConfig
from foretaste.data.preparation import steps
from foretaste.data.preparation.columns import check_columns, find_columns
from foretaste.data.preparation.reading import error_at, prefix_errors
from foretaste.data.sources import Opener, open_lines, open_sources
from foretaste.data.sources.source import READ_COMPRESSIONS, Source, sql_literal
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine
    from foretaste.data.preparation.plan import Plan

_NEGATIVE_SUFFIX = ".negative"
_LINE = "line"
_NCF_LINE = r"\(([^(),\t]+),([^(),\t]+)\)(\t[^\t]+)+\t?"


def open_candidates(
    source: object, config: PrepareConfig, items: Source | None, opener: Opener | None
) -> list[Source]:
    """Return files of (user, item) rows, or of the lines of a ``.negative`` file from the NCF
    paper. ``items`` may have the column of ``item_column``, see `find_columns`."""
    format = config.file_format
    if isinstance(source, str | Path):
        name = str(source).lower()
        for suffix in READ_COMPRESSIONS:
            name = name.removesuffix(suffix)
        if name.endswith(_NEGATIVE_SUFFIX):
            return [open_lines(Path(source), _LINE, format)]
    opened = open_sources(source, format, opener=opener)
    return [found.reading(find_columns(found, config, items=items).values()) for found in opened]


class Candidates:
    """The candidates of one preparation, in sources that `open_candidates` opened."""

    def __init__(self, engine: Engine, sources: Sequence[Source], plan: Plan) -> None:
        self._engine = engine
        self._sources = sources
        self._counts_of_lines: dict[str, int] = {}
        self._part = plan.targets["test"]
        self._number = plan.parts.index(self._part)

    def read(self, config: PairsConfig, items: Source | None) -> None:
        """Make table ``given_candidates`` of the (user, item) ids, as text.

        `open_candidates` explains ``items``. Raises InputError with file and line of an empty id,
        of a line that is not in the format of the NCF paper, and of a line without an interaction
        in the test part of ``raw``.
        """
        with prefix_errors(self._sources):
            self._sources = self._engine.register(self._sources)
            if list(self._sources[0].columns) == [_LINE]:
                self._read_lines()
                return
            selects = []
            for source in self._sources:
                names = find_columns(source, config, items=items)
                check_columns([source], names.values())
                texts = {
                    role: f"nullif(CAST({source.columns[name].sql} AS STRING), '')"
                    for role, name in names.items()
                }
                for role, text in texts.items():
                    found = self._engine.find_rows(source, f"{text} IS NULL", text)
                    if found.count:
                        raise error_at(found, names[role], f"{role} is empty")
                selects.append(
                    f"SELECT {texts['user_id']} AS user_text, {texts['item_id']} AS item_text "
                    f"FROM {source.relation}"
                )
            self._engine.make("given_candidates", "\nUNION ALL ".join(selects))

    def _read_lines(self) -> None:
        engine, source = self._engine, self._sources[0]
        line = source.columns[_LINE].sql
        engine.make("candidate_lines", steps.CANDIDATE_LINES.format(
            line=line, relation=source.relation, pattern=_NCF_LINE))  # fmt: skip
        for query, problem in (
            (
                "SELECT count(*), min(line) FROM candidate_lines WHERE user_text IS NULL",
                "is not (user,item) and item ids with tabs between them, as in the NCF paper's "
                "files",
            ),
            (
                steps.LINES_WITHOUT_TEST.format(number=self._number),
                "begins with an interaction that the test part does not have",
            ),
        ):
            count, example = engine.row(query)
            if count:
                found = engine.find_rows(source, f"{line} = {sql_literal(example)}", line)
                raise InputError(
                    f"{found.place}: {problem}: {short_repr(example)} ({pluralize(count, 'line')} "
                    "like it)"
                )
        num_repeated = engine.count(steps.LINES_OF_ONE_PAIR)
        self._counts_of_lines["num_test_candidate_lines_given_twice"] = num_repeated
        # Only DuckDB's spelling is needed: the other engine reads no text.
        fields = "unnest(string_split(trim(TRAILING chr(9) FROM line), chr(9))[2:])"
        engine.make("given_candidates", steps.CANDIDATES_OF_LINES.format(fields=fields))
        engine.drop("candidate_lines")

    def number(self, counts: dict[str, int], is_listed: str) -> None:
        """Make table ``candidates``: the test users' candidates without targets and unlisted items.

        Column ``is_listed`` keeps items from lists. Raises InputError if a test user has no
        candidate.
        """
        engine, part = self._engine, self._part
        engine.make(
            "candidates_of_users", steps.CANDIDATES_OF_USERS.format(part=part, is_listed=is_listed)
        )
        engine.make("candidates", steps.CANDIDATES.format(part=part))
        for name, rows in steps.COUNTS_OF_CANDIDATES.items():
            counts[name] = engine.count(rows.format(part=part))
        counts |= self._counts_of_lines
        count, user_id = engine.row(steps.USERS_WITHOUT_CANDIDATES.format(part=part))
        if count:
            raise InputError(
                f"{self._sources[0].name}: has no candidate of the catalogue for user "
                f"{short_repr(user_id)} of the test part ({pluralize(count, 'user')} like it); "
                "give candidates for all of them, or none at all"
            )
