"""Weights of training pairs: checked in the rows, halved by age, and added up for each pair."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from foretaste._util.formatting import pluralize, short_repr
from foretaste.data.config import MOST_WEIGHT
from foretaste.data.manifest import NEW_ITEMS, UNSEEN
from foretaste.data.preparation import steps
from foretaste.data.preparation.inputs import Inputs
from foretaste.data.preparation.times import OPTION, Times
from foretaste.data.sources.source import Source
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine
    from foretaste.data.preparation.plan import Plan

_HALF_LIVES_OF_GAP = 10
_ROWS_PER_ROW_AFTER_GAP = 1000
"""Ages ignore the times after a gap of that length if at most one row in this many follows."""


class Weights:
    """The weights of one preparation, if it has any. Raises SettingError if there is a half-life
    and times are ranks, InputError if they have several units."""

    def __init__(self, engine: Engine, inputs: Inputs, plan: Plan, times: Times | None) -> None:
        self._engine = engine
        self._config = config = inputs.config
        self._plan = plan
        self._times = times
        self._decay, self._gap = "", "CAST(NULL AS DOUBLE)"
        if config.half_life_s is not None:
            assert times is not None
            half_life = config.half_life_s * _per_second(times)
            age = steps.AGE.format(half_life=_double(half_life))
            self._decay = steps.DECAY.format(age=age)
            self._gap = _double(_HALF_LIVES_OF_GAP * half_life)

    def check(self, rows: str, sources: Sequence[Source]) -> None:
        """Raise InputError if the weight of a row is not above 0, or above the largest."""
        plan = self._plan
        if "weight" not in plan.columns:
            return
        sql = steps.WEIGHTS_REFUSED.format(previous=rows, weight=plan.weight, most=MOST_WEIGHT)
        num_small, small, num_large, large, least = self._engine.row(sql)
        column = plan.columns["weight"]
        if num_small and least is None:
            advice = "no weight is above 0; name another column"
        elif num_small:
            # `!r` writes all digits, so no row above 0 is left out.
            smallest = repr(least).removesuffix(".0")
            advice = (
                f"--rating-column {shlex.quote(column)} --min-rating {smallest} leaves them out "
                f"(rating_column={column!r}, min_rating={smallest} in Python)"
            )
        elif num_large:
            advice = "divide the weights, or name another column: does this one have times or ids?"
        else:
            return
        weight, count = (small, num_small) if num_small else (large, num_large)
        found = self._engine.find_value(sources, column, "real", _double(weight))
        problem = "is not above 0" if num_small else f"is above {MOST_WEIGHT:,.0f}"
        raise InputError(
            f"{found.place}: weight {short_repr(found.value)} {problem} (column "
            f"{short_repr(column)}, {pluralize(count, 'row')} like it); {advice}"
        )

    def add_to_train(self, rows: str, notes: dict[str, str]) -> float:
        """Add the weights of its pairs to ``train``, and drop ``rows``; returns the mean weight."""
        engine, plan = self._engine, self._plan
        # A training pair may have rows in later parts too.
        own = f"(SELECT * FROM {rows} WHERE part = 0)" if plan.parts else rows
        query = steps.ROWS_OF_TRAIN.format(previous=own, weight=plan.weight, position=plan.position)
        engine.make("rows_of_train", query)
        engine.drop(rows)
        # Under these protocols no row is later than the training rows, so ages count from the
        # latest row.
        has_no_future = plan.protocol in ("none", "held-out-users", "given", NEW_ITEMS, UNSEEN)
        dated = "rows_of_train" if has_no_future else steps.PAIRS_OF_TRAIN
        most_after = engine.count(dated) // _ROWS_PER_ROW_AFTER_GAP
        engine.make("ages", steps.AGES.format(times=dated, most_after=most_after, gap=self._gap))
        mean = self._add_up(notes)
        if self._decay:
            self._describe_gap(notes)
        engine.drop("rows_of_train")
        return mean

    def _add_up(self, notes: dict[str, str]) -> float:
        """Make ``train`` again, with the sums over the rows of each pair; returns their mean."""
        engine, plan, decay = self._engine, self._plan, self._decay
        assert plan.weight_scale is not None
        rows = steps.ROW_WEIGHTS.format(decay=decay)
        smallest, largest = engine.row(f"SELECT min(weight), max(weight) FROM ({rows})")
        # The bound keeps the smallest weight above 2^-126, the smallest normal float32.
        exponent = max(math.frexp(largest)[1], steps.BITS_OF_ROW - steps.BITS_OF_LEAST - 126)
        unit = math.ldexp(1.0, exponent - steps.BITS_OF_ROW)
        least = math.ldexp(unit, steps.BITS_OF_LEAST)
        if smallest < least:
            count = engine.count(f"({rows} WHERE weight{decay} < {_double(least)})")
            notes["small weights"] = (
                f"{pluralize(count, 'row')} below {least:.3g}, 2^-60 of the largest, "
                f"{'counts' if count == 1 else 'count'} as {least:.3g}"
            )
        weight = f"greatest(weight{decay}, {_double(least)})"
        cut = steps.CUT.format(
            previous="rows_of_train JOIN ages ON time <= last", weight=weight, unit=_double(unit)
        )
        scaled = steps.SCALED[plan.weight_scale]
        weighted = steps.WEIGHTED_TRAIN.format(
            position=plan.position, scaled=scaled, cut=cut, unit=_double(unit)
        )
        engine.make("weighted", weighted)
        engine.drop("train")
        engine.rename("weighted", "train")
        weight = "CAST(weight AS DOUBLE)"
        cut = steps.CUT.format(previous="train", weight=weight, unit=_double(unit))
        least, most, high, middle, low = engine.row(steps.WEIGHTS_OF_TRAIN.format(cut=cut))
        total = (int(high) << 54) + (int(middle) << 27) + int(low)
        mean = total / engine.count("train") * unit
        notes["weights"] = f"{self._describe()}: {least:.3g} to {most:.3g}, mean {mean:.3g}"
        return mean

    def _describe(self) -> str:
        """Return how a weight comes from the rows of its pair."""
        plan, half_life = self._plan, self._config.half_life
        of_row = [short_repr(plan.columns["weight"])] if "weight" in plan.columns else []
        of_row += [f"{short_repr(event)} {weight or 1:g}" for event, weight in plan.events.items()]
        parts = [", ".join(of_row) or "1 of each row"]
        if half_life is not None:
            parts.append(f"halved every {half_life}")
        parts.append("added up over the rows of a pair")
        if plan.weight_scale == "log":
            parts.append("then log2(1 + sum)")
        return ", ".join(parts)

    def _describe_gap(self, notes: dict[str, str]) -> None:
        """Note the rows after the time from which ages count, if any."""
        engine, times = self._engine, self._times
        assert times is not None
        num_after = engine.count(f"(SELECT 1 {steps.AFTER_GAP})")
        if not num_after:
            return
        (latest,) = engine.row("SELECT latest FROM ages")
        first = times.example(f"SELECT min(time) {steps.AFTER_GAP}")
        notes["times after a gap"] = (
            f"{pluralize(num_after, 'row')} more than {_HALF_LIVES_OF_GAP} half-lives after all "
            f"others, from {first}: ages count from {times.date_of(latest)}, and later rows weigh "
            "like new rows"
        )


def _per_second(times: Times) -> int:
    """Return one second as a difference of times; SettingError for ranks, InputError for times of
    several units."""
    if times.per_second is not None:
        return times.per_second
    if times.num_of_unit:
        raise InputError(times.unit_problem())
    format = times.format_of_days()
    advice = "leave half_life out" if format is None else f"{OPTION} {format} reads them"
    raise SettingError(
        f"half_life needs real times, and the numbers in column {short_repr(times.column)} are "
        f"{'ranks' if format is None else 'days'}, {times.first} to {times.last}, and no seconds, "
        f"milliseconds, microseconds or nanoseconds since 1970; {advice}"
    )


def _double(value: float) -> str:
    """Return SQL of a double; `!r` writes enough digits to give the number back."""
    return f"CAST({value!r} AS DOUBLE)"
