"""``foretaste recommend`` and ``foretaste similar``."""

from __future__ import annotations

import csv
import inspect
import json
import re
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from foretaste.recommend import Recommender
from tests.cli.conftest import SHAPE, Done, Foretaste, call, refused
from tests.messages import says


def test_csv_keeps_reasons_apart(foretaste: Foretaste) -> None:
    done = foretaste("recommend runs/vae --user 1 --candidates 3 -k 3 --include-seen --format csv")
    assert len(done.out.splitlines()) == 2
    says(done.err, "user_id 1", 1, 3, 1)


def test_json_is_one_document(foretaste: Foretaste) -> None:
    done = foretaste("recommend runs/vae --user 1 --user 2 -k 2 --format json")
    first, second = json.loads(done.out)
    assert (first["user_id"], second["user_id"]) == (1, 2)
    assert [len(first["items"]), first["reason"]] == [2, None]
    assert first["items"][0].keys() == {"item_id", "score", "title"}


def test_an_unknown_user_stops_it_before_anything_is_printed(
    foretaste: Foretaste, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.cli.recommend.USERS_AT_ONCE", 2)
    users = tmp_path / "users.txt"
    users.write_text("1\n2\n3\nnobody\n")
    done = foretaste(f"recommend runs/popularity --users-file {users} --format json")
    refused(done, 1, 4, "nobody", "1, 2, 3", "--unknown skip", "popular", "--history")


@pytest.mark.parametrize(
    ("unknown", "users"), [("skip", [1, 3]), ("popular", [1, "nobody", 3, 4000])]
)
def test_unknown_users_need_not_stop_it(
    foretaste: Foretaste,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    unknown: str,
    users: list[int | str],
) -> None:
    monkeypatch.setattr("foretaste.cli.recommend.USERS_AT_ONCE", 2)
    (tmp_path / "users.txt").write_text("1\nnobody\n3\n4000\n")
    line = f"recommend runs/vae --users-file {tmp_path}/users.txt --unknown {unknown} -k 2"
    done = foretaste(f"{line} --format json")
    assert done.status == 0
    says(done.err, 2, 4, "'nobody', 4000", "1, 2, 3")
    answers = json.loads(done.out)
    assert [answer["user_id"] for answer in answers] == users
    assert [answer["reason"] is None for answer in answers] == [user in (1, 3) for user in users]
    to_file = foretaste(f"{line} --output {tmp_path}/recs.parquet")
    assert to_file.err.startswith(done.err.removeprefix("note: "))
    says(to_file.out, 2 * len(users), len(users), tmp_path / "recs.parquet")


def test_candidates_and_exclusions_of_recommend(foretaste: Foretaste, tmp_path: Path) -> None:
    stock = tmp_path / "stock.csv"
    stock.write_text("stock,movieId\n40,1\n41,2\n42,3\n43,4\n44,5\n")
    away = tmp_path / "away.txt"
    away.write_text("2\n")
    line = f"recommend runs/gmf --user 1 -k 9 --include-seen --candidates @{stock}"
    done = foretaste(f"{line} --exclude 3 @{away} --format json")
    (answer,) = json.loads(done.out)
    assert {item["item_id"] for item in answer["items"]} == {1, 4, 5}
    says(answer["reason"], 3, 9)


def test_files_of_ids_in_the_words_of_a_shop(foretaste: Foretaste, tmp_path: Path) -> None:
    (tmp_path / "stock.csv").write_bytes("Platz;Größe;Artikel\n3;4;1\n4;2;2\n".encode("latin-1"))
    (tmp_path / "people.csv").write_bytes("Name;Kunde\nJörg;7\nKäthe;11\n".encode("latin-1"))
    line = f"recommend runs/gmf -k 9 --include-seen --candidates @{tmp_path}/stock.csv"
    how = "--item-column Artikel --user-column Kunde --encoding latin-1"
    done = foretaste(f"{line} --users-file {tmp_path}/people.csv {how} --format json")
    assert {
        answer["user_id"]: {item["item_id"] for item in answer["items"]}
        for answer in json.loads(done.out)
    } == {7: {1, 2}, 11: {1, 2}}
    done = foretaste(f"{line} --user 7 --encoding latin-1")
    refused(done, "stock.csv", "item_id", "Platz", "Größe", "Artikel", "--item-column")


def test_an_id_may_begin_with_a_sign(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = "".join(f"-u{user},{'@' * (item % 2)}i{item}\n" for user in range(4)
                   for item in range(user % 2, user % 2 + 4))  # fmt: skip
    (tmp_path / "signs.csv").write_text(f"user_id,item_id\n{rows}")
    (tmp_path / "sold.txt").write_text("@i3\n")
    train = f"train ease {tmp_path}/signs.csv --protocol none --run {tmp_path}/signs"
    assert foretaste(train).status == 0
    for exclude, left in (("i4", []), ("@i1", ["i4"]), (f"@{tmp_path}/sold.txt i4", [])):
        done = foretaste(f"recommend {tmp_path}/signs --user=-u0 --exclude {exclude} --format csv")
        assert done.status == 0, done.err
        assert re.findall("@?i[0-9]", done.out) == left


def test_everyone_to_a_file(foretaste: Foretaste, tmp_path: Path) -> None:
    output = tmp_path / "recs.parquet"
    line = f"recommend runs/vae --all -k 4 --output {output}"
    done = foretaste(line)
    assert done.status == 0, done.err
    num_rows = SHAPE.num_users * 4
    says(done.out, num_rows, SHAPE.num_users, output)
    says(done.err, SHAPE.num_users, re.compile(r"\S+(?= s:)"), re.compile(r"\S+( k)?(?= users/s)"))
    assert pq.read_table(output).num_rows == num_rows
    refused(foretaste(line), output, "--overwrite")
    assert foretaste(f"{line} --overwrite").status == 0


def test_short_lists_are_reported(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste(f"recommend runs/vae --all -k 60 --exclude 999 --output {tmp_path}/recs.csv")
    ignored, short, *_ = done.err.splitlines()
    says(ignored, 1, 1, "exclude", 999, "1, 2, 3")
    says(short, SHAPE.num_users)


NEW_USERS = "person;item\nben;5\nana;1\nben;nope\nana;7\ncat;nope\n"


def test_a_file_of_histories_is_printed(
    foretaste: Foretaste, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.cli.recommend.USERS_AT_ONCE", 2)
    (tmp_path / "new.csv").write_text(NEW_USERS)
    line = f"recommend runs/gmf --histories-file {tmp_path}/new.csv --user-column person -k 2"
    answers = json.loads(foretaste(f"{line} --format json").out)
    assert [answer["user_id"] for answer in answers] == ["ana", "ben", "cat"]
    (alone,) = json.loads(foretaste("recommend runs/gmf --history 1 7 -k 2 --format json").out)
    assert answers[0]["items"] == [
        {**item, "score": pytest.approx(item["score"], rel=1e-4)} for item in alone["items"]
    ]
    assert answers[0]["reason"] is None
    says(answers[1]["reason"], 1, "nope")
    says(answers[2]["reason"], "nope", "1, 2, 3")


def test_a_file_of_histories_to_a_file(foretaste: Foretaste, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text(NEW_USERS)
    line = f"recommend runs/gmf --histories-file {tmp_path}/new.csv --user-column person -k 2"
    done = foretaste(f"{line} --output {tmp_path}/recs.csv")
    says(done.out, 6, 3, tmp_path / "recs.csv")
    says(done.err, "1 user", "1 user")
    with (tmp_path / "recs.csv").open(newline="") as file:
        written = [(row["user_id"], row["item_id"]) for row in csv.DictReader(file)]
    printed = foretaste(f"{line} --format csv").out
    assert written == [
        (row["user_id"], row["item_id"]) for row in csv.DictReader(StringIO(printed))
    ]
    in_file = (tmp_path / "recs.csv").read_text().splitlines()
    assert [without_score(row) for row in printed.splitlines()] == [*map(without_score, in_file)]
    assert all(len(row.split(",")[3]) <= len("-0.012345678") for row in printed.splitlines())


def without_score(row: str) -> str:
    """A row without the cells that depend on the number of users in a batch."""
    about, rank, item_id, _score, title = row.split(",", 4)
    return f"{about},{rank},{item_id},{title}"


@pytest.mark.skipif(not Path("/proc").exists(), reason="no /proc here")
def test_the_error_names_an_unwritable_place_like_the_user(foretaste: Foretaste) -> None:
    done = foretaste("recommend runs/gmf --all --output /proc/x.csv")
    refused(done, "output", "/proc/x.csv", "No such file or directory")


def test_similar_items(foretaste: Foretaste) -> None:
    done = foretaste("similar runs/gmf --item 4 7 -k 3")
    assert done.status == 0
    assert "similar to item 4\n" in done.out
    assert "similar to item 7\n" in done.out
    (answer,) = json.loads(foretaste("similar runs/gmf --item 4 -k 3 --format json").out)
    assert answer["similar_to"] == 4
    assert len(answer["items"]) == 3


def test_similar_items_of_the_whole_catalogue_go_to_a_file(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    done = foretaste(f"similar runs/gmf --all -k 3 --output {tmp_path}/all.csv")
    says(done.out, 180, 60, tmp_path / "all.csv")
    says(done.err, 60, re.compile(r"\S+(?= s:)"), re.compile(r"\S+( k)?(?= items/s)"))
    rows = (tmp_path / "all.csv").read_text().splitlines()
    assert rows[0] == '"similar_to","rank","item_id","score","title"'
    printed = foretaste("similar runs/gmf --item 4 7 -k 3 --format csv").out.splitlines()
    in_all = [row.split(",") for row in rows if row.split(",")[0] in ("4", "7")]
    alone = [row.split(",") for row in printed[1:]]
    assert [row[:3] + row[4:] for row in in_all] == [row[:3] + row[4:] for row in alone]
    # products of two rows may add in another order than products of sixty
    assert [float(row[3]) for row in in_all] == pytest.approx([float(row[3]) for row in alone])
    some = foretaste(f"similar runs/gmf --item 4 7 -k 3 --output {tmp_path}/some.csv --quiet")
    assert some == Done(0, "", "")
    assert (tmp_path / "some.csv").read_text().splitlines() == printed


def test_short_lists_of_similar_items_are_reported_for_a_file(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    line = f"similar runs/gmf --all -k 500 --output {tmp_path}/all.csv --overwrite"
    done = foretaste(line)
    assert done.status == 0
    says(done.err.splitlines()[0], 60)
    says(done.out, "3,540", 60, tmp_path / "all.csv")
    assert foretaste(f"{line} --quiet") == Done(0, "", "")


@pytest.mark.parametrize(
    "line",
    [
        "recommend runs/vae --user 1 999 --unknown skip",
        "recommend runs/vae --history 1 999 --format csv",
    ],
)
def test_quiet_lists_come_without_notes(foretaste: Foretaste, line: str) -> None:
    done, quiet = foretaste(line), foretaste(f"{line} --quiet")
    assert done.err
    assert quiet == Done(0, done.out, "")


def test_reasons_are_printed_below_each_item(foretaste: Foretaste) -> None:
    line = "recommend runs/gmf --user 1 -k 2 --reasons"
    (answer,) = json.loads(foretaste(f"{line} --format json").out)
    shown = foretaste(line).out
    assert any(item["because"] for item in answer["items"])
    for item in answer["items"]:
        if item["because"]:
            names = "; ".join(str(one["title"] or one["item_id"]) for one in item["because"])
            assert f"because of {names}" in shown


@pytest.mark.parametrize("options", ["--format csv", "--output lists.parquet"])
def test_reasons_have_no_column(foretaste: Foretaste, options: str) -> None:
    refused(foretaste(f"recommend runs/gmf --user 1 --reasons {options}"), "--reasons")


def test_help_names_the_length_of_lists() -> None:
    pages = [call(verb, "--help").text for verb in ("recommend", "similar")]
    for method in (Recommender.recommend, Recommender.recommend_for, Recommender.similar_items):
        length = inspect.signature(method).parameters["k"].default
        assert all(f"Items per list; {length} by default." in page for page in pages)


def test_help_begins_with_users_and_lists() -> None:
    page = call("recommend", "--help").text
    places = [page.index(f"{name} ") for name in ("--user", "--exclude", "--threads", "--quote")]
    assert places == sorted(places)


def test_rules_conditions_and_limits(foretaste: Foretaste, tmp_path: Path) -> None:
    rules, stock = tmp_path / "rules.toml", tmp_path / "stock.csv"
    rules.write_text('in-stock = "stock > 0"\ncheap = "price < 10"\n')
    stock.write_text("item;stock;price\n1;2;5.0\n2;0;5.0\n3;1;20\n4;9;9.99\n")
    files = f"--rules-file {rules} --items {stock} --item-column item --delimiter ;"
    asked = f"recommend runs/vae --user 1 --include-seen --format json {files}"

    def items(options: str) -> list[int]:
        done = foretaste(f"{asked} {options}")
        assert done.status == 0, done.err
        return [item["item_id"] for item in json.loads(done.out)[0]["items"]]

    assert sorted(items("--rules in-stock cheap")) == [1, 4]
    assert sorted(items("--rules in-stock --where price>=5.0")) == [1, 3, 4]
    assert len(items("--where price<10 --max-per price=1")) == 2
    for options, *named in (
        ("--rules sale", "sale", "in-stock", "cheap"),
        ("--max-per price", "--max-per", "brand=2 genre=1", "price"),
        ("--max-per price=1 price=2", "--max-per", "brand=2 genre=1", "price=2"),
        ("--max-per price=0", "max_per", "price", 0, 1),
        ("--where prise<1", "where", "prise<1", "prise", "item_id BIGINT"),
    ):
        refused(foretaste(f"{asked} {options}"), *named)
