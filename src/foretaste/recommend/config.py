"""Settings of answers, importable without NumPy and Arrow, for the command line's help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from foretaste._util.keywords import assign_settings
from foretaste._util.settings import Count, validate
from foretaste.errors import SettingError

if TYPE_CHECKING:
    from foretaste.data.ids import Id, Ids

Unknown = Literal["error", "skip", "popular"]
"""Treatment of users unknown to a run: an error, no answer, or popularity order."""


class FilterOptions(TypedDict, total=False):
    """Keywords of `ListRequest` that choose the items of lists, in the types that callers have."""

    exclude: Ids
    candidates: Ids | None
    include_seen: bool
    rules: Sequence[str]
    where: str | None
    max_per: Mapping[str, int] | None


class ListOptions(FilterOptions, total=False):
    """Keywords of `ListRequest` besides ``k``, in the types that callers have."""

    reasons: bool


def _ids(name: str, given: Ids) -> tuple[Id, ...]:
    from foretaste.data.ids import as_ids

    return tuple(as_ids(name, given))


def _names(name: str, given: Sequence[str]) -> tuple[str, ...]:
    return tuple(sorted({*validate(name, given, list[str])}))


def _limits(
    name: str, given: Mapping[str, int] | tuple[tuple[str, int], ...] | None
) -> tuple[tuple[str, int], ...]:
    limits = dict(given) if isinstance(given, tuple) else given or {}
    return tuple(sorted(validate(name, limits, dict[str, Count]).items()))


@dataclass(frozen=True, kw_only=True)
class ListRequest:
    """The contents of lists, the same for all users of the request. Equal requests get equal lists.

    Ids are the customer's own. A request knows no run: whether rules, columns and ids exist is
    found when the lists are made.
    """

    k: int = 10
    """Items per list."""

    exclude: tuple[Id, ...] = ()
    """Ids of items to leave out."""

    candidates: tuple[Id, ...] | None = None
    """Ids of items that may be recommended, such as those in stock; None for all."""

    include_seen: bool = False
    """Also recommend items that the user has already or disliked."""

    rules: tuple[str, ...] = ()
    """Names of rules, sorted; items must meet all of them."""

    where: str | None = None
    """SQL condition on the columns of items, which items must meet."""

    max_per: tuple[tuple[str, int], ...] = ()
    """Most items of a list with the same value in a column: pairs of column and number, sorted."""

    reasons: bool = False
    """Name the items of the history that are nearest to each listed item."""

    @classmethod
    def of(cls, k: int = k, **options: Unpack[ListOptions]) -> ListRequest:
        """Return the request of keywords in a caller's types: any iterable of ids, a mapping of
        limits. SettingError for an unknown keyword, and for a value that does not fit.
        """
        if hasattr(k, "tocoo"):
            raise SettingError(
                "k is a SciPy matrix; the users' histories are those that the model was fitted on: "
                "recommend(user_ids, k=10); recommend_for(matrix) answers other histories"
            )
        own = [item.name for item in fields(cls)]
        return cls(k=k, **assign_settings("recommend", options, own, {}))

    def __post_init__(self) -> None:
        for name, convert in _CONVERSIONS.items():
            value = getattr(self, name)
            # A default is right already: the service makes a request for each body, in 3 us.
            if value is not getattr(ListRequest, name):
                object.__setattr__(self, name, convert(name, value))


_CONVERSIONS: Mapping[str, Callable[[str, Any], object]] = {
    "k": partial(validate, hint=Count),
    "exclude": _ids,
    "candidates": _ids,
    "include_seen": partial(validate, hint=bool),
    "rules": _names,
    "where": partial(validate, hint=str),
    "max_per": _limits,
    "reasons": partial(validate, hint=bool),
}
"""Functions that check and convert the fields of a `ListRequest`. Type hints would do for most of
them, but the check of each of 100,000 candidates by its hint takes 0.2 s."""
