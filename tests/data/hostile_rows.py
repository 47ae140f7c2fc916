"""Files of oddly written rows that engines must read alike."""

from __future__ import annotations

import csv
import random
from pathlib import Path

USERS = [
    *("007", "7", "a:b", "a", "Zoë", "zoe", "日本", "😀", "x y", " lead", "trail ", "O'Neil"),
    *('say "hi"', "a,b", "line\nbreak", "back\\slash", "%", "_", "1.0", "-0", "0", "1e5"),
    *("null", "NaN", "é", "e\u0301", "tab\tin"),
]
ITEMS = [
    *("b:c", "c", "x", "10", "9", "08", "Ω", "ß", "ss", "'b", "''", "a\\nb", ";", "::", "{}", "$1"),
    *(f"item {number}" for number in range(12)),
]
ZONES = ["+02:00", "Z", " UTC", "+0530", " Europe/Berlin", "-03:30", "+00"]
FRACTIONS = ["", ".5", ".123456", ".000000000", ".123456789"]
COLUMNS = ("user id", "item_id", "rating", "timestamp")

Row = tuple[str, str, str, str]


def hostile_rows(num_rows: int = 400) -> list[Row]:
    """Rows with repeats, ties in time, an hour that occurs twice, and users with few items."""
    rng = random.Random(1)
    rows = []
    for _ in range(num_rows):
        user = USERS[min(int(rng.expovariate(0.1)), len(USERS) - 1)]
        item = ITEMS[min(int(rng.expovariate(0.12)), len(ITEMS) - 1)]
        clock = f"{rng.choice([0, 1, 2, 3]):02d}:{rng.choice([0, 30]):02d}:00"
        time = f"2024-10-{rng.randint(25, 28)} {clock}{rng.choice(FRACTIONS)}{rng.choice(ZONES)}"
        rows.append((user, item, rng.choice(["1", "2.5", "4", "5", "4.0", "1e0"]), time))
    return [*rows, *rng.choices(rows, k=num_rows // 10)]


def write_csv(path: Path, rows: list[Row], columns: tuple[str, ...] = COLUMNS) -> Path:
    """Delimited text, by tabs if its name ends in .tsv, with its columns in this order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writerow(columns)
        order = [COLUMNS.index(column) for column in columns]
        writer.writerows([[row[position] for position in order] for row in rows])
    return path
