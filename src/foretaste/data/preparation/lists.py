"""The lines of files of lists: one line for each user of a part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.preparation.casts import EMPTY_IDS, literals
from foretaste.data.preparation.reading import prefix_errors
from foretaste.data.sources.lists import ListsFile
from foretaste.data.sources.source import Source, names_of
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_LINES = """
SELECT count(CASE WHEN num_lines > 1 THEN 1 END), min(CASE WHEN num_lines > 1 THEN user_id END),
       sum(num_empty)
FROM (
    SELECT user_id, count(*) AS num_lines, sum(CASE WHEN line = user_id THEN 1 END) AS num_empty
    FROM ({lines}) WHERE user_id NOT IN ({empty_ids}) GROUP BY part, user_id)
"""


def count_empty_lists(
    engine: Engine,
    sources: Sequence[Source],
    registered: Sequence[Source],
    empty_values: Sequence[str],
) -> int:
    """Return the number of users without items in ``sources``; the engine reads them as
    ``registered``. Raises InputError if two lines of a part have the same user. Empty ids and
    ``empty_values`` are no users."""
    with prefix_errors(sources):
        lines = "\nUNION ALL ".join(
            f"SELECT {source.part_number} AS part, user_id, line FROM {source.users}"
            for source in registered
            if source.users
        )
        empty_ids = literals([*EMPTY_IDS, *empty_values])
        sql = _LINES.format(lines=lines, empty_ids=empty_ids)
        count, user_id, num_empty = engine.row(sql)
    if count:
        places = " and ".join(_places_of(sources, user_id)) or names_of(sources)
        raise InputError(
            f"{places}: two lines begin with {short_repr(user_id)} ({pluralize(count, 'id')} like "
            "it); a "
            "line is a user id and then all items of that user. A file without user ids gets the "
            "numbers of its lines with awk '{print NR, $0}' FILE > NUMBERED"
        )
    return num_empty or 0


def _places_of(sources: Sequence[Source], user_id: str) -> list[str]:
    """Return the first two lines of this user in one part; none if Spark alone reads the files."""
    found: dict[int, list[str]] = {}
    for source in sources:
        for line, (first, *_) in source.lists() if isinstance(source, ListsFile) else ():
            if first == user_id:
                places = found.setdefault(source.part_number, [])
                places.append(f"{source.name}, line {line}")
                if len(places) == 2:
                    return places
    return []
