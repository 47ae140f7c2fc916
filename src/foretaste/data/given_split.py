"""Interactions that come split already: which file is which part, and what is checked of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.formatting import shown
from foretaste.data import steps
from foretaste.data.bad_values import like_it
from foretaste.data.engine import Engine
from foretaste.errors import InputError, SettingError

_NCF_TRAIN, _NCF_TEST, _NCF_NEGATIVE = ".train.rating", ".test.rating", ".test.negative"
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
    """What may be known of validation users who are in no other part."""

    validation: Any = None
    """Interactions to choose the best epoch by."""

    test_fold_in: Any = None
    """What may be known of test users who are in no other part."""

    test: Any = None
    """Interactions to judge by."""

    test_candidates: Any = None
    """What each test user's items are ranked against under candidates ``fixed``: a file or frame of
    (user, item) rows, or a ``.negative`` file of the NCF paper."""

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


def held_query(parts: Sequence[str]) -> str:
    """SQL of table ``held``: every pair of a part other than training."""
    cases = " ".join(f"WHEN {place} THEN '{part}'" for place, part in enumerate(parts) if place)
    return steps.HELD_GIVEN.format(cases=cases)


def num_distinct_held(engine: Engine, table: str, parts: Sequence[str]) -> dict[str, int]:
    """Distinct pairs of every part but training, in a table that still has the ids."""
    rows = engine.run(steps.DISTINCT_HELD.format(previous=table))
    return {parts[place]: num_pairs for place, num_pairs in rows}


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
    """Count held-out users of whom nothing is known, and users of whom nothing is held out."""
    for split in _SPLITS:
        if split in parts:
            counts[f"num_{split}_users_without_history"] = engine.count(
                steps.WITHOUT_HISTORY.format(split=split, target=split)
            )
        elif f"{split}_fold_in" in parts:
            target = f"{split}_target"
            counts[f"num_{split}_users_without_history"] = engine.count(
                steps.WITHOUT_HISTORY.format(split=split, target=target)
            )
            counts[f"num_{split}_users_without_target"] = engine.count(
                steps.WITHOUT_TARGET.format(split=split)
            )
