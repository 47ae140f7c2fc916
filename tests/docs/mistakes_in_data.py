"""Mistakes in files, columns, values, splits and datasets, by the entry's heading."""

from __future__ import annotations

import gzip
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.data.file_server import serving
from tests.databases import require_adbc, write_sqlite
from tests.docs.mistakes import (
    HEADER,
    PAIRS,
    PREPARE,
    RATINGS,
    Mistake,
    csv,
    cut,
    damage,
    edit_json,
    make_folder,
    parquet,
    python,
    remove,
    row,
    rows,
    run,
)
from tests.spark import require_spark

DATES = "user_id,item_id,date\n"
_SPLIT = {"train.csv": PAIRS + "1,10\n1,11\n2,10\n", "test.csv": PAIRS + "1,12\n"}
_NCF = {
    "x.train.rating": "1\t10\t1\t1\n2\t11\t1\t1\n2\t12\t1\t1\n",
    "x.test.rating": "1\t11\t1\t2\n",
}


@contextmanager
def small_disk() -> Iterator[None]:
    """No file gets longer than 1,000 bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextmanager
def without_pyspark() -> Iterator[None]:
    """As where the extra is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyspark", None)
        yield


@contextmanager
def with_pyspark() -> Iterator[None]:
    require_spark()
    yield


@contextmanager
def with_adbc() -> Iterator[None]:
    require_adbc()
    yield


@contextmanager
def without_adbc() -> Iterator[None]:
    """As where the extra is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "adbc_driver_sqlite", None)
        yield


def make_tables() -> None:
    for table in ("orders", "customers"):
        write_sqlite(Path("shop.db"), f"CREATE TABLE {table} (user_id, item_id)")


@contextmanager
def without_java() -> Iterator[None]:
    """PySpark is there, and neither JAVA_HOME nor any program."""
    with with_pyspark(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("JAVA_HOME", raising=False)
        patch.setenv("PATH", "")
        yield


@contextmanager
def server_without_files() -> Iterator[None]:
    """A mirror that has nothing."""
    with serving({}) as server, mirror(server.url):
        yield


@contextmanager
def other_archive() -> Iterator[None]:
    """A mirror with another archive of that name."""
    with serving({"/ml-100k.zip": b"another"}) as server, mirror(server.url):
        yield


@contextmanager
def mirror(url: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORETASTE_MOVIELENS_URL", url)
        patch.setenv("XDG_CACHE_HOME", "cache")
        yield


@contextmanager
def nobody_listens() -> Iterator[None]:
    with mirror("http://127.0.0.1:9"):
        yield


FILES = {
    "No source": run("prepare --seed 2"),
    "There is no such file": run("prepare ratngs.csv"),
    "A name that Spark reads": run("prepare s3a://shop/plays"),
    "A database that is not there": Mistake(command="prepare sqlite:///shop.db", within=with_adbc),
    "A database, and no ADBC": Mistake(command="prepare sqlite:///shop.db", within=without_adbc),
    "A database's address that cannot be": Mistake(
        command="prepare postgresql:/shop", within=with_adbc
    ),
    "A database of several tables": Mistake(
        command="prepare sqlite:///shop.db", change=make_tables, within=with_adbc
    ),
    "A query that cannot be run": Mistake(
        command="prepare sqlite:///shop.db --query 'SELECT sku FROM orders'",
        change=make_tables,
        within=with_adbc,
    ),
    "A query, and no database": run(f"{PREPARE} --query 'SELECT * FROM orders'"),
    "A folder of what was made": run("prepare runs"),
    "A folder without files": run("prepare logs", make_folder("logs")),
    "A path that cannot be read": Mistake(
        command="prepare 'logs\\2024/[a].csv'", files={"logs\\2024/[a].csv": RATINGS}
    ),
    "A format that cannot be told": run("prepare u.data", u__data="1\t2\n"),
    "A compression that is not read": run("prepare ratings.zip", ratings__zip=b"PK\x03\x04"),
    "A spreadsheet": run("prepare ratings.xlsx", ratings__xlsx=b"PK\x03\x04"),
    "A pickle": run("prepare train_ratings.pickle", train_ratings__pickle=b"\x80\x04."),
    "NumPy arrays": run("prepare train_data.npz", train_data__npz=b"PK\x03\x04"),
    "A line that is no JSON object": run(
        "prepare ratings.jsonl",
        ratings__jsonl='{"user_id": 1, "item_id": 2}\n{"user_id": 1, "item_id": }\n',
    ),
    "Not what its name says": csv(b"PK\x03\x04..."),
    "A compressed file that is cut": Mistake(
        command="prepare ratings.csv.gz",
        files={"ratings.csv.gz": gzip.compress(RATINGS.encode())[:40]},
    ),
    "Not readable Parquet": run("prepare ratings.parquet", ratings__parquet=b"PAR1..."),
    "An empty file": csv(""),
    "A blank first line": csv("\n" + RATINGS),
    "No rows": csv(HEADER),
    "Not UTF-8": csv(HEADER.encode() + b"1,100,3,4\n2,caf\xe9,3,4\n"),
    "UTF-16": csv(RATINGS.encode("utf-16")),
    "Not little-endian UTF-16": csv(RATINGS.encode(), f"{PREPARE} --encoding utf-16"),
    "Not latin-1": csv(HEADER.encode() + b"1,\x93100\x94,3,4\n", f"{PREPARE} --encoding latin-1"),
    "Too many or too few fields": row("1,101,3"),
    "A quote that is never closed": row('1,"101,3,4'),
    "A first line that cannot be parsed": csv('user_id,"item"_id\n1,2\n'),
    "A line that is too long": csv("user_id,item_id," + "x" * (1 << 21) + "\n1,2\n"),
    "A line that never ends": csv(HEADER + rows() + "\0" * 2_000_001),
    "Mixed line endings": csv("user_id,item_id\n1,2\r\n1,3\n1,4\r\n"),
    "Too many columns": csv(",".join(f"c{number}" for number in range(10_001)) + "\n"),
    "Options for text, and no file of text": run(
        "prepare ratings.parquet --delimiter ;",
        ratings__parquet=parquet({"user_id": [1], "item_id": [2]}),
    ),
    "Not a table that is known": python("foretaste.prepare({'user_id': [1], 'item_id': [2]})"),
    "Rows in a list": python("foretaste.prepare([(1, 100), (1, 101)])"),
    "An empty frame": python("import pandas; foretaste.prepare(pandas.DataFrame())"),
    "A column of several types": python(
        "import pandas; "
        "foretaste.prepare(pandas.DataFrame({'user_id': [1, 2], 'item_id': [1, 'x']}))"
    ),
}

COLUMNS = {
    "No column of users or items": csv("listener,track\nana,nocturne\n"),
    "No line of column names": csv("196,242,3,881250949\n186,302,3,891717742\n"),
    "No line of column names, and a column asked for": csv(
        "alice,42,5\nbob,42,4\n", f"{PREPARE} --user-column user"
    ),
    "No line of column names, and text in all columns": csv("ana,nocturne\nben,bolero\n"),
    "A column that is not there": run(f"{PREPARE} --user-column buyer"),
    "Two columns that could be meant": csv("user_id,userId,item_id\n1,2,3\n"),
    "One column for two roles": run(f"{PREPARE} --user-column item_id"),
    "A column that comes twice": csv("user_id,item_id,item_id\n1,2,3\n"),
    "A column that comes twice, case aside": run(
        "prepare ratings.parquet",
        ratings__parquet=parquet({"user_id": [1], "Item_id": [2], "item_ID": [3]}),
    ),
    "Files with other columns": run(
        "prepare ratings.csv more.csv", more__csv="user_id,film\n1,2\n"
    ),
    "Times in some files only": run("prepare more.csv ratings.csv", more__csv=PAIRS + "1,100\n"),
    "Column names where there should be none": run(
        f"{PREPARE} --columns user_id,item_id,rating,timestamp"
    ),
    "Names for fewer fields than there are": csv(
        rows(), f"{PREPARE} --columns user_id,item_id,rating"
    ),
    "Ids that are no ids": run(
        "prepare ratings.parquet", ratings__parquet=parquet({"user_id": [1.5], "item_id": [2]})
    ),
    "No column of items in the file of items": run(
        f"{PREPARE} --items movies.csv", movies__csv="film,title\n100,One\n"
    ),
    "No line of column names in the file of items": run(
        f"{PREPARE} --items movies.csv", movies__csv="100,One\n101,Two\n"
    ),
    "Two columns of the file of items that could be meant": run(
        f"{PREPARE} --items movies.csv", movies__csv="item_id,title,Title\n100,One,Uno\n"
    ),
    "A column of titles, and no file of items": run(f"{PREPARE} --title-column name"),
    "A column of titles that holds the ids": run(
        f"{PREPARE} --items movies.csv --title-column item_id"
    ),
    "Several files of items": Mistake(
        command="prepare ratings.csv --items titles",
        files={"titles/a.csv": PAIRS, "titles/b.csv": PAIRS},
    ),
    "An item described twice": run(
        f"{PREPARE} --items movies.csv", movies__csv="item_id,title\n100,One\n100,Uno\n"
    ),
    "Items that nobody has": run(
        f"{PREPARE} --items movies.csv", movies__csv="item_id,title\ntt100,One\n"
    ),
}

VALUES = {
    "An id is empty": row(",101,3,4"),
    "A time that is none": row("1,101,3,soon"),
    "A date with the day first": csv(DATES + "1,2,01/02/2020\n1,3,31/12/2020\n"),
    "A time that is not of its format": csv(
        DATES + "1,2,31/12/2020\n1,3,2020-12-31\n", f"{PREPARE} --time-format %d/%m/%Y"
    ),
    "Times with and without a UTC offset": csv(
        DATES + "1,2,2024-10-27 02:30:00+02:00\n1,3,2024-10-27 02:10:00\n"
        "1,4,2024-10-27 01:50:00+02:00\n"
    ),
    "A time that is too fine": csv(
        DATES + "1,2,2024-10-27 02:30:00\n1,3,2024-10-27 02:10:00.0123456789\n"
    ),
    "A time of too many digits": csv(DATES + "1,2,1\n1,3,1234567890.0123456789\n"),
    "A JSON number of too many digits": run(
        "prepare ratings.jsonl",
        ratings__jsonl='{"user": 1, "item": 2, "time": 1.5}\n'
        '{"user": 1, "item": 3, "time": 1700000000.123456789}\n',
    ),
    "A rating that is none": row("1,101,good,4", f"{PREPARE} --min-rating 4"),
    "A decimal comma": row('1,101,"0,5",4', f"{PREPARE} --min-rating 4"),
    "A NUL character": row("1,b\x00,3,4"),
}

SETTINGS = {
    "A delimiter that cannot be": run(f"{PREPARE} --delimiter ,,,,,"),
    "Columns that are no list of names": run(f"{PREPARE} --columns user_id"),
    "A number that is too small": run(f"{PREPARE} --min-item-users 0"),
    "A smallest rating that is no number": run(f"{PREPARE} --min-rating nan"),
    "A rule on ratings without ratings": csv(PAIRS + "1,2\n", f"{PREPARE} --min-rating 4"),
    "A seed that cannot be": run(f"{PREPARE} --seed -1"),
    "A time format that cannot be": run(f"{PREPARE} --time-format %Q"),
    "A time format, and times that are no text": run(
        "prepare ratings.parquet --time-format %d/%m/%Y",
        ratings__parquet=parquet({"user_id": [1], "item_id": [2], "time": [3]}),
    ),
    "A time format, and no times to read": run(
        f"{PREPARE} --protocol held-out-users --time-format %d/%m/%Y"
    ),
    "A memory limit that cannot be": run(f"{PREPARE} --memory-limit 4"),
    "Too little memory": csv(HEADER + rows(20_000), f"{PREPARE} --memory-limit 2MB --threads 1"),
    "A master without Spark": run(f"{PREPARE} --spark-master yarn"),
    "A master, and threads": run(f"{PREPARE} --engine spark --spark-master yarn --threads 2"),
    "Too little memory for Spark": Mistake(
        command=f"{PREPARE} --engine spark --memory-limit 500MB", within=with_pyspark
    ),
    "Spark without PySpark": Mistake(command=f"{PREPARE} --engine spark", within=without_pyspark),
    "Spark without Java": Mistake(command=f"{PREPARE} --engine spark", within=without_java),
    "A table that is in memory, for Spark": Mistake(
        python="import pandas\n"
        "foretaste.prepare(pandas.DataFrame({'user_id': [1], 'item_id': [2]}), engine='spark')",
        within=with_pyspark,
    ),
    "Held-out users under another protocol": run(
        f"{PREPARE} --protocol temporal --num-heldout-users 5"
    ),
    "Held-out users without that protocol": run(f"{PREPARE} --num-heldout-users 5"),
    "Temporal without times": csv(PAIRS + "1,2\n", f"{PREPARE} --protocol temporal"),
    "Every row is filtered away": run(f"{PREPARE} --min-user-interactions 20"),
    "Too few interactions": csv(f"{HEADER}1,100,3,4\n1,101,3,5\n"),
    "Users with one item each": csv(f"{PAIRS}1,100\n2,100\n3,101\n"),
    "Nobody left to train on": run(f"{PREPARE} --protocol held-out-users --num-heldout-users 20"),
}

SPLITS = {
    "A source and a split": run(f"{PREPARE} --test ratings.csv"),
    "A split without its training part": run("prepare --test ratings.csv"),
    "A split without anything held out": run("prepare --train ratings.csv"),
    "Fold-in items without targets": Mistake(
        command="prepare --train train.csv --test test.csv --validation-fold-in test.csv",
        files=_SPLIT,
    ),
    "A split that would be split": Mistake(
        command="prepare --train train.csv --test test.csv --protocol temporal", files=_SPLIT
    ),
    "No validation, and a validation part": python(
        "foretaste.prepare(foretaste.GivenSplit(train='ratings.csv', validation='ratings.csv'), "
        "config=foretaste.PrepareConfig(validation='none'))"
    ),
    "Fold-in items of a known user": Mistake(
        command="prepare --train train.csv --test test.csv --test-fold-in known.csv",
        files=_SPLIT | {"known.csv": PAIRS + "1,13\n"},
    ),
    "A part of which nothing is left": Mistake(
        command="prepare --train train.csv --test train.csv", files=_SPLIT
    ),
    "A user without candidates": Mistake(
        command="prepare --train train.csv --test test.csv --test-candidates candidates.csv",
        files=_SPLIT | {"candidates.csv": PAIRS + "2,11\n"},
    ),
    "A line that is not as in the NCF paper": Mistake(
        command="prepare x.train.rating", files=_NCF | {"x.test.negative": "1,11\t12\n"}
    ),
    "A line without its test interaction": Mistake(
        command="prepare x.train.rating", files=_NCF | {"x.test.negative": "(1,12)\t10\n"}
    ),
    "A rule on candidates without candidates": run(f"{PREPARE} --target-in-candidates drop"),
}

NAMED_SETS = {
    "A name that no set has": run("prepare ml-10m"),
    "A folder for what is no named set": run(f"{PREPARE} --source-dir downloads"),
    "A folder without the set": run("prepare ml-1m --source-dir .", make_folder("downloads")),
    "A named set is written in its own way": run("prepare ml-1m --delimiter ;"),
    "The server does not have it": Mistake(command="prepare ml-100k", within=server_without_files),
    "The server cannot be reached": Mistake(command="prepare ml-100k", within=nobody_listens),
    "Another checksum": Mistake(command="prepare ml-100k", within=other_archive),
    "An archive with another checksum": Mistake(
        command="prepare ml-1m --source-dir .", files={"ml-1m.zip": b"another"}
    ),
    "An address that is none": Mistake(
        command="prepare ml-100k", within=lambda: mirror("ftp://example.org")
    ),
}

DATASETS = {
    "Not a prepared dataset": python("foretaste.open_dataset('runs')"),
    "Not a directory": python("foretaste.open_dataset('ratings.csv')"),
    "A dataset of another version": run(
        "train popularity data", edit_json("data/manifest.json", "format_version", value=7)
    ),
    "A manifest that was changed": run(
        "train popularity data", edit_json("data/manifest.json", "seed", value=7)
    ),
    "A manifest that cannot be read": run("train popularity data", cut("data/manifest.json")),
    "A part that was changed": run("train popularity data", damage("data/train.parquet")),
    "A part that is missing": run("train popularity data", remove("data/train.parquet")),
    "A dataset that is there already": run(f"{PREPARE} --output data"),
    "A store as output": run(f"{PREPARE} --output s3a://bucket/plays"),
    "A directory with other files": run(f"{PREPARE} --output runs"),
    "An output that is a file": run(f"{PREPARE} --output movies.csv"),
    "An output that is no path": python(
        "foretaste.prepare('ratings.csv', foretaste.PrepareConfig(min_rating=4))"
    ),
    "Settings for a dataset that is prepared": run("train popularity data --filters reference"),
    "The disk is full": Mistake(command=f"{PREPARE} --output new --threads 1", within=small_disk),
}
