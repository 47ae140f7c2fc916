"""The steps of a preparation, from raw rows to the files of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretaste import __version__
from foretaste._util.formatting import short_repr
from foretaste.data.config import Progress
from foretaste.data.manifest import NEW_ITEMS, NUM_TIED, SEEN_FILE, Manifest, Part
from foretaste.data.part_files import WEIGHT_COLUMN
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
from foretaste.data.preparation.inputs import Inputs
from foretaste.data.preparation.lists import count_empty_lists
from foretaste.data.preparation.notes import describe_ids, describe_most_active
from foretaste.data.preparation.reading import Raw, read_raw
from foretaste.data.preparation.splitting import Split
from foretaste.data.preparation.times import Times
from foretaste.data.preparation.weights import Weights
from foretaste.data.preparation.writing import queries_of_ids, write_parts
from foretaste.data.sources import describe_files
from foretaste.data.sources.source import sql_literal
from foretaste.errors import InputError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine

_MOST_UNKNOWN = 0.1
"""A note warns if training knows nothing of a larger share of the held-out users."""

_MOST_TIED = 0.5
"""A note appears if a hash orders a larger share of the neighbours in a history."""

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
        self._config = config = inputs.config
        self._items = self._features = self._candidates = None
        if inputs.items is not None:
            self._items = ItemDescriptions(inputs.items, config)
            if config.features is not None:
                self._features = ItemFeatures(self._items, config.features)
        if inputs.candidates:
            self._candidates = Candidates(engine, inputs.candidates, inputs.plan)
        self._tables_of_pairs = ["pairs"]
        self._tables_of_seen: list[str] = []

    def run(self, directory: Path, progress: Progress) -> Manifest:
        """Run all steps, write the dataset's files into ``directory``, and return its manifest."""
        engine, features = self._engine, self._features
        progress("read")
        raw, times, item_columns = self.read()
        plan = self._plan
        has_weights = plan.weight_scale is not None
        weights = Weights(engine, self._inputs, plan, times)
        split = Split(engine, self._inputs, plan, times)
        progress("filter")
        rows = self.keep_events("raw")
        if features is not None:
            engine.make("known_items", steps.KNOWN_ITEMS.format(previous=rows))
        rows = self.filter_rows(rows)
        weights.check(rows, raw.sources)
        progress("collapse repeats")
        self.collapse_pairs(rows)
        self._notes |= describe_most_active(engine)
        if not has_weights:
            engine.drop(rows)
        if plan.has_order or plan.protocol == "leave-one-out":
            self.place_pairs()
        progress("split")
        split.hold_out(self._counts, self._notes)
        self._plan = plan = split.plan
        mean_weight = weights.add_to_train(rows, self._notes) if has_weights else None
        for table in self._tables_of_pairs:
            engine.drop(table)
        if plan.drops_unseen_targets:
            split.drop_unseen_targets(self._counts)
        progress("number")
        self.number(raw.kinds["item_id"])
        progress("write")
        queries = self._held_queries() | queries_of_ids(raw.kinds, item_columns)
        if features is not None:
            queries |= features.queries()
        weight = f", {WEIGHT_COLUMN}" if has_weights else ""
        train = steps.PAIRS_FILE.format(rows="train", columns=plan.position + weight)
        written = write_parts(engine, directory, train, queries)
        return self._manifest(raw.kinds, *written, mean_weight)

    def _held_queries(self) -> dict[str, str]:
        """Return the queries of the files of all pairs except the training pairs."""
        rows = {
            part: (f"(SELECT * FROM held WHERE part = '{part}')", self._plan.position)
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

    def read(self) -> tuple[Raw, Times | None, list[str]]:
        """Read all inputs, and add the notes on them; returns the columns of items last."""
        engine = self._engine
        raw = self.read_interactions()
        times = None
        if "time" in raw.kinds:
            column, kind = self._plan.columns["time"], raw.kinds["time"]
            times = Times(engine, raw.sources, column, kind, raw.units_of_times)
        item_columns = [] if self._items is None else self._items.read(engine)
        if self._features is not None:
            self._features.read(engine)
        if self._candidates is not None:
            self._candidates.read(self._config, self._inputs.items)
        self.describe_inputs(raw, times)
        # The check follows the last read: a file that changed during the preparation is refused,
        # because half of it may be old.
        self._inputs.check_unchanged()
        return raw, times, item_columns

    def read_interactions(self) -> Raw:
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

    def describe_inputs(self, raw: Raw, times: Times | None) -> None:
        """Add the notes on the columns that were read, and on the others."""
        engine, plan, notes = self._engine, self._plan, self._notes
        sources, items = self._inputs.interactions, self._items
        notes |= self._inputs.like_notes
        notes |= times.describe() if times else {}
        notes |= describe_files(sources)
        if plan.unread_times:
            notes["order"] = f"unknown, because the times are not read: {plan.unread_times}"
        elif not plan.has_order and (name := find_time_like(sources[0])):
            notes["order"] = (
                f"unknown; {short_repr(name)} looks like times, which --time-column names"
            )
        given = getattr(sources[0], "given", None)
        notes |= describe_unused(
            [name for source in sources for name in source.columns],
            plan.columns.values(),
            items,
            has_weights=plan.weight_scale is not None,
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
        seen = self._plan.seen_events
        num_seen = sum(found.get(event, 0) for event in seen)
        if seen:
            if absent := [short_repr(event) for event in seen if event not in found]:
                column = short_repr(self._plan.columns["event"])
                self._notes["seen"] = f"column {column} has none of {' and '.join(absent)}"
            self._counts["num_rows_of_seen_events"] = num_seen
            self.keep_as_seen("seen_events", rows, _is_event(seen))
        self._counts["num_rows_of_other_events"] = num_dropped - num_seen
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
        time = steps.RANK_IN_PARTS if is_rank_in_part else "time"
        pairs = steps.PAIRS.format(previous=rows, part=self._part, time=time, is_copy=is_copy)
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
        pair_key = steps.PAIR_KEY.format(seed=self._config.seed)
        places_of_tied = steps.PLACES_OF_TIED.format(pair_key=pair_key, part=self._part)
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
    def _part(self) -> str:
        return ", part" if self._plan.parts else ""

    def number(self, kind: Kind) -> None:
        """Make ``users``, ``items`` and ``candidates``, and count and describe the result; ``kind``
        is the kind of the item ids."""
        engine, items = self._engine, self._items
        engine.make("users", steps.USERS)
        engine.make("items", steps.ITEMS)
        if items is not None:
            respelled = items.match_forms(engine)
            items.check_used(engine)
            if self._features is not None:
                self._notes |= self._features.number(
                    engine, kind, respelled, self._config.empty_values or ()
                )
            self._notes = {"titles": items.describe_titles(engine)} | self._notes
        self.count_parts()
        self.describe_limits()
        if self._candidates is not None:
            self._candidates.number(self._counts, self._is_listed)

    @property
    def _is_listed(self) -> str:
        """The column of ``items`` that is true for items that lists may have."""
        return "in_catalogue" if self._config.features is None else "is_listed"

    def count_parts(self) -> None:
        """Count users, items and interactions of the finished dataset and of each of its parts."""
        engine, plan, counts = self._engine, self._plan, self._counts
        counts["num_users"] = engine.count("users")
        items = steps.SIZES_OF_ITEMS.format(is_listed=self._is_listed)
        counts["num_items"], num_train_items, num_listed = engine.row(items)
        counts["num_interactions"] = engine.count("train") + engine.count("held")
        counts["num_train_users"] = engine.count("users WHERE part = 'train'")
        counts["num_train_items"] = num_train_items
        if self._config.features is not None:
            counts["num_listed_items"] = num_listed
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
            known = [f"{split}_fold_in"]
            if split == "test":
                known.append(plan.targets.get("validation", ""))
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
