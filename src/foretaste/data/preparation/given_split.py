"""Splits that were made elsewhere: their parts, the candidates that came with them, and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretaste._util.formatting import shown
from foretaste.data.config import FileFormat, PrepareConfig
from foretaste.data.preparation import steps
from foretaste.data.preparation.columns import find_columns
from foretaste.data.preparation.reading import like_it, naming
from foretaste.data.sources import open_lines, open_sources
from foretaste.data.sources.source import READ_COMPRESSIONS, Source
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine
    from foretaste.data.preparation.plan import Plan

_NCF_TRAIN, _NCF_TEST, _NCF_NEGATIVE = ".train.rating", ".test.rating", ".test.negative"
_NEGATIVE_SUFFIX = ".negative"
_LINE = "line"
_NCF_LINE = r"\(([^(),\t]+),([^(),\t]+)\)(\t[^\t]+)+\t?"
_SPLITS = ("validation", "test")


@dataclass(frozen=True, kw_only=True, eq=False)
class GivenSplit:
    """The parts of a split that was made elsewhere, to be prepared as they are.

    Each part is whatever `prepare` takes as its source; columns are found by name, and times are
    not looked at. The catalogue is the items of ``train``. A pair that is in several parts belongs
    to the first of them, in the order below. Users whom training never sees are answered from their
    fold-in items, or without any history where there are none. Protocol ``none`` trains on every
    part.
    """

    train: Any
    """Interactions to learn from."""

    validation_fold_in: Any = None
    """Known interactions of validation users who are in no other part."""

    validation: Any = None
    """Interactions to choose the best epoch by."""

    test_fold_in: Any = None
    """Known interactions of test users who are in no other part."""

    test: Any = None
    """Interactions to evaluate on."""

    test_candidates: Any = None
    """The items that each test user's are ranked against under candidates ``fixed``: a file or
    frame of (user, item) rows, or a ``.negative`` file of the NCF paper."""

    def __post_init__(self) -> None:
        if self.train is None:
            raise SettingError(
                f"a split that was made elsewhere needs its training part: {_flag('train')}"
            )
        if self.validation is None and self.test is None:
            raise SettingError(
                "a split that was made elsewhere needs a held-out part beside the training part: "
                f"{_flag('test')} or {_flag('validation')}; to train on everything, prepare it as "
                "one source with protocol none"
            )
        for part, needed in (
            ("validation_fold_in", "validation"),
            ("test_fold_in", "test"),
            ("test_candidates", "test"),
        ):
            if getattr(self, part) is not None and getattr(self, needed) is None:
                raise SettingError(
                    f"{_flag(part)} is given without the items to be found, {_flag(needed)}"
                )

    def parts(self) -> dict[str, Any]:
        """The source of each part, by the name it has in the dataset; training first."""
        found = {"train": self.train}
        for split in _SPLITS:
            fold_in, target = getattr(self, f"{split}_fold_in"), getattr(self, split)
            if fold_in is not None:
                found |= {f"{split}_fold_in": fold_in, f"{split}_target": target}
            elif target is not None:
                found[split] = target
        return found


def _flag(part: str) -> str:
    return f"--{part.replace('_', '-')} (GivenSplit({part}=...) in Python)"


def as_given_split(source: Any) -> GivenSplit | None:
    """The split that ``source`` is; None where it is to be split yet.

    ``X.train.rating`` stands for the files that the NCF paper publishes with it:
    ``X.test.rating`` and, where it is there, ``X.test.negative``.
    """
    if isinstance(source, GivenSplit):
        return source
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 1:
        source = source[0]
    if not isinstance(source, str | Path) or not str(source).endswith(_NCF_TRAIN):
        return None
    stem = str(source).removesuffix(_NCF_TRAIN)
    negative = Path(stem + _NCF_NEGATIVE)
    return GivenSplit(
        train=source,
        test=stem + _NCF_TEST,
        test_candidates=negative if negative.exists() else None,
    )


def check_fold_in(engine: Engine, parts: Sequence[str]) -> None:
    """Raise InputError where a user with fold-in items is in training or in the other split."""
    for split in _SPLITS:
        if f"{split}_fold_in" not in parts:
            continue
        count, user_id = engine.row(steps.FOLD_IN_ELSEWHERE.format(split=split))
        if count:
            raise InputError(
                f"user {shown(user_id)} of {split}_fold_in is in training or in the other held-out "
                f"part too ({like_it(count, 'user')}); fold-in items are for users who are in no "
                "other part, and what is known of others belongs in train"
            )


def count_given(engine: Engine, parts: Sequence[str], counts: dict[str, int]) -> None:
    """Count held-out users without any history, and users without a held-out item."""
    for split in _SPLITS:
        has_fold_in = f"{split}_fold_in" in parts
        if not has_fold_in and split not in parts:
            continue
        target = f"{split}_target" if has_fold_in else split
        counts[f"num_{split}_users_without_history"] = engine.count(
            steps.WITHOUT_HISTORY.format(split=split, target=target)
        )
        if has_fold_in:
            counts[f"num_{split}_users_without_target"] = engine.count(
                steps.WITHOUT_TARGET.format(split=split)
            )


def open_candidates(source: Any, format: FileFormat) -> list[Source]:
    """Files of (user, item) rows, or of the lines of a ``.negative`` file of the NCF paper."""
    if isinstance(source, str | Path):
        name = str(source).lower()
        for suffix in READ_COMPRESSIONS:
            name = name.removesuffix(suffix)
        if name.endswith(_NEGATIVE_SUFFIX):
            return [open_lines(Path(source), _LINE, format)]
    return open_sources(source, format)


def read_candidates(
    engine: Engine, sources: Sequence[Source], plan: Plan, config: PrepareConfig
) -> None:
    """Make ``given_candidates`` of the (user, item) ids in these sources, as text.

    Raises InputError naming file and line of an id that is empty, or of a line that is not as in
    the NCF paper or belongs to no interaction of the test part in ``raw``.
    """
    with naming(sources):
        for source in sources:
            engine.register(source)
        if list(sources[0].columns) == [_LINE]:
            _read_lines(engine, sources[0], plan)
        else:
            _read_rows(engine, sources, config)


def drop_contradicted(
    engine: Engine, previous: str, plan: Plan, config: PrepareConfig, counts: dict[str, int]
) -> str:
    """Count test users one of whose own test items is among their candidates, and take them out
    of the test part if that is asked for; the name of the table with what is left."""
    number = _test_number(plan)
    engine.make("contradicted", steps.CONTRADICTED.format(previous=previous, number=number))
    counts["num_test_users_with_target_among_candidates"] = engine.count("contradicted")
    if config.target_in_candidates == "keep":
        return previous
    engine.make("uncontradicted", steps.UNCONTRADICTED.format(previous=previous, number=number))
    dropped = engine.count(previous) - engine.count("uncontradicted")
    counts["num_test_rows_of_these_users_dropped"] = dropped
    engine.drop(previous)
    return "uncontradicted"


def number_candidates(
    engine: Engine, sources: Sequence[Source], plan: Plan, counts: dict[str, int]
) -> None:
    """Make ``candidates`` of the test users' candidates in the catalogue, without their targets.

    Raises InputError where a test user has none.
    """
    part = plan.parts[_test_number(plan)]
    engine.make("candidates_of_users", steps.CANDIDATES_OF_USERS.format(part=part))
    engine.make("candidates", steps.CANDIDATES.format(part=part))
    counts["num_test_candidates"] = engine.count("candidates")
    counts["num_test_candidates_unseen_in_training"] = engine.count(
        "candidates_of_users WHERE item_code IS NULL"
    )
    count, user_id = engine.row(steps.USERS_WITHOUT_CANDIDATES.format(part=part))
    if count:
        raise InputError(
            f"{sources[0].name}: has no candidate of the catalogue for user {shown(user_id)} of "
            f"the test part ({like_it(count, 'user')}); give candidates for all of them, or none "
            "at all"
        )


def _test_number(plan: Plan) -> int:
    return plan.parts.index("test_target" if "test_target" in plan.parts else "test")


def _read_lines(engine: Engine, source: Source, plan: Plan) -> None:
    line = source.columns[_LINE].sql
    engine.make("candidate_lines", steps.CANDIDATE_LINES.format(
        line=line, relation=source.relation, pattern=_NCF_LINE))  # fmt: skip
    count, example = engine.row(
        "SELECT count(*), min(line) FROM candidate_lines WHERE user_text IS NULL"
    )
    if count:
        raise InputError(
            f"{source.locate(_LINE, example)}: is not (user,item) and item ids with tabs between "
            f"them, as in the NCF paper's files: {shown(example)} ({like_it(count, 'line')})"
        )
    count, example = engine.row(steps.LINES_WITHOUT_TEST.format(number=_test_number(plan)))
    if count:
        raise InputError(
            f"{source.locate(_LINE, example)}: begins with an interaction that the test part does "
            f"not have: {shown(example)} ({like_it(count, 'line')})"
        )
    engine.make("given_candidates", steps.CANDIDATES_OF_LINES)
    engine.drop("candidate_lines")


def _read_rows(engine: Engine, sources: Sequence[Source], config: PrepareConfig) -> None:
    selects = []
    for source in sources:
        names = find_columns(source, config)
        texts = {
            role: f"nullif(CAST({source.columns[name].sql} AS VARCHAR), '')"
            for role, name in names.items()
        }
        for role, text in texts.items():
            count = engine.count(f"{source.relation} WHERE {text} IS NULL")
            if count:
                where = source.locate(names[role], None)
                raise InputError(
                    f"{where}: {role} is empty (column {shown(names[role])}, "
                    f"{like_it(count, 'row')})"
                )
        selects.append(
            f"SELECT {texts['user_id']} AS user_text, {texts['item_id']} AS item_text "
            f"FROM {source.relation}"
        )
    engine.make("given_candidates", "\nUNION ALL ".join(selects))
