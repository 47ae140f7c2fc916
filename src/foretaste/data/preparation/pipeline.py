"""The steps of a preparation, from raw rows to the files of a dataset."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste import __version__
from foretaste._util.formatting import option_words, pluralize, short_repr
from foretaste.data.config import MOST_WEIGHT, Progress
from foretaste.data.manifest import NEW_ITEMS, NUM_TIED, SEEN_FILE, UNSEEN, Manifest, Part
from foretaste.data.part_files import POSITION_COLUMN, WEIGHT_COLUMN
from foretaste.data.preparation import steps
from foretaste.data.preparation.candidates import Candidates
from foretaste.data.preparation.casts import Kind
from foretaste.data.preparation.columns import (
    ItemDescriptions,
    describe_unused,
    find_time_like,
    is_rank,
)
from foretaste.data.preparation.features import ItemFeatures
from foretaste.data.preparation.inputs import RUN_FILES, Inputs
from foretaste.data.preparation.lists import count_empty_lists
from foretaste.data.preparation.notes import describe_ids, describe_most_active
from foretaste.data.preparation.reading import (
    Raw,
    read_raw,
)
from foretaste.data.preparation.times import OPTION, Times
from foretaste.data.preparation.writing import queries_of_ids, write_parts
from foretaste.data.sources import describe_files
from foretaste.data.sources.source import Source, sql_literal
from foretaste.errors import InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_MOST_UNKNOWN = 0.1
"""A note warns if training knows nothing of a larger share of the held-out users."""

_HALF_LIVES_OF_GAP = 10
_ROWS_PER_ROW_AFTER_GAP = 1000
"""Ages ignore the times after a gap of that length if at most one row in this many follows."""

_LEAST_RANKED = 0.95
"""Times are ranks if the times of this share of the users are ranks."""

_MOST_TIED = 0.5
"""A note appears if a hash orders a larger share of the neighbours in a history."""

# In simulated nights with 3,000 people, a share of a quarter compared 252 people and showed a loss
# of 10 %, a half 503 people and 5 %, three quarters 755 people and 4 %. The training of the trial
# lacks that share of the new interactions.
_HELD_SHARE = 0.5
"""Share of the users with unseen pairs whose pairs are held out."""

_MOST_EVENTS = 10
"""Most event types in the message about absent ones."""

# Each filter has its setting, its column of ids, its SQL, and the name of the count of dropped
# rows; `_LEFT_OUT` of manifest.py has the reason. The SQL is a condition, or with a column of ids
# the query of the ids to keep.
_FILTERS = (
    ("min_rating", None, steps.RATED, "num_rows_rated_too_low"),
    ("min_item_users", "item_id", steps.FREQUENT_ITEMS, "num_rows_of_rare_items"),
    ("min_user_interactions", "user_id", steps.ACTIVE_USERS, "num_rows_of_inactive_users"),
)


class Pipeline:
    """One preparation: its engine and inputs, with the counts and notes of its steps."""

    def __init__(self, engine: Engine, inputs: Inputs) -> None:
        self._counts: dict[str, int] = {}
        self._notes: dict[str, str] = {}
        self._engine = engine
        self._inputs = inputs
        self._plan = inputs.plan
        self._config = inputs.config
        self._tables_of_pairs = ["pairs"]
        self._tables_of_seen: list[str] = []

    def run(self, directory: Path, progress: Progress) -> Manifest:
        """Run all steps, write the dataset's files into ``directory``, and return its manifest."""
        engine, inputs = self._engine, self._inputs
        items = None if inputs.items is None else ItemDescriptions(inputs.items, self._config)
        features = None
        if items is not None and self._config.features is not None:
            features = ItemFeatures(items, self._config.features)
        progress("read")
        raw = self.read()
        plan = self._plan
        times = None
        if "time" in raw.kinds:
            column, kind = plan.columns["time"], raw.kinds["time"]
            times = Times(engine, raw.sources, column, kind, raw.units_of_times)
        item_columns = [] if items is None else items.read(engine)
        if features is not None:
            features.read(engine)
        candidates = None
        if inputs.candidates:
            candidates = Candidates(engine, inputs.candidates, plan)
            candidates.read(self._config, inputs.items)
        self.describe_inputs(raw, times, items)
        # The check follows the last read: a file that changed during the preparation is refused,
        # because half of it may be old.
        inputs.check_unchanged()
        half_life = self.half_life(times)
        if plan.protocol == "temporal":
            self.check_no_ranks(times)
        if plan.protocol == NEW_ITEMS:
            is_by_time = times is not None and not self.times_problem(times)
            self._plan = replace(plan, label=NEW_ITEMS if is_by_time else f"{NEW_ITEMS} (random)")
        progress("filter")
        rows = self.keep_events("raw")
        if features is not None:
            engine.make("known_items", steps.KNOWN_ITEMS.format(previous=rows))
        rows = self.filter_rows(rows)
        self.check_weights(rows, raw.sources)
        progress("collapse repeats")
        self.collapse_pairs(rows)
        self._notes |= describe_most_active(engine)
        if plan.weight_scale is None:
            engine.drop(rows)
        if plan.has_order or plan.protocol == "leave-one-out":
            self.place_pairs()
        progress("split")
        self.split_pairs()
        plan = self._plan  # protocol unseen may have found nothing to hold out
        self.check_parts()
        mean_weight = None
        if plan.weight_scale is not None:
            mean_weight = self.weigh_train(rows, times, half_life)
        for table in self._tables_of_pairs:
            engine.drop(table)
        if plan.drops_unseen_targets:
            self.drop_unseen_targets()
        progress("number")
        self.number(items, features, candidates, raw.kinds["item_id"])
        progress("write")
        queries = self._held_queries() | queries_of_ids(raw.kinds, item_columns)
        if features is not None:
            queries |= features.queries()
        weight = "" if mean_weight is None else f", {WEIGHT_COLUMN}"
        train = steps.PAIRS_FILE.format(rows="train", columns=self._position + weight)
        written = write_parts(engine, directory, train, queries)
        return self._manifest(raw.kinds, *written, mean_weight)

    def _held_queries(self) -> dict[str, str]:
        """Return the queries of the files of all pairs except the training pairs."""
        rows = {
            part: (f"(SELECT * FROM held WHERE part = '{part}')", self._position)
            for part in self._plan.held_parts
        }
        if self._inputs.candidates:
            rows["test_candidates"] = "candidates", ""
        if self._tables_of_seen:
            union = " UNION ALL ".join(f"SELECT * FROM {table}" for table in self._tables_of_seen)
            rows["seen"] = steps.SEEN.format(rows=union), ""
        return {
            name: steps.PAIRS_FILE.format(rows=one, columns=columns)
            for name, (one, columns) in rows.items()
        }

    def read(self) -> Raw:
        """Make table ``raw``, and count its rows. Unread times leave the plan."""
        engine, plan, config, counts = self._engine, self._plan, self._config, self._counts
        sources = self._inputs.interactions
        raw = read_raw(
            engine,
            sources,
            plan.columns,
            config,
            time_format=config.time_format,
            may_lack_times=plan.may_lack_times,
        )
        if config.layout == "lists":
            counts["num_users_without_items"] = count_empty_lists(
                engine, sources, raw.sources, config.empty_values or ()
            )
        if raw.unread_times:
            columns = {role: name for role, name in plan.columns.items() if role != "time"}
            self._plan = replace(plan, columns=columns, unread_times=raw.unread_times)
        counts["num_rows_read"] = engine.count("raw") + raw.num_dropped
        if config.empty_ids == "drop":
            counts["num_rows_with_an_empty_id"] = raw.num_dropped
        return raw

    def describe_inputs(
        self, raw: Raw, times: Times | None, items: ItemDescriptions | None
    ) -> None:
        """Add the notes on the columns that were read, and on the others."""
        engine, plan, notes = self._engine, self._plan, self._notes
        sources = self._inputs.interactions
        notes |= self._inputs.like_notes
        notes |= times.describe() if times else {}
        notes |= describe_files(sources)
        if plan.unread_times:
            notes["order"] = f"unknown, because the times are not read: {plan.unread_times}"
        elif not plan.has_order and (name := find_time_like(sources[0])):
            notes["order"] = (
                f"unknown; {short_repr(name)} looks like times, which --time-column names"
            )
        names = [name for source in sources for name in source.columns]
        has_weights = plan.weight_scale is not None
        given = getattr(sources[0], "given", None)
        notes |= describe_unused(
            names,
            plan.columns.values(),
            items,
            has_weights=has_weights,
            matrix=given if hasattr(given, "tocoo") else None,
        )
        notes |= describe_ids(engine, raw, plan.columns, self._config)
        notes |= items.describe_ids(engine) if items else {}

    def keep_events(self, rows: str) -> str:
        """Drop and count the rows of event types that ``events`` does not name; returns the name of
        the table with the remaining rows. Raises InputError if an event type to keep is absent."""
        engine, events = self._engine, self._plan.events
        if not events:
            return rows
        found: dict[str, int] = dict(
            engine.run(f"SELECT event, count(*) FROM {rows} GROUP BY event")
        )
        if missing := [short_repr(event) for event in events if event not in found]:
            most = sorted(found, key=lambda event: (-found[event], event))[:_MOST_EVENTS]
            raise InputError(
                f"events names {' and '.join(missing)}, and column "
                f"{short_repr(self._plan.columns['event'])} has none of it: it has "
                f"{', '.join(map(short_repr, most))}{', ...' if len(found) > len(most) else ''}"
            )
        num_dropped = sum(found.values()) - sum(found[event] for event in events)
        if seen := self._plan.seen_events:
            num_seen = sum(found.get(event, 0) for event in seen)
            if absent := [short_repr(event) for event in seen if event not in found]:
                column = short_repr(self._plan.columns["event"])
                self._notes["seen"] = f"column {column} has none of {' and '.join(absent)}"
            self._counts["num_rows_of_seen_events"] = num_seen
            self.keep_as_seen("seen_events", rows, _is_event(seen))
            self._counts["num_rows_of_other_events"] = num_dropped - num_seen
        else:
            self._counts["num_rows_of_other_events"] = num_dropped
        if not num_dropped:
            return rows
        engine.make("rows_of_events", f"SELECT * FROM {rows} WHERE {_is_event(events)}")
        engine.drop(rows)
        return "rows_of_events"

    def keep_as_seen(self, table: str, rows: str, condition: str) -> None:
        """Keep the users and items of the rows that meet the condition, for the part ``seen``."""
        self._engine.make(table, steps.SEEN_ROWS.format(previous=rows, condition=condition))
        self._tables_of_seen.append(table)

    def filter_rows(self, rows: str) -> str:
        """Apply and count the filters; returns the name of the table with the remaining rows.

        Raises InputError with the count of every step if no row is left.
        """
        engine, filters, counts = self._engine, self._plan.filters, self._counts
        num_rows = engine.count(rows)
        for setting, column, sql, label in _FILTERS:
            if setting not in filters:
                continue
            condition = sql.format(previous=rows, **filters)
            if column is not None:
                engine.make(f"{column}s_kept", condition)
                condition = f"{column} IN (SELECT {column} FROM {column}s_kept)"
            left = f"{rows} WHERE {condition}"
            num_left = engine.count(left)
            counts[label] = num_rows - num_left
            if num_left == 0:
                dropped = ", ".join(
                    f"{count:,} {label.removeprefix('num_').replace('_', ' ')}"
                    for label, count in counts.items()
                )
                applied = ", ".join(f"{name} {value:g}" for name, value in filters.items())
                raise InputError(
                    f"every row is filtered away: {dropped}; the filters are {applied}"
                )
            if setting == "min_rating":
                self.keep_as_seen("seen_ratings", rows, f"NOT ({condition})")
            # Rows are copied only if some rows are dropped: a copy takes as long as ten counts.
            if num_left < num_rows:
                engine.make(f"rows_with_{setting}", f"SELECT * FROM {left}")
                engine.drop(rows)
                rows, num_rows = f"rows_with_{setting}", num_left
        return rows

    def collapse_pairs(self, rows: str) -> None:
        """Make ``user_codes``, ``item_codes`` and ``pairs``: each pair at its earliest time."""
        engine, plan, parts = self._engine, self._plan, self._plan.parts
        num_rows = engine.count(rows)
        num_given = engine.run(steps.DISTINCT_HELD.format(previous=rows)) if parts else []
        for kind in ("user", "item"):
            engine.make(f"{kind}_codes", steps.CODES.format(kind=kind, previous=rows))
        is_copy = steps.HAS_TIME_OF_PREVIOUS if plan.has_order else "false"
        is_rank_in_part = plan.parts and is_rank(plan.columns.get("time", ""))
        pairs = steps.PAIRS.format(
            previous=rows,
            part=self._part,
            time=steps.RANK_IN_PARTS if is_rank_in_part else "time",
            is_copy=is_copy,
        )
        engine.make("pairs", pairs)
        if num_copies := engine.count("pairs WHERE is_copy"):
            self._counts["num_repeats_at_the_same_time"] = num_copies
        self._counts["num_repeated_pairs"] = num_rows - engine.count("pairs") + num_copies
        for number, num_pairs in num_given:
            num_left = engine.count(f"pairs WHERE part = {number} AND NOT is_copy")
            self._counts[f"num_{parts[number]}_pairs_in_an_earlier_part"] = num_pairs - num_left

    def place_pairs(self) -> None:
        """Add to ``pairs`` the place of each pair in the history of its user: ``position``."""
        engine = self._engine
        engine.make("ranked", steps.RANKED.format(part=self._part))
        engine.drop("pairs")
        places_of_tied = steps.PLACES_OF_TIED.format(pair_key=self._pair_key, part=self._part)
        engine.make("places_of_tied", places_of_tied)
        engine.define("pairs", steps.PLACED.format(part=self._part))
        self._tables_of_pairs = ["ranked", "places_of_tied"]
        num_neighbours = engine.count("ranked") - engine.count("user_codes")
        num_tied = engine.count("ranked WHERE is_tied_back")
        if self._plan.has_order and num_tied > _MOST_TIED * num_neighbours:
            share = f"{num_tied / num_neighbours:.0%}"
            self._notes["ties"] = (
                f"a hash orders {share} of the neighbours in a history: equal times"
            )

    @property
    def _pair_key(self) -> str:
        return steps.PAIR_KEY.format(seed=self._config.seed)

    @property
    def _part(self) -> str:
        return ", part" if self._plan.parts else ""

    @property
    def _position(self) -> str:
        return f", {POSITION_COLUMN}" if self._plan.has_order else ""

    def split_pairs(self) -> None:
        """Make ``held`` and ``train`` by the protocol.

        Raises InputError if the protocol holds out items of users, and every user has only one
        item.
        """
        engine, plan, seed = self._engine, self._plan, self._config.seed
        num_test = 0
        if plan.protocol in ("leave-one-out", "held-out-users"):
            num_users = engine.count("user_codes")
            if engine.count("pairs") == num_users:
                raise InputError(
                    "nothing can be held out, because every user has only one item "
                    f"({pluralize(num_users, 'user')}, column "
                    f"{short_repr(plan.columns['user_id'])}); "
                    "name another column of users with --user-column (user_column=... in Python), "
                    "or train on all of it with --protocol none"
                )
            if plan.protocol == "held-out-users":
                num_below = engine.count(
                    "(SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) < 2)"
                )
                self._counts["num_users_with_fewer_than_2_items"] = num_below
                num_test = self._num_heldout_users(num_users - num_below)
        elif plan.protocol == "temporal":
            num_test = engine.count("pairs") // 10
        elif plan.protocol == NEW_ITEMS:
            num_test = max(1, engine.count("item_codes") // 10)
        elif plan.protocol == UNSEEN:
            num_test = self.find_unseen_pairs()
        values = {
            "position": self._position,
            "pair_key": self._pair_key,
            "user_key": steps.USER_KEY.format(seed=seed),
            "item_key": steps.ITEM_KEY.format(seed=seed),
            "first_time": "first_time" if plan.label == NEW_ITEMS else "CAST(0 AS INTEGER)",
            "num_held": 1 + plan.has_validation,
            "num_test": num_test,
            "num_validation": num_test * plan.has_validation,
            "cases": " ".join(f"WHEN {part} THEN '{name}'" for part, name in enumerate(plan.parts)),
        }
        if plan.protocol == "temporal":
            engine.make("latest_times", steps.LATEST_TIMES.format(**values))
            (num_tied,) = engine.row(steps.TIED_AT_CUTS.format(**values))
            if num_tied:
                self._counts["num_interactions_tied_at_the_cuts"] = int(num_tied)
        engine.make("held", steps.HELD[plan.protocol].format(**values))
        if plan.protocol == "leave-one-out":
            # The other users have a test item.
            num_below = num_users - engine.count("held WHERE part = 'test'")
            self._counts["num_users_with_fewer_than_3_items"] = num_below
        train = steps.TRAIN_GIVEN if plan.parts else steps.TRAIN
        engine.make("train", train.format(position=self._position))

    def find_unseen_pairs(self) -> int:
        """Make ``unseen_pairs``, which the training of the compared run lacked; returns the number
        of users whose unseen pairs are held out."""
        engine, inputs = self._engine, self._inputs
        rows = {}
        for name, file in inputs.run_files.items():
            # Each file is registered alone, because Spark makes one relation of several files.
            (opened,) = engine.register([file])
            columns = (f"{opened.columns[column].sql} AS {column}" for column in RUN_FILES[name])
            rows[name] = f"SELECT {', '.join(columns)} FROM {opened.relation}"
        engine.make("trained_pairs", steps.TRAINED_PAIRS.format(**rows))
        engine.make("unseen_pairs", steps.UNSEEN_PAIRS.format(position=self._position))
        engine.drop("trained_pairs")
        num_users = engine.count("(SELECT DISTINCT user_code FROM unseen_pairs)")
        num_test = math.ceil(_HELD_SHARE * num_users)
        run = Path(inputs.run_files["users"].name).parent
        note = f"{pluralize(num_users, 'user')} of {run} did something new"
        if num_test:
            note += f"; the new items of {pluralize(num_test, 'user')} are held out"
        else:
            self._plan = replace(self._plan, has_test=False)
        self._notes[UNSEEN] = note
        return num_test

    def check_no_ranks(self, times: Times | None) -> None:
        """Raise SettingError if all times are equal, or if they are ranks within each user."""
        assert times is not None
        if problem := self.times_problem(times):
            raise SettingError(
                f"protocol temporal needs real times, and in column {short_repr(times.column)} "
                f"{problem}; name a column of them with --time-column (time_column=... in Python), "
                "or ask for --protocol leave-one-out or held-out-users"
            )

    def times_problem(self, times: Times) -> str:
        """Return the reason why times in table ``raw`` cannot compare users; empty if they can."""
        if times.first == times.last:
            time = times.date_of(times.first) if times.per_second else times.first
            return f"all times are one, {time}"
        if not times.num_of_unit:
            num_users, num_ranked = self._engine.row(steps.RANKED_USERS)
            if is_rank(times.column) or num_ranked >= _LEAST_RANKED * num_users:
                return (
                    f"the times of {num_ranked:,} of {pluralize(num_users, 'user')} are 0 to n-1 "
                    "or 1 to n, like ranks of the user's own rows"
                )
        return ""

    def half_life(self, times: Times | None) -> float | None:
        """Return the half-life in the unit of the times; None without one.

        Raises SettingError if times are ranks, InputError if times have several units.
        """
        half_life_s = self._config.half_life_s
        if half_life_s is None:
            return None
        assert times is not None
        if times.num_of_unit and times.per_second is None:
            raise InputError(times.unit_problem())
        if times.per_second is None:
            format = times.format_of_days()
            advice = "leave half_life out" if format is None else f"{OPTION} {format} reads them"
            raise SettingError(
                f"half_life needs real times, and the numbers in column {short_repr(times.column)} "
                f"are {'ranks' if format is None else 'days'}, {times.first} to {times.last}, and "
                f"no seconds, milliseconds, microseconds or nanoseconds since 1970; {advice}"
            )
        return half_life_s * times.per_second

    def check_weights(self, rows: str, sources: Sequence[Source]) -> None:
        """Raise InputError if the weight of a row is not above 0, or above the largest."""
        plan = self._plan
        if plan.weight_scale is None or "weight" not in plan.columns:
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
        value = _double(weight)
        found = self._engine.find_value(sources, column, "real", value)
        problem = "is not above 0" if num_small else f"is above {MOST_WEIGHT:,.0f}"
        raise InputError(
            f"{found.place}: weight {short_repr(found.value)} {problem} (column "
            f"{short_repr(column)}, "
            f"{pluralize(count, 'row')} like it); {advice}"
        )

    def weigh_train(self, rows: str, times: Times | None, half_life: float | None) -> float:
        """Add the weights of its pairs to ``train``, and drop ``rows``; returns the mean weight."""
        engine, plan, config = self._engine, self._plan, self._config
        assert plan.weight_scale is not None
        # A training pair may have rows in later parts too.
        own = f"(SELECT * FROM {rows} WHERE part = 0)" if plan.parts else rows
        rows_of_train = steps.ROWS_OF_TRAIN.format(
            previous=own, weight=plan.weight, position=self._position
        )
        engine.make("rows_of_train", rows_of_train)
        engine.drop(rows)
        # Under these protocols no row is later than the training rows, so ages count from the
        # latest row.
        has_no_future = plan.protocol in ("none", "held-out-users", "given", NEW_ITEMS, UNSEEN)
        dated = "rows_of_train" if has_no_future else steps.PAIRS_OF_TRAIN
        decay, gap = "", "CAST(NULL AS DOUBLE)"
        if half_life is not None:
            age = steps.AGE.format(half_life=_double(half_life))
            decay = steps.DECAY.format(age=age)
            gap = _double(_HALF_LIVES_OF_GAP * half_life)
        most_after = engine.count(dated) // _ROWS_PER_ROW_AFTER_GAP
        engine.make("ages", steps.AGES.format(times=dated, most_after=most_after, gap=gap))
        least, most, mean = self._add_up(decay)
        of_row = [short_repr(plan.columns["weight"])] if "weight" in plan.columns else []
        of_row += [f"{short_repr(event)} {weight or 1:g}" for event, weight in plan.events.items()]
        parts = [", ".join(of_row) or "1 of each row", "added up over the rows of a pair"]
        if config.half_life is not None:
            parts.insert(1, f"halved every {config.half_life}")
        if plan.weight_scale == "log":
            parts.append("then log2(1 + sum)")
        weights = f"{', '.join(parts)}: {least:.3g} to {most:.3g}, mean {mean:.3g}"
        self._notes["weights"] = weights
        if times is not None and half_life is not None:
            self.describe_gap(times)
        engine.drop("rows_of_train")
        return mean

    def _add_up(self, decay: str) -> tuple[float, float, float]:
        """Sum the rows of each pair of ``train``; return the least, largest and mean weight."""
        engine = self._engine
        rows = steps.ROW_WEIGHTS.format(decay=decay)
        smallest, largest = engine.row(f"SELECT min(weight), max(weight) FROM ({rows})")
        # The bound keeps the smallest weight above 2^-126, the smallest normal float32.
        exponent = max(math.frexp(largest)[1], steps.BITS_OF_ROW - steps.BITS_OF_LEAST - 126)
        unit = math.ldexp(1.0, exponent - steps.BITS_OF_ROW)
        least = math.ldexp(unit, steps.BITS_OF_LEAST)
        if smallest < least:
            count = engine.count(f"({rows} WHERE weight{decay} < {_double(least)})")
            self._notes["small weights"] = (
                f"{pluralize(count, 'row')} below {least:.3g}, 2^-60 of the largest, "
                f"{'counts' if count == 1 else 'count'} as {least:.3g}"
            )
        weight = f"greatest(weight{decay}, {_double(least)})"
        cut = steps.CUT.format(
            previous="rows_of_train JOIN ages ON time <= last", weight=weight, unit=_double(unit)
        )
        scaled = steps.SCALED[self._plan.weight_scale or "linear"]
        weighted = steps.WEIGHTED_TRAIN.format(
            position=self._position, scaled=scaled, cut=cut, unit=_double(unit)
        )
        engine.make("weighted", weighted)
        engine.drop("train")
        engine.rename("weighted", "train")
        weight = "CAST(weight AS DOUBLE)"
        cut = steps.CUT.format(previous="train", weight=weight, unit=_double(unit))
        least, most, high, middle, low = engine.row(steps.WEIGHTS_OF_TRAIN.format(cut=cut))
        total = (int(high) << 54) + (int(middle) << 27) + int(low)
        return least, most, total / engine.count("train") * unit

    def describe_gap(self, times: Times) -> None:
        """Add a note on the rows after the time from which ages count, if there are any."""
        engine = self._engine
        num_after = engine.count(f"(SELECT 1 {steps.AFTER_GAP})")
        if not num_after:
            return
        (latest,) = engine.row("SELECT latest FROM ages")
        first = times.example(f"SELECT min(time) {steps.AFTER_GAP}")
        self._notes["times after a gap"] = (
            f"{pluralize(num_after, 'row')} more than {_HALF_LIVES_OF_GAP} half-lives after all "
            f"others, from {first}: ages count from {times.date_of(latest)}, and later rows weigh "
            "like new rows"
        )

    def _num_heldout_users(self, num_eligible: int) -> int:
        """Return how many users a part holds out: the setting, or a tenth of the eligible users."""
        num_parts = 1 + self._plan.has_validation
        num_users = self._config.num_heldout_users or max(1, num_eligible // 10)
        if num_eligible <= num_users * num_parts:
            sizes = f"{pluralize(num_users, 'held-out user')} in each of {num_parts} parts"
            raise SettingError(
                f"protocol held-out-users: {sizes} leaves no user for training, because only "
                f"{pluralize(num_eligible, 'user')} {'has' if num_eligible == 1 else 'have'} two "
                "items or more; hold out fewer with "
                "--num-heldout-users, or use --protocol none to train on all of them"
            )
        return num_users

    def check_parts(self) -> None:
        """Raise InputError if a part is empty, or a fold-in user is in another part too."""
        engine, plan = self._engine, self._plan
        for part in plan.parts:
            if not part.endswith("_fold_in"):
                continue
            split = part.removesuffix("_fold_in")
            count, user_id = engine.row(steps.FOLD_IN_ELSEWHERE.format(split=split))
            if count:
                raise InputError(
                    f"user {short_repr(user_id)} of {part} is in training or in the other held-out "
                    f"part too ({pluralize(count, 'user')} like it); fold-in items are for users "
                    "who are in no other part; put the known items of other users into train"
                )
        found = {part for (part,) in engine.run("SELECT DISTINCT part FROM held")}
        if engine.count("train"):
            found.add("train")
        missing = [part for part in ("train", *plan.held_parts) if part not in found]
        if missing and plan.parts:
            raise InputError(
                f"nothing is left of the {missing[0]} part: each of its pairs is filtered away or "
                "in an earlier part too; give other files or filters"
            )
        if missing:
            raise InputError(
                f"too few interactions for protocol {plan.label}: after the filters there are "
                f"{engine.count('pairs'):,} of {engine.count('user_codes'):,} users. leave-one-out "
                "needs users with three items, held-out-users users with two items, temporal ten "
                "interactions, new-items three items; use --protocol none to train on all of them"
            )

    def drop_unseen_targets(self) -> None:
        """Drop from ``held`` the targets that training never saw; count them and their users."""
        engine = self._engine
        engine.make("findable", steps.FINDABLE)
        held, findable = (
            {part: sizes for part, *sizes in engine.run(steps.SIZES_OF_PARTS.format(rows=rows))}
            for rows in ("held", "findable")
        )
        for split, part in self._plan.targets.items():
            if part not in findable:
                filters = {"filters": "none"} | self._plan.filters
                raise InputError(
                    f"nothing is left of the {split} part: training has none of its items; "
                    f"{' '.join(option_words(filters))} counts them as misses"
                )
            num_dropped, num_left = (a - b for a, b in zip(held[part], findable[part], strict=True))
            self._counts[f"num_{split}_targets_dropped_as_unseen"] = num_dropped
            self._counts[f"num_{split}_users_left_without_target"] = num_left
        engine.drop("held")
        engine.rename("findable", "held")

    def number(
        self,
        items: ItemDescriptions | None,
        features: ItemFeatures | None,
        candidates: Candidates | None,
        kind: Kind,
    ) -> None:
        """Make ``users``, ``items`` and ``candidates``, and count and describe the result."""
        engine = self._engine
        engine.make("users", steps.USERS)
        engine.make("items", steps.ITEMS)
        if items is not None:
            respelled = items.match_forms(engine)
            items.check_used(engine)
            if features is not None:
                self._notes |= features.number(
                    engine, kind, respelled, self._config.empty_values or ()
                )
            self._notes = {"titles": items.describe_titles(engine)} | self._notes
        self.count_parts()
        self.describe_limits()
        if candidates is not None:
            candidates.number(self._counts, self._is_listed)

    @property
    def _is_listed(self) -> str:
        """The column of ``items`` that is true for items that lists may have."""
        return "in_catalogue" if self._config.features is None else "is_listed"

    def count_parts(self) -> None:
        """Count users, items and interactions of the finished dataset and of each of its parts."""
        engine, plan, counts = self._engine, self._plan, self._counts
        counts["num_users"] = engine.count("users")
        counts["num_items"] = engine.count("items")
        counts["num_interactions"] = engine.count("train") + engine.count("held")
        counts["num_train_users"] = engine.count("users WHERE part = 'train'")
        counts["num_train_items"] = engine.count("items WHERE in_catalogue")
        if self._config.features is not None:
            counts["num_listed_items"] = engine.count("items WHERE is_listed")
        counts["num_train_interactions"] = engine.count("train")
        sizes_and_unseen = steps.SIZES_AND_UNSEEN.format(is_listed=self._is_listed)
        sizes = {part: found for part, *found in engine.run(sizes_and_unseen)}
        for part in plan.held_parts:
            num_interactions, num_users, num_unseen, num_unlisted = sizes[part]
            counts[f"num_{part}_interactions"] = num_interactions
            if part.endswith("_fold_in"):
                continue
            split = part.removesuffix("_target")
            counts[f"num_{split}_users"] = num_users
            counts[f"num_{split}_targets_unseen_in_training"] = num_unseen
            if self._config.features is not None:
                counts[f"num_{split}_targets_unseen_without_feature"] = num_unlisted
        if plan.label == "leave-one-out" and (
            num_tied := engine.count("held WHERE part = 'test' AND is_tied")
        ):
            counts[NUM_TIED] = num_tied
        if plan.protocol == NEW_ITEMS:
            for part, num_items, num_without in sorted(engine.run(steps.ITEMS_OF_PARTS)):
                counts[f"num_{part}_items"] = num_items
                counts[f"num_{part}_items_without_feature"] = num_without
        may_lack_history = plan.parts or plan.protocol in ("temporal", NEW_ITEMS)
        for split, part in plan.targets.items() if may_lack_history else ():
            known = [
                f"{split}_fold_in",
                *([plan.targets.get("validation", "")] * (split == "test")),
            ]
            without_history = steps.WITHOUT_HISTORY.format(
                target=part, known=", ".join(map(sql_literal, known))
            )
            counts[f"num_{split}_users_without_history"] = engine.count(without_history)
            if part != split:
                without_target = steps.WITHOUT_TARGET.format(split=split)
                counts[f"num_{split}_users_without_target"] = engine.count(without_target)

    def describe_limits(self) -> None:
        """Add a note on each part that teaches or measures nothing."""
        counts, notes = self._counts, self._notes
        if counts["num_train_users"] == 1:
            notes["training"] = "nothing can be learned from one user alone"
        for split, part in self._plan.targets.items():
            unseen = f"num_{split}_targets_unseen"
            num_unseen = counts.get(f"{unseen}_without_feature", counts[f"{unseen}_in_training"])
            if num_unseen == counts[f"num_{part}_interactions"]:
                no_features = "" if self._config.features is None else ", and none has a feature"
                notes[split] = (
                    f"nothing can be measured: training has none of its items{no_features}"
                )
                continue
            num_users = counts[f"num_{split}_users"]
            num_unknown = counts.get(f"num_{split}_users_without_history", 0)
            if num_unknown > _MOST_UNKNOWN * num_users:
                notes[split] = (
                    f"warning: training knows nothing of {num_unknown:,} of its {num_users:,} "
                    f"users ({num_unknown / num_users:.0%}), whom every model answers in "
                    "popularity order"
                )
                if self._plan.protocol != NEW_ITEMS:
                    notes[split] += "; --protocol leave-one-out or held-out-users measures more"

    def _manifest(
        self,
        kinds: Mapping[str, Kind],
        parts: dict[str, Part],
        train_digest: str,
        mean_weight: float | None,
    ) -> Manifest:
        plan, config, counts = self._plan, self._config, self._counts
        if SEEN_FILE in parts:
            counts["num_seen_pairs"] = parts[SEEN_FILE].num_rows
        validation: str = config.validation
        if plan.parts:
            validation = "hold-out" if plan.has_validation else "none"
        return Manifest(
            protocol=plan.label,
            validation=validation,
            seed=config.seed,
            num_users=counts["num_users"],
            num_train_users=counts["num_train_users"],
            num_items=counts["num_train_items"],
            feature_columns=self._config.features or (),
            num_listed_items=counts.get("num_listed_items", 0),
            num_all_items=counts["num_items"],
            num_interactions=counts["num_train_interactions"],
            counts=counts,
            config=config.content(),
            filters=plan.filters,
            columns=plan.columns,
            id_types={role: kinds[role] for role in ("user_id", "item_id")},
            source=self._inputs.provenance,
            engine=self._engine.name,
            created_by=f"foretaste {__version__}",
            parts=parts,
            train_digest=train_digest,
            mean_weight=mean_weight,
            has_order=plan.has_order,
            notes=self._notes,
        )


def _is_event(events: Iterable[str]) -> str:
    """Return SQL that is true for rows of these event types."""
    return steps.OF_EVENTS.format(events=", ".join(map(sql_literal, events)))


def _double(value: float) -> str:
    """Return SQL of a double; `!r` writes enough digits to give the number back."""
    return f"CAST({value!r} AS DOUBLE)"
