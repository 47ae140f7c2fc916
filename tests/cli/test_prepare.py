"""``foretaste prepare`` and raw files given to ``train``."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.data import open_dataset
from tests.cli.conftest import Foretaste, refused
from tests.data import movielens
from tests.messages import Named


def test_several_files_and_overwriting(foretaste: Foretaste, shop: Path, tmp_path: Path) -> None:
    header, *rows = (shop / "ratings.csv").read_text().splitlines(keepends=True)
    for name, part in (("a.csv", rows[::2]), ("b.csv", rows[1::2])):
        (tmp_path / name).write_text("".join([header, *part]))
    for more in ((), ("--overwrite",)):
        line = f"prepare {tmp_path}/a.csv {tmp_path}/b.csv --items items.csv -o {tmp_path}/made"
        done = foretaste(line, *more)
        assert done.status == 0, done.err
    assert open_dataset(tmp_path / "made").manifest.digest == open_dataset("data").manifest.digest


def test_train_prepares_a_raw_file_once(foretaste: Foretaste, tmp_path: Path) -> None:
    line = "train popularity ratings.csv --items items.csv --protocol temporal --run"
    first, second = foretaste(line, tmp_path / "1"), foretaste(line, tmp_path / "2")
    assert first.status == second.status == 0
    said, *choices = first.out.splitlines()[:3]
    assert re.fullmatch(r"Prepared ratings.csv: datasets/ratings-[0-9a-f]+", said)
    assert choices == [
        "  protocol    temporal",
        "  columns     'user_id' as user_id, 'item_id' as item_id, 'timestamp' as time",
    ]
    assert second.out.splitlines()[:3] == [said, *choices]


def test_values_stay_apart_from_long_labels(
    foretaste: Foretaste, shop: Path, tmp_path: Path
) -> None:
    _, *items = (shop / "items.csv").read_text().splitlines()
    kinds = "".join(f"{item.split(',')[0]},{n % 3}\n" for n, item in enumerate(items))
    (tmp_path / "kinds.csv").write_text(f"item_id,kind_of_work\n{kinds}")
    features = f"--items {tmp_path}/kinds.csv --features kind_of_work --run {tmp_path}/run"
    done = foretaste(f"train popularity ratings.csv {features}")
    assert done.status == 0, done.err
    assert "  feature 'kind_of_work'  3 values" in done.out
    assert f"  {'protocol':22}  leave-one-out" in done.out


def test_train_compete_and_tune_report_rows_left_out(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = "".join(f"{n % 9},{n % 5},1\n" for n in range(90))
    (tmp_path / "orders.csv").write_text(f"user_id,item_id,quantity\n{rows}")
    said = (
        "  rows        90 read, 45 kept; left out: 45 with a user and item that are there already\n"
    )
    for line in (
        f"train popularity {tmp_path}/orders.csv --run {tmp_path}/run",
        f"tune ease {tmp_path}/orders.csv --trials 1 --output {tmp_path}/ease",
    ):
        done = foretaste(line)
        assert done.status == 0, done.err
        assert said in done.out + done.err
    table = foretaste(line.replace("/ease", "/again"), "--format csv")
    assert "Prepared" not in table.out


def write_triple(folder: Path) -> Path:
    """Write files in the NCF paper's form; 3 users in 30 contradict their candidates."""
    train, test, negative = [], [], []
    for user in range(30):
        items = [(user * 7 + n * 3) % 40 for n in range(8)]
        train += [f"{user}\t{item}\t4\t{n}\n" for n, item in enumerate(items[:7])]
        test.append(f"{user}\t{items[7]}\t4\t9\n")
        others = [item for item in range(40) if item not in items][:12]
        others += [items[7]] if user < 3 else []
        negative.append(f"({user},{items[7]})\t" + "\t".join(map(str, others)) + "\n")
    for name, lines in (
        ("train.rating", train),
        ("test.rating", test),
        ("test.negative", negative),
    ):
        (folder / f"tiny.{name}").write_text("".join(lines))
    return folder / "tiny.train.rating"


def test_the_triple_is_prepared_trained_and_evaluated(foretaste: Foretaste, tmp_path: Path) -> None:
    source, run = write_triple(tmp_path), tmp_path / "run"
    done = foretaste(f"prepare {source} -o {tmp_path}/made")
    assert done.status == 0, done.err
    assert "given, no validation part" in done.out
    assert re.search(r"test users with target among candidates +3\n", done.out)
    assert f"  foretaste train popularity {tmp_path}/made --candidates fixed\n" in done.out
    assert f"  foretaste train ials {tmp_path}/made --candidates fixed\n" in done.out
    done = foretaste(f"train popularity {source} --candidates fixed --run {run}")
    assert done.status == 0, done.err
    assert done.out.startswith(f"Prepared {source}: datasets/tiny-")
    done = foretaste(f"evaluate {run} --candidates fixed --format json")
    assert done.status == 0, done.err
    assert '"candidates": "fixed"' in done.out


def test_a_split_brought_along(foretaste: Foretaste, tmp_path: Path) -> None:
    source = write_triple(tmp_path)
    files = f"--train {source} --test {tmp_path}/tiny.test.rating"
    more = f"--test-candidates {tmp_path}/tiny.test.negative"
    done = foretaste(f"prepare {files} {more} -o {tmp_path}/made")
    assert done.status == 0, done.err
    manifest = open_dataset(tmp_path / "made").manifest
    assert (manifest.protocol, manifest.counts["num_test_users"]) == ("given", 30)
    refused(
        foretaste(f"prepare {files} --validation {tmp_path}/tiny.test.rating -o {tmp_path}/two")
    )


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("--validation some ratings.csv", ("ratings.csv and --validation some", "--train")),
        ("--test-fold-in x.csv ratings.csv", ("ratings.csv and --test-fold-in x.csv", "--train")),
        ("--test ratings.csv", ("--train", "GivenSplit(train=...)")),
    ],
)
def test_sources_that_cannot_be_prepared_are_refused(
    foretaste: Foretaste, line: str, named: Named
) -> None:
    refused(foretaste(f"prepare {line}"), *named)


def test_formats_are_options_of_prepare(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = [f"{user}::{(user + n) % 9}::x::{n}\n" for user in range(12) for n in range(5)]
    (tmp_path / "u.data").write_text("".join(rows))
    titles = "item|title\n" + "".join(f"{item}|{item} caf\xe9\n" for item in range(9))
    (tmp_path / "u.item").write_bytes(titles.encode("latin-1"))
    options = (
        "--delimiter :: --columns user_id,item_id,-,timestamp --encoding latin-1 "
        f"--items {tmp_path}/u.item"
    )
    done = foretaste(f"prepare {tmp_path}/u.data {options} -o {tmp_path}/made")
    assert done.status == 0, done.err
    dataset = open_dataset(tmp_path / "made")
    assert dataset.manifest.protocol == "leave-one-out"
    assert sorted(dataset.items.titles() or [])[:2] == ["0 caf\xe9", "1 caf\xe9"]


def test_a_date_and_a_clock_are_two_names(foretaste: Foretaste, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "user,item,day,clock\n1,7,31/10/2016,09:58\n1,8,30/10/2016,01:21\n1,9,31/10/2016,10:00\n"
    )
    line = f"prepare {tmp_path}/x.csv --output {tmp_path}/x --time-column day clock"
    refused(foretaste(line), "x.csv", 2, "31/10/2016 09:58", "--time-format", "%d/%m/%Y %H:%M")
    done = foretaste(line, "--time-format", "%d/%m/%Y %H:%M")
    assert done.status == 0, done.err
    assert "'day' as time, 'clock' as clock\n" in done.out
    assert "  times                                  2016-10-30 to 2016-10-31\n" in done.out
    assert "leave-one-out (ties by hash)" not in done.out


@pytest.mark.parametrize("protocol", ["auto", "temporal", "held-out-users", "none"])
def test_slist_is_named_first_if_there_is_an_order(
    foretaste: Foretaste, tmp_path: Path, protocol: str
) -> None:
    rows = [(n % 40, n * 7 % 60, n) for n in range(400)]
    timed = "".join(f"{user},{item},{time}\n" for user, item, time in rows)
    (tmp_path / "timed.csv").write_text(f"user,item,time\n{timed}")
    done = foretaste(f"prepare {tmp_path}/timed.csv --output {tmp_path}/a --protocol {protocol}")
    assert done.status == 0, done.err
    _, _, after = done.out.partition("what the others must beat):\n")
    assert after.startswith(f"  foretaste train slist {tmp_path}/a\n  foretaste train popularity ")
    assert after.endswith("more of the same in any order.\n")


def test_models_that_list_new_items_are_named(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = "".join(f"{n % 40},{n * 7 % 60}\n" for n in range(400))
    (tmp_path / "untimed.csv").write_text(f"user,item\n{rows}")
    kinds = "".join(f"{item},{'abc'[item % 3]}\n" for item in range(61))
    (tmp_path / "kinds.csv").write_text(f"item,kind\n{kinds}")
    line = f"prepare {tmp_path}/untimed.csv --items {tmp_path}/kinds.csv --output {tmp_path}"
    named = "ease, slist, ials and sasrec list new items, by their features; the other models do "
    named += "not.\n"
    assert foretaste(f"{line}/a --features kind").out.endswith(named)
    assert named not in foretaste(f"{line}/b").out


def test_slist_is_not_named_without_an_order(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = "".join(f"{n % 40},{n * 7 % 60}\n" for n in range(400))
    (tmp_path / "untimed.csv").write_text(f"user,item\n{rows}")
    done = foretaste(f"prepare {tmp_path}/untimed.csv --output {tmp_path}/a")
    assert done.status == 0, done.err
    assert "foretaste train popularity" in done.out
    assert "train slist" not in done.out


def test_ties_are_reported_and_slist_is_named(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = "".join(f"{n % 40},{n},2015-01-0{1 + n // 100}\n" for n in range(400))
    (tmp_path / "days.csv").write_text(f"user,item,date\n{rows}")
    done = foretaste(f"prepare {tmp_path}/days.csv --output {tmp_path}/days")
    assert done.status == 0, done.err
    share = "leave-one-out (ties by hash): 100% of the users have several items at their last time"
    assert share in done.out
    assert "a hash orders 67% of the neighbours in a history: equal times" in done.out
    assert f"  foretaste train slist {tmp_path}/days\n" in done.out


def test_items_are_in_the_encoding_of_the_interactions(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    orders = "".join(f"u{n % 3};i{n};caf\xe9 {n}\n" for n in range(6))
    (tmp_path / "orders.csv").write_bytes(f"user;item;name\n{orders}".encode("latin-1"))
    (tmp_path / "stock.csv").write_text("item;name\ni1;th\xe9\n", encoding="utf-8")
    pq.write_table(pa.table({"item": ["i1"], "name": ["mat\xe9"]}), tmp_path / "stock.parquet")
    line = f"prepare {tmp_path}/orders.csv --encoding latin-1 --protocol none -o {tmp_path}/made"
    for items, title in (
        ("orders.csv", "caf\xe9 1"),
        ("stock.csv", "th\xe9"),
        ("stock.parquet", "mat\xe9"),
    ):
        done = foretaste(f"{line} --overwrite --items {tmp_path}/{items}")
        assert done.status == 0, done.err
        assert (open_dataset(tmp_path / "made").items.titles() or [])[1] == title


def test_named_sets_from_files_that_are_there(foretaste: Foretaste, tmp_path: Path) -> None:
    for name, content in movielens.files("ml-1m").items():
        (tmp_path / name).write_bytes(content)
    given = f"--source-dir {tmp_path}"
    done = foretaste(f"prepare ml-1m {given} -o {tmp_path}/made")
    assert done.status == 0, done.err
    assert open_dataset(tmp_path / "made").manifest.num_users == movielens.NUM_USERS
    done = foretaste(f"train popularity ml-1m {given} --protocol temporal --run {tmp_path}/run")
    assert done.status == 0, done.err
    assert "Prepared ml-1m: datasets/ml-1m-" in done.out
    done = foretaste(f"recommend {tmp_path}/run --user 1 -k 3")
    assert "(2000)" in done.out
    refused(foretaste("prepare ratings.csv", *given.split()), "--source-dir")


def test_notes_are_printed_once(foretaste: Foretaste, tmp_path: Path) -> None:
    raw = tmp_path / "plays.csv"
    raw.write_text("user_id,item_id,colour\n1,10,red\n1,20,red\n2,10,blue\n")
    for line in ("prepare {} --protocol none", "train popularity {} --protocol none"):
        done = foretaste(line.format(raw))
        assert (done.out + done.err).count("'colour'") == 1
