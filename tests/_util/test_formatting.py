"""Numbers, values and suggestions in messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste._util.formatting import (
    compact,
    did_you_mean,
    duration,
    memory,
    option_words,
    pluralize,
    without_secrets,
)
from tests.messages import says


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
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_counts_of_nouns() -> None:
    assert [pluralize(count, "user") for count in (0, 1, 2000)] == [
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
        "features": ("kind", "tags,"),
        "cuda_graphs": True, "verified_negatives": False, "learning_rate": 0.01,
    }  # fmt: skip
    assert option_words(settings) == [
        *("--items", "a b.csv", "--columns", "id,-", "--layers", "64", "32"),
        *("--features", "kind", "tags,"),
        *("--cuda-graphs", "--no-verified-negatives", "--learning-rate", "0.01"),
    ]


def test_the_nearest_name_of_the_folder(tmp_path: Path) -> None:
    for name in ("ratings.csv", "movies.csv"):
        (tmp_path / name).touch()
    says(did_you_mean(tmp_path / "rating.csv"), tmp_path / "ratings.csv")
    assert did_you_mean(tmp_path / "users.parquet") == ""
    assert did_you_mean(tmp_path / "*.csv") == ""
    says(did_you_mean(tmp_path / "MOVIE.CSV"), tmp_path / "movies.csv")


def test_the_nearest_name_in_a_folder_that_is_spelled_wrongly_too(tmp_path: Path) -> None:
    (tmp_path / "datasets" / "retail").mkdir(parents=True)
    (tmp_path / "dataset.csv").touch()
    for name in ("dataset/retail", "Datasets/retail", "DATASET/retial"):
        says(did_you_mean(tmp_path / name), tmp_path / "datasets" / "retail")
    assert did_you_mean(Path("absent") / "absent" / "retail") == ""


def test_suggested_folders_hold_the_required_file(tmp_path: Path) -> None:
    for name in ("run-1", "run-12", "run-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "run-3" / "config.json").touch()
    says(did_you_mean(tmp_path / "run-2", holding="config.json"), tmp_path / "run-3")
    assert did_you_mean(tmp_path / "run-2", holding="manifest.json") == ""


SECRETS = [
    *(f"{kind}://me:s3cret@host/db" for kind in (
        "mysql", "postgresql+psycopg", "postgresql+asyncpg", "mssql+pyodbc", "snowflake",
        "mongodb+srv", "POSTGRESQL", "Postgres", " postgresql", "jdbc:postgresql", "https",
    )),
    "redis://:s3cret@host/0", "s3://KEY:s3cret/a+b@bucket/plays", "postgresql//me:s3cret@host/db",
    "postgresql:/me:s3cret@host/db", "postgresql://me:p@ss:s3cret@host/db",
    "postgresql://me:my s3cret@host/db", "postgresql://me:my\ns3cret@host/db",
    "postgresql://me@host/db?password=s3cret", "postgresql://me@host/db?application_name=s3cret",
    "https://host/plays.csv?X-Amz-Date=1&X-Amz-Signature=s3cret", "duckdb:///x?password=s3cret",
    "host=h user=me password=s3cret", "host=h password = 'my s3cret' user=me",
    "jdbc:sqlserver://host;user=me;password=s3cret", "jdbc:mysql://host/db?user=me&PWD=s3cret",
    "PGPASSWORD=s3cret", "fs.s3a.access.key=1 aws_secret_access_key=s3cret", "Api-Key=s3cret",
    'token="s3cret"',
]  # fmt: skip


@pytest.mark.parametrize("source", SECRETS)
@pytest.mark.parametrize(
    "message", ["{}: is no file here; ask a@b", "got {!r}; leave it out", "{}"]
)
def test_secrets_are_not_in_messages(source: str, message: str) -> None:
    shown = without_secrets(message.format(source))
    assert "s3cret" not in shown
    assert shown.startswith(message.format(source)[:4])
    assert shown.endswith(message.partition("}")[2])


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:/shop.db: is no URL; give sqlite:///events.db or postgresql://user@host/database",
        "spark://host:7077 does not answer; postgresql://user@host/database does",
        "events is 'sqlite:///:memory:'; it must be postgresql://user@host/database",
        "sqlite:///:memory: must be postgresql://user@host/database",
        "--token-file FILE (token_file=... in Python)",
        "s3a://bucket/part-?.parquet: holds no rows",
        "logs/a:b@c.csv, line 3: user_id 'a@b' is not an integer",
    ],
)
def test_messages_without_secrets_stay_unchanged(text: str) -> None:
    assert without_secrets(text) == text
