"""The interactions of a small shop for examples in the documentation."""

from __future__ import annotations


def rows(num_users: int = 40, num_items: int = 8) -> str:
    """Good rows: users from 1, items from 100 to 128, ratings from 1 to 5, times in order."""
    return "".join(
        f"{user},{(user * 3 + place * place) % 29 + 100},{1 + place % 5},{user * 10 + place}\n"
        for user in range(1, num_users + 1)
        for place in range(num_items)
    )


RATINGS = "user_id,item_id,rating,timestamp\n" + rows()
