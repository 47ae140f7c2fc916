"""Candidates that came with the data: what each test user's held-out items are ranked against."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretaste._util.formatting import shown
from foretaste.data import steps
from foretaste.data.bad_values import like_it
from foretaste.data.columns import find_pair
from foretaste.data.config import FileFormat, PrepareConfig
from foretaste.data.engine import Engine
from foretaste.data.plan import Plan
from foretaste.data.reading import naming
from foretaste.data.refused import READ_COMPRESSIONS
from foretaste.data.scans import Scan
from foretaste.data.sources import open_scans, scan_lines
from foretaste.errors import InputError

PART = "test_candidates"
"""The part of the dataset that holds them."""

_NCF_SUFFIX = ".negative"
_LINE = "line"
_NCF_LINE = r"\(([^(),\t]+),([^(),\t]+)\)(\t[^\t]+)+\t?"


def open_candidates(source: Any, format: FileFormat) -> list[Scan]:
    """Scans of (user, item) rows, or of the lines of a ``.negative`` file of the NCF paper."""
    if isinstance(source, str | Path):
        name = str(source).lower()
        for suffix in READ_COMPRESSIONS:
            name = name.removesuffix(suffix)
        if name.endswith(_NCF_SUFFIX):
            return [scan_lines(Path(source), _LINE, format)]
    return open_scans(source, format)


def read_candidates(
    engine: Engine, scans: Sequence[Scan], plan: Plan, config: PrepareConfig
) -> None:
    """Make ``given_candidates`` of the (user, item) ids in these scans, as text.

    Raises InputError naming file and line of an id that is empty, or of a line that is not as in
    the NCF paper or belongs to no interaction of the test part in ``raw``.
    """
    with naming(scans):
        for scan in scans:
            engine.know(scan)
        if list(scans[0].columns) == [_LINE]:
            _read_lines(engine, scans[0], plan)
        else:
            _read_rows(engine, scans, config)


def judge_contradicted(
    engine: Engine, previous: str, plan: Plan, config: PrepareConfig, counts: dict[str, int]
) -> str:
    """Count test users one of whose own test items is among their candidates, and take them out
    of the test part if that is asked for; the name of the table with what is left."""
    place = _test_place(plan)
    engine.make("contradicted", steps.CONTRADICTED.format(previous=previous, place=place))
    counts["num_test_users_with_target_among_candidates"] = engine.count("contradicted")
    if config.target_in_candidates == "keep":
        return previous
    engine.make("uncontradicted", steps.UNCONTRADICTED.format(previous=previous, place=place))
    dropped = engine.count(previous) - engine.count("uncontradicted")
    counts["num_test_rows_of_these_users_dropped"] = dropped
    engine.drop(previous)
    return "uncontradicted"


def number_candidates(
    engine: Engine, scans: Sequence[Scan], plan: Plan, counts: dict[str, int]
) -> None:
    """Make ``candidates`` of the test users' candidates in the catalogue, their targets aside.

    Raises InputError where a test user has none.
    """
    part = plan.parts[_test_place(plan)]
    engine.make("candidates_of_users", steps.CANDIDATES_OF_USERS.format(part=part))
    engine.make("candidates", steps.CANDIDATES.format(part=part))
    counts["num_test_candidates"] = engine.count("candidates")
    counts["num_test_candidates_unseen_in_training"] = engine.count(
        "candidates_of_users WHERE item_code IS NULL"
    )
    count, user_id = engine.row(steps.USERS_WITHOUT_CANDIDATES.format(part=part))
    if count:
        raise InputError(
            f"{scans[0].name}: has no candidate of the catalogue for user {shown(user_id)} of the "
            f"test part ({like_it(count, 'user')}); give candidates for all of them, or none at all"
        )


def _test_place(plan: Plan) -> int:
    return plan.parts.index("test_target" if "test_target" in plan.parts else "test")


def _read_lines(engine: Engine, scan: Scan, plan: Plan) -> None:
    line = scan.columns[_LINE].sql
    engine.make("candidate_lines", steps.CANDIDATE_LINES.format(
        line=line, relation=scan.relation, pattern=_NCF_LINE))  # fmt: skip
    count, example = engine.row(
        "SELECT count(*), min(line) FROM candidate_lines WHERE user_text IS NULL"
    )
    if count:
        raise InputError(
            f"{scan.locate(_LINE, example)}: is not (user,item) and item ids with tabs between "
            f"them, as in the NCF paper's files: {shown(example)} ({like_it(count, 'line')})"
        )
    count, example = engine.row(steps.LINES_WITHOUT_TEST.format(place=_test_place(plan)))
    if count:
        raise InputError(
            f"{scan.locate(_LINE, example)}: begins with an interaction that the test part does "
            f"not have: {shown(example)} ({like_it(count, 'line')})"
        )
    engine.make("given_candidates", steps.CANDIDATES_OF_LINES)
    engine.drop("candidate_lines")


def _read_rows(engine: Engine, scans: Sequence[Scan], config: PrepareConfig) -> None:
    selects = []
    for scan in scans:
        names = find_pair(list(scan.columns), config, scan.name, scan.header)
        texts = {
            role: f"nullif(CAST({scan.columns[name].sql} AS VARCHAR), '')"
            for role, name in names.items()
        }
        for role, text in texts.items():
            count = engine.count(f"{scan.relation} WHERE {text} IS NULL")
            if count:
                where = scan.locate(names[role], None)
                raise InputError(
                    f"{where}: {role} is empty (column {shown(names[role])}, "
                    f"{like_it(count, 'row')})"
                )
        selects.append(
            f"SELECT {texts['user_id']} AS user_text, {texts['item_id']} AS item_text "
            f"FROM {scan.relation}"
        )
    engine.make("given_candidates", "\nUNION ALL ".join(selects))
