"""From raw rows to numbered parts: filters, repeats, the split and the indexes, step by step."""

from __future__ import annotations

from collections.abc import Callable

from foretaste.data import steps
from foretaste.data.config import PrepareConfig
from foretaste.data.engine import Engine
from foretaste.data.plan import Plan
from foretaste.errors import InputError, SettingError

Progress = Callable[[str], None]

_FILTER_STEPS = (
    ("min_rating", "rated", steps.RATED, "num_rows_rated_too_low"),
    ("min_item_users", "frequent", steps.FREQUENT, "num_rows_of_rare_items"),
    ("min_user_interactions", "active", steps.ACTIVE, "num_rows_of_inactive_users"),
)


def filter_rows(engine: Engine, plan: Plan, counts: dict[str, int]) -> str:
    """Drop what the filters drop, counting it; the name of the table with what is left.

    Raises InputError with the count of every step where nothing is left.
    """
    previous, num_rows = "raw", engine.count("raw")
    counts["num_rows_read"] = num_rows
    for setting, table, sql, label in _FILTER_STEPS:
        if setting not in plan.filters:
            continue
        engine.make(table, sql.format(previous=previous, **plan.filters))
        engine.drop(previous)
        num_left = engine.count(table)
        counts[label] = num_rows - num_left
        previous, num_rows = table, num_left
        if num_left == 0:
            raise _nothing_left(plan, counts)
    return previous


def collapse_pairs(engine: Engine, previous: str, counts: dict[str, int]) -> None:
    """Make ``user_codes``, ``item_codes`` and ``pairs``: every (user, item) once, its earliest."""
    num_rows = engine.count(previous)
    engine.make("user_codes", steps.USER_CODES.format(previous=previous))
    engine.make("item_codes", steps.ITEM_CODES.format(previous=previous))
    engine.make("pairs", steps.PAIRS.format(previous=previous))
    engine.drop(previous)
    counts["num_repeated_pairs"] = num_rows - engine.count("pairs")


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
    with_validation = config.validation == "hold-out"
    if plan.protocol == "leave-one-out":
        counts["num_users_with_fewer_than_3_items"] = _num_users_below(engine, 3)
        sql = steps.HELD_LEAVE_ONE_OUT.format(num_held=1 + with_validation, **keys)
    elif plan.protocol == "held-out-users":
        counts["num_users_with_fewer_than_2_items"] = _num_users_below(engine, 2)
        sizes = _sizes(_num_heldout_users(engine, config), with_validation)
        sql = steps.HELD_USERS.format(**sizes, **keys)
    elif plan.protocol == "temporal":
        sizes = _sizes(engine.count("pairs") // 10, with_validation)
        sql = steps.HELD_TEMPORAL.format(**sizes, **keys)
    else:
        sql = steps.HELD_NOTHING
    engine.make("held", sql)
    engine.make("train", steps.TRAIN)
    return _check_parts(engine, plan, with_validation)


def number(engine: Engine) -> None:
    """Make ``users`` and ``items``: the dense indexes of the finished dataset."""
    engine.make("users", steps.USERS)
    engine.make("items", steps.ITEMS)


def count_parts(engine: Engine, parts: list[str], counts: dict[str, int]) -> None:
    """Count users, items and interactions of the finished dataset and of each of its parts."""
    counts["num_users"] = engine.count("users")
    counts["num_items"] = engine.count("items")
    counts["num_interactions"] = engine.count("pairs")
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
            "have two items or more; use --protocol none to train on all of them"
        )
    return num_users


def _sizes(num_held: int, with_validation: bool) -> dict[str, int]:
    return {"num_test": num_held, "num_validation": num_held if with_validation else 0}


def _check_parts(engine: Engine, plan: Plan, with_validation: bool) -> list[str]:
    """The held-out parts there must be; InputError where one came out empty."""
    if plan.protocol == "none":
        return []
    splits = ["validation", "test"] if with_validation else ["test"]
    kinds = ("_fold_in", "_target") if plan.protocol == "held-out-users" else ("",)
    found = {part for (part,) in engine.run("SELECT DISTINCT part FROM held")}
    parts = [split + kind for split in splits for kind in kinds]
    if found != set(parts) or engine.count("train") == 0:
        raise InputError(
            f"too few interactions for protocol {plan.label}: after the filters there are "
            f"{engine.count('pairs'):,} of {engine.count('user_codes'):,} users, and leave-one-out "
            "needs users with three items, held-out-users with two, temporal ten interactions; "
            "use --protocol none to train on all of them"
        )
    return parts


def _nothing_left(plan: Plan, counts: dict[str, int]) -> InputError:
    dropped = ", ".join(
        f"{count:,} {label.removeprefix('num_').replace('_', ' ')}"
        for label, count in counts.items()
    )
    applied = ", ".join(f"{name} {value:g}" for name, value in plan.filters.items())
    return InputError(f"every row is filtered away: {dropped}; the filters are {applied}")
