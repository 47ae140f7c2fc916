"""Facts of the tiny shop, worked out from its data and not from the code under test."""

from __future__ import annotations

from collections import Counter

from foretaste.recommend import Recommender
from tests.runs.tiny import FIRST_USER, NUM_USERS, items_of

HISTORIES = {FIRST_USER + user: set(items_of(user)) for user in range(NUM_USERS)}


def trained_users(recommender: Recommender) -> list[int]:
    return [int(value) for value in recommender.run.users.ids()[: recommender.run.num_train_users]]


def new_users(recommender: Recommender) -> list[int]:
    return [int(value) for value in recommender.run.users.ids()[recommender.run.num_train_users :]]


def popularity_order(recommender: Recommender) -> list[int]:
    """Every item of the catalogue: most training users first, then by id."""
    counts = Counter(item for user in trained_users(recommender) for item in HISTORIES[user])
    return sorted(counts, key=lambda item: (-counts[item], item))


def unseen_item(recommender: Recommender) -> int:
    """An item that only held-out users have."""
    return int(recommender.run.items.ids()[recommender.run.num_items])
