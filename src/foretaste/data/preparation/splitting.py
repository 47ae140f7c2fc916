"""From raw rows to the parts of a dataset, step by step: filters, repeats, the split, the indexes,
the files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from foretaste._util.files import file_sha256, real_path
from foretaste._util.formatting import counted, shown
from foretaste.data.config import PrepareConfig
from foretaste.data.manifest import Part
from foretaste.data.part_files import content_digest, is_in_order
from foretaste.data.preparation import steps
from foretaste.data.preparation.casts import Kind
from foretaste.data.preparation.given_split import check_fold_in, count_given
from foretaste.data.sources.source import quoted
from foretaste.errors import DatasetError, InputError, SettingError

if TYPE_CHECKING:
    from foretaste.data.preparation.engine import Engine
    from foretaste.data.preparation.plan import Plan

# Of each filter: its setting, the table it leaves, the condition and the count of rows dropped, and
# a table of ids that the condition looks into.
_FILTERS = (
    ("min_rating", "rated", steps.RATED, "num_rows_rated_too_low", None),
    (
        *("min_item_users", "frequent", steps.FREQUENT, "num_rows_of_rare_items"),
        ("frequent_items", steps.FREQUENT_ITEMS),
    ),
    (
        *("min_user_interactions", "active", steps.ACTIVE, "num_rows_of_inactive_users"),
        ("active_users", steps.ACTIVE_USERS),
    ),
)


def filter_rows(engine: Engine, plan: Plan, counts: dict[str, int]) -> str:
    """Drop what the filters drop, counting it; the name of the table with what is left.

    Raises InputError with the count of every step where nothing is left.
    """
    previous, num_rows = "raw", engine.count("raw")
    counts["num_rows_read"] = num_rows
    for setting, table, condition, label, ids in _FILTERS:
        if setting not in plan.filters:
            continue
        if ids is not None:
            engine.make(ids[0], ids[1].format(previous=previous, **plan.filters))
        left = f"{previous} WHERE {condition.format(**plan.filters)}"
        num_left = engine.count(left)
        counts[label] = num_rows - num_left
        if num_left == 0:
            dropped = ", ".join(
                f"{count:,} {label.removeprefix('num_').replace('_', ' ')}"
                for label, count in counts.items()
            )
            applied = ", ".join(f"{name} {value:g}" for name, value in plan.filters.items())
            raise InputError(f"every row is filtered away: {dropped}; the filters are {applied}")
        # Rows are copied only where some go: it takes as long as counting ten times.
        if num_left < num_rows:
            engine.make(table, f"SELECT * FROM {left}")
            engine.drop(previous)
            previous, num_rows = table, num_left
    return previous


def collapse_pairs(engine: Engine, previous: str, plan: Plan, counts: dict[str, int]) -> None:
    """Make ``user_codes``, ``item_codes`` and ``pairs``: every (user, item) once, its earliest."""
    num_rows = engine.count(previous)
    query = steps.DISTINCT_HELD.format(previous=previous)
    num_given = engine.run(query) if plan.parts else []
    engine.make("user_codes", steps.USER_CODES.format(previous=previous))
    engine.make("item_codes", steps.ITEM_CODES.format(previous=previous))
    engine.make("pairs", steps.PAIRS.format(previous=previous))
    engine.drop(previous)
    counts["num_repeated_pairs"] = num_rows - engine.count("pairs")
    for number, num_pairs in num_given:
        num_left = engine.count(f"pairs WHERE time = {number}")
        counts[f"num_{plan.parts[number]}_pairs_in_an_earlier_part"] = num_pairs - num_left


def split_pairs(
    engine: Engine, plan: Plan, config: PrepareConfig, counts: dict[str, int]
) -> list[str]:
    """Make ``held`` and ``train`` by the protocol; the names of the held-out parts.

    Raises InputError where the input is too small to hold anything out.
    """
    keys = {
        "pair_key": steps.PAIR_KEY.format(seed=config.seed),
        "user_key": steps.USER_KEY.format(seed=config.seed),
    }
    _check_can_hold_out(engine, plan)
    if plan.protocol == "leave-one-out":
        counts["num_users_with_fewer_than_3_items"] = _num_users_below(engine, 3)
        sql = steps.HELD_LEAVE_ONE_OUT.format(num_held=1 + plan.has_validation, **keys)
    elif plan.protocol == "held-out-users":
        counts["num_users_with_fewer_than_2_items"] = _num_users_below(engine, 2)
        sizes = _sizes(_num_heldout_users(engine, config), plan.has_validation)
        sql = steps.HELD_USERS.format(**sizes, **keys)
    elif plan.protocol == "temporal":
        sizes = _sizes(engine.count("pairs") // 10, plan.has_validation)
        sql = steps.HELD_TEMPORAL.format(**sizes, **keys)
    elif plan.protocol == "given":
        cases = (f"WHEN {number} THEN '{part}'" for number, part in enumerate(plan.parts))
        sql = steps.HELD_GIVEN.format(cases=" ".join(cases))
    else:
        sql = steps.HELD_NOTHING
    engine.make("held", sql)
    engine.make("train", steps.TRAIN_GIVEN if plan.parts else steps.TRAIN)
    check_fold_in(engine, plan.parts)
    parts = _check_parts(engine, plan)
    engine.drop("pairs")
    if plan.drops_unseen_targets:
        _drop_unseen_targets(engine, parts, counts)
    return parts


def _drop_unseen_targets(engine: Engine, parts: list[str], counts: dict[str, int]) -> None:
    """Leave targets that training never saw out of ``held``, counting them and their users."""
    engine.make("seen", steps.SEEN)
    for part in parts:
        if part.endswith("_fold_in"):
            continue
        split, rows = part.removesuffix("_target"), f"WHERE part = '{part}'"
        users = f"(SELECT DISTINCT user_code FROM {{}} {rows})"
        num_users = engine.count(users.format("seen"))
        if num_users == 0:
            raise InputError(
                f"nothing is left of the {split} part: training has none of its items; "
                "--unseen-targets keep (unseen_targets='keep' in Python) counts them as misses"
            )
        counts[f"num_{split}_targets_dropped_as_unseen"] = engine.count(
            f"held {rows}"
        ) - engine.count(f"seen {rows}")
        counts[f"num_{split}_users_left_without_target"] = (
            engine.count(users.format("held")) - num_users
        )
    engine.drop("held")
    engine.run("ALTER TABLE seen RENAME TO held")


def number(engine: Engine) -> None:
    """Make ``users`` and ``items``: the dense indexes of the finished dataset."""
    engine.make("users", steps.USERS)
    engine.make("items", steps.ITEMS)


def count_parts(engine: Engine, plan: Plan, parts: list[str], counts: dict[str, int]) -> None:
    """Count users, items and interactions of the finished dataset and of each of its parts."""
    counts["num_users"] = engine.count("users")
    counts["num_items"] = engine.count("items")
    counts["num_interactions"] = engine.count("train") + engine.count("held")
    counts["num_train_users"] = engine.count("users WHERE part = 'train'")
    counts["num_train_items"] = engine.count("items WHERE in_catalogue")
    counts["num_train_interactions"] = engine.count("train")
    for part in parts:
        rows = f"held WHERE part = '{part}'"
        counts[f"num_{part}_interactions"] = engine.count(rows)
        if part.endswith("_fold_in"):
            continue
        split = part.removesuffix("_target")
        counts[f"num_{split}_users"] = engine.count(f"(SELECT DISTINCT user_code FROM {rows})")
        counts[f"num_{split}_targets_unseen_in_training"] = engine.count(
            f"held JOIN items USING (item_code) WHERE part = '{part}' AND NOT in_catalogue"
        )
    count_given(engine, plan.parts, counts)


def describe_limits(parts: list[str], counts: dict[str, int]) -> dict[str, str]:
    """Notes on parts that nothing can be learned from or measured on, by their names."""
    notes = {}
    if counts["num_train_users"] == 1:
        notes["training"] = "nothing can be learned from one user alone"
    for part in parts:
        split = part.removesuffix("_target")
        num_unseen = counts.get(f"num_{split}_targets_unseen_in_training")
        if num_unseen == counts[f"num_{part}_interactions"]:
            notes[split] = "nothing can be measured: training has none of its items"
    return notes


def _check_can_hold_out(engine: Engine, plan: Plan) -> None:
    """InputError where items of users are to be held out, and every user has only one."""
    if plan.protocol not in ("leave-one-out", "held-out-users"):
        return
    num_users = engine.count("user_codes")
    if engine.count("pairs") == num_users:
        raise InputError(
            "nothing can be held out, as every user has one item only "
            f"({counted(num_users, 'user')}, column {shown(plan.columns['user_id'])}); name "
            "another column of users with --user-column (user_column=... in Python), or train on "
            "all of it with --protocol none"
        )


def _num_users_below(engine: Engine, num_items: int) -> int:
    """Users with too few items for any to be held out: they only train."""
    return engine.count(
        f"(SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) < {num_items})"
    )


def _num_heldout_users(engine: Engine, config: PrepareConfig) -> int:
    """Users of each held-out part: those asked for, or a tenth of those with two items or more."""
    eligible = engine.count("(SELECT user_code FROM pairs GROUP BY user_code HAVING count(*) >= 2)")
    num_parts = 1 + (config.validation == "hold-out")
    num_users = config.num_heldout_users or max(1, eligible // 10)
    if eligible <= num_users * num_parts:
        asked = f"{num_users:,} held-out users in each of {num_parts} parts"
        raise SettingError(
            f"protocol held-out-users: {asked} leaves nobody to train on, for {eligible:,} users "
            "have two items or more; hold out fewer with --num-heldout-users, or use --protocol "
            "none to train on all of them"
        )
    return num_users


def _sizes(num_held: int, with_validation: bool) -> dict[str, int]:
    return {"num_test": num_held, "num_validation": num_held if with_validation else 0}


def _check_parts(engine: Engine, plan: Plan) -> list[str]:
    """The held-out parts there must be; InputError where one came out empty."""
    if plan.protocol == "none":
        return []
    found = {part for (part,) in engine.run("SELECT DISTINCT part FROM held")}
    if engine.count("train"):
        found.add("train")
    if plan.parts:
        for part in plan.parts:
            if part not in found:
                raise InputError(
                    f"nothing is left of the {part} part: each of its pairs is filtered away or in "
                    "an earlier part already; give other files or filters"
                )
        return list(plan.parts[1:])
    splits = ["validation", "test"] if plan.has_validation else ["test"]
    kinds = ("_fold_in", "_target") if plan.protocol == "held-out-users" else ("",)
    parts = [split + kind for split in splits for kind in kinds]
    if found != {"train", *parts}:
        raise InputError(
            f"too few interactions for protocol {plan.label}: after the filters there are "
            f"{engine.count('pairs'):,} of {engine.count('user_codes'):,} users, and leave-one-out "
            "needs users with three items, held-out-users with two, temporal ten interactions; "
            "use --protocol none to train on all of them"
        )
    return parts


def write_parts(
    engine: Engine,
    directory: Path,
    held_parts: list[str],
    kinds: Mapping[str, Kind],
    item_columns: list[str],
    has_candidates: bool,
) -> dict[str, Part]:
    """Write every Parquet file; its description, by file name."""
    queries = {"train": steps.PAIRS_FILE.format(rows="train")}
    for part in held_parts:
        rows = f"(SELECT user_code, item_code FROM held WHERE part = '{part}')"
        queries[part] = steps.PAIRS_FILE.format(rows=rows)
    if has_candidates:
        queries["test_candidates"] = steps.PAIRS_FILE.format(rows="candidates")
    # However few bits were enough for them in between.
    ids = {
        role: f"CAST({role} AS BIGINT)" if kind == "integer" else role
        for role, kind in kinds.items()
    }
    queries["users"] = steps.USERS_FILE.format(user_id=ids["user_id"])
    queries["items"] = steps.ITEMS_FILE.format(
        item_id=ids["item_id"],
        item_columns="".join(f", {name}" for name in item_columns),
        described=steps.DESCRIBED if item_columns else "",
    )
    parts = {}
    for name, query in queries.items():
        path = directory / f"{name}.parquet"
        try:
            engine.run(f"COPY ({query}) TO {quoted(real_path(path))} (FORMAT parquet)")
        except InputError as error:
            raise DatasetError(f"{path}: cannot be written: {error}") from None
        with pq.ParquetFile(real_path(path)) as file:
            # The engine is trusted to sort, and was caught not to; a reader would refuse the file.
            assert is_in_order(file), f"{path.name} came out unsorted"
            parts[path.name] = Part(
                num_rows=file.metadata.num_rows,
                sha256=file_sha256(path),
                content_digest=content_digest(file),
            )
    return parts
