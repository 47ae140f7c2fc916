"""Numbers, values and suggestions as messages have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste._util.formatting import (
    compact,
    counted,
    did_you_mean,
    duration,
    memory,
    option_words,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (73.72, "73.7"),
        (830, "830"),
        (999.4, "999"),
        (999.6, "1 k"),
        (1500, "1.5 k"),
        (999_999, "1 M"),
        (1_310_000, "1.31 M"),
        (2e9, "2 G"),
    ],
)
def test_compact_numbers(number: float, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00:00"), (80, "0:01:20"), (3599.6, "1:00:00"), (None, "-:--:--"), (1e18, "-:--:--")],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counted() -> None:
    assert [counted(count, "user") for count in (0, 1, 2000)] == [
        "0 users",
        "1 user",
        "2,000 users",
    ]


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "1 MiB"),
        (310 * 2**20, "310 MiB"),
        (1023 * 2**20, "1.0 GiB"),
        (4.75e9, "4.4 GiB"),
        (2**51, "2,097,152.0 GiB"),
    ],
)
def test_memory(num_bytes: float, text: str) -> None:
    assert memory(num_bytes) == text


def test_settings_as_options() -> None:
    settings = {
        "items": Path("a b.csv"), "columns": ("id", "-"), "layers": (64, 32), "target": None,
        "cuda_graphs": True, "verified_negatives": False, "learning_rate": 0.01,
    }  # fmt: skip
    assert option_words(settings) == [
        *("--items", "a b.csv", "--columns", "id,-", "--layers", "64", "32"),
        *("--cuda-graphs", "--no-verified-negatives", "--learning-rate", "0.01"),
    ]


def test_the_nearest_name_of_the_folder(tmp_path: Path) -> None:
    for name in ("ratings.csv", "movies.csv"):
        (tmp_path / name).touch()
    assert did_you_mean(tmp_path / "rating.csv") == f"; did you mean {tmp_path}/ratings.csv?"
    assert did_you_mean(tmp_path / "users.parquet") == ""
    assert did_you_mean(tmp_path / "*.csv") == ""
    assert did_you_mean(tmp_path / "MOVIE.CSV") == f"; did you mean {tmp_path}/movies.csv?"


def test_the_nearest_name_in_a_folder_that_is_spelled_wrongly_too(tmp_path: Path) -> None:
    (tmp_path / "datasets" / "retail").mkdir(parents=True)
    (tmp_path / "dataset.csv").touch()
    meant = f"; did you mean {tmp_path}/datasets/retail?"
    for name in ("dataset/retail", "Datasets/retail", "DATASET/retial"):
        assert did_you_mean(tmp_path / name) == meant
    assert did_you_mean(Path("absent") / "absent" / "retail") == ""


def test_what_holds_the_file_that_makes_it_one(tmp_path: Path) -> None:
    for name in ("run-1", "run-12", "run-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "run-3" / "config.json").touch()
    meant = did_you_mean(tmp_path / "run-2", holding="config.json")
    assert meant == f"; did you mean {tmp_path}/run-3?"
    assert did_you_mean(tmp_path / "run-2", holding="manifest.json") == ""
