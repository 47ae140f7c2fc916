"""Candidates given with the data, in the files of the NCF paper and as plain rows."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from foretaste.data import Dataset, GivenSplit, PrepareConfig, open_or_prepare, prepare
from foretaste.data.request import PrepareRequest
from tests.data.conftest import WriteFile, refuse
from tests.messages import Named

TRAIN = "0\t10\t5\t100\n0\t11\t4\t101\n1\t12\t3\t100\n1\t13\t5\t90\n2\t14\t1\t1\n"
TEST = "0\t12\t5\t200\n1\t10\t3\t300\n2\t13\t2\t9\n"
NEGATIVE = "(0,12)\t13\t14\t13\n(1,10)\t11\t10\t14\n(2,13)\t10\t99\t12\n"


@pytest.fixture
def triple(write: WriteFile) -> Path:
    """The training file of a tiny triple: user 1's own test item is among its candidates."""
    write(TEST, "tiny.test.rating")
    write(NEGATIVE, "tiny.test.negative")
    return write(TRAIN, "tiny.train.rating")


def candidates_of(dataset: Dataset) -> dict[int | str, set[int | str]]:
    heldout = dataset.heldout("test")
    assert heldout.candidates is not None
    user_ids = dataset.users.ids(heldout.user_index)
    found: dict[int | str, set[int | str]] = {user: set() for user in user_ids}
    rows, items = heldout.candidates.row_index(), heldout.candidates.item_index
    for row, item in zip(rows.tolist(), dataset.items.ids(items), strict=True):
        found[user_ids[row]].add(item)
    return found


def test_the_triple_is_found_by_its_training_file(triple: Path, tmp_path: Path) -> None:
    dataset = prepare(triple, tmp_path / "out")
    manifest = dataset.manifest
    assert manifest.protocol == "given"
    assert dataset.train.num_interactions == 5
    assert dataset.heldout("test").target.num_interactions == 3
    assert candidates_of(dataset) == {0: {13, 14}, 1: {11, 14}, 2: {10, 12}}
    assert manifest.counts["num_test_candidates"] == 6
    assert manifest.counts["num_test_candidates_unseen_in_training"] == 1
    assert manifest.counts["num_test_users_with_target_among_candidates"] == 1
    assert [Path(entry["path"]).name for entry in manifest.source] == [
        "tiny.train.rating", "tiny.test.rating", "tiny.test.negative",
    ]  # fmt: skip
    assert dataset.all_interactions().num_interactions == 8


def test_new_items_with_a_feature_are_candidates(triple: Path, tmp_path: Path) -> None:
    """Nobody has item 99; item 98, which shares no value, stays out."""
    negative = triple.with_name("tiny.test.negative")
    negative.write_text(NEGATIVE.replace("\t10\t99", "\t10\t98\t99"))
    items = pd.DataFrame({"item_id": [10, 12, 13, 98, 99], "kind": ["a", "a", "b", "c", "b"]})
    dataset = prepare(triple, tmp_path / "out", items=items, features=["kind"])
    assert candidates_of(dataset) == {0: {13, 14}, 1: {11, 14}, 2: {10, 12, 99}}
    assert dataset.manifest.counts["num_test_candidates_unseen_in_training"] == 1


@pytest.mark.parametrize("kind", [str, lambda path: [path]])
def test_ways_to_name_the_triple(triple: Path, tmp_path: Path, kind: Any) -> None:
    dataset = open_or_prepare(PrepareRequest.of(kind(triple), root=tmp_path / "datasets"))
    assert dataset.path.name.startswith("tiny-")
    assert dataset.has_candidates("test")


@pytest.mark.parametrize(
    ("negative", "expected"),
    [
        ("(0,12)\t13\t14\n(1,10)\t11\t14\n(2,13)\t10\t12\n", {}),
        ("(0,12)\t13\t14\t13\n(1,10)\t11\t14\n(2,13)\t10\t12\n", {"candidates_given_twice": 1}),
        ("(0,12)\t13\t10\n(1,10)\t12\t13\n(2,13)\t14\t11\n", {"candidates_in_training": 4}),
        ("(0,12)\t13\t14\n(1,10)\t11\t14\n(2,13)\t10\n", {"users_with_fewer_candidates": 1}),
        ("(0,12)\t13\n(1,10)\t11\n(2,13)\t10\t12\n", {}),
        (
            "(0,12)\t13\t14\n" * 2 + "(1,10)\t11\t14\n(2,13)\t10\t12\n",
            {"candidates_given_twice": 2, "candidate_lines_given_twice": 1},
        ),
        (
            "(0,12)\t13\t14\n(0,12)\t10\n(1,10)\t11\t14\n(2,13)\t10\t12\n",
            {"candidate_lines_given_twice": 1, "candidates_in_training": 1},
        ),
        (
            "(0,12)\t13\t14\n(1,10)\t10\t14\n(2,13)\t10\t99\n",
            {"users_with_target_among_candidates": 1, "candidates_unseen_in_training": 1},
        ),
    ],
)
def test_what_is_odd_about_candidates_is_counted(
    triple: Path, tmp_path: Path, negative: str, expected: dict[str, int]
) -> None:
    triple.with_name("tiny.test.negative").write_text(negative)
    counts = prepare(triple, tmp_path / "out").manifest.counts
    names = (
        *("candidates_given_twice", "candidates_in_training", "users_with_fewer_candidates"),
        *("candidate_lines_given_twice", "candidates_unseen_in_training"),
        "users_with_target_among_candidates",
    )
    assert {name: counts[f"num_test_{name}"] for name in names} == dict.fromkeys(
        names, 0
    ) | expected


def test_without_negatives_there_are_no_candidates(triple: Path, tmp_path: Path) -> None:
    triple.with_name("tiny.test.negative").unlink()
    dataset = prepare(triple, tmp_path / "out")
    assert not dataset.has_candidates("test")
    assert dataset.heldout("test").candidates is None


def test_rows_of_users_and_items_are_candidates_too(triple: Path, tmp_path: Path) -> None:
    rows = [
        (0, 13), (0, 14), (0, 13), (1, 11), (1, 10), (1, 14), (2, 10), (2, 99), (2, 12), (7, 10),
    ]  # fmt: skip
    given = pd.DataFrame(rows, columns=["user", "item"])
    split = GivenSplit(
        train=triple, test=triple.with_name("tiny.test.rating"), test_candidates=given
    )
    plain = prepare(triple, tmp_path / "plain").manifest
    manifest = prepare(split, tmp_path / "rows").manifest
    assert manifest.digest == plain.digest
    assert manifest.counts == {name: n for name, n in plain.counts.items() if "lines" not in name}


def test_rows_of_candidates_need_no_column_but_users_and_items(tmp_path: Path) -> None:
    """Further named columns belong to the interactions."""
    split = GivenSplit(
        train=pd.DataFrame([(1, 10, 5), (1, 11, 4), (2, 12, 5)], columns=["user", "item", "liked"]),
        test=pd.DataFrame([(1, 12, 5), (2, 10, 4)], columns=["user", "item", "liked"]),
        test_candidates=pd.DataFrame([(1, 10), (2, 11)], columns=["user", "item"]),
    )
    config = PrepareConfig(rating_column="liked", min_rating=4)
    assert prepare(split, tmp_path / "out", config).has_candidates("test")


@pytest.mark.parametrize(
    "negative",
    [
        NEGATIVE.replace("\n", "\r\n"),
        NEGATIVE.replace("\n", "\n\n"),
        NEGATIVE.replace("\n", "\t\n").replace(",", ", "),
        "".join(sorted(NEGATIVE.splitlines(keepends=True), reverse=True)),
        "(0,12)\t13\n(0,12)\t14\n" + NEGATIVE.partition("\n")[2],
    ],
)
def test_spellings_of_the_negatives(triple: Path, tmp_path: Path, negative: str) -> None:
    plain = prepare(triple, tmp_path / "plain").manifest
    triple.with_name("tiny.test.negative").write_bytes(negative.encode())
    assert prepare(triple, tmp_path / "out").manifest.digest == plain.digest


def test_compressed_negatives(triple: Path, write: WriteFile, tmp_path: Path) -> None:
    packed = write(gzip.compress(NEGATIVE.encode()), "packed.negative.gz")
    split = GivenSplit(
        train=triple, test=triple.with_name("tiny.test.rating"), test_candidates=packed
    )
    plain = prepare(triple, tmp_path / "plain").manifest
    assert prepare(split, tmp_path / "out").manifest.digest == plain.digest


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "(0,12) 13 14",
            (3, "(0,12) 13 14", 1),
        ),
        ("(0,12)", (3,)),
        ("(0,14)\t13", (3,)),
    ],
)
def test_lines_that_are_no_candidates(triple: Path, line: str, named: Named) -> None:
    lines = NEGATIVE.splitlines()
    text = "\n".join([*lines[:2], line, lines[2], ""])
    triple.with_name("tiny.test.negative").write_text(text)
    refuse(triple, "tiny.test.negative", *named)


@pytest.mark.parametrize("kept", [2, 1])
def test_every_test_user_needs_candidates(triple: Path, kept: int) -> None:
    lines = NEGATIVE.splitlines(keepends=True)[:kept]
    triple.with_name("tiny.test.negative").write_text("".join(lines))
    refuse(triple, kept)


def test_candidates_with_an_empty_id(triple: Path, write: WriteFile) -> None:
    given = write("user,item\n0,13\n1,\n2,10\n", "candidates.csv")
    split = GivenSplit(train=TRAIN_FRAME, test=TEST_FRAME, test_candidates=given)
    refuse(split, "candidates.csv", 3, "item_id")


TRAIN_FRAME = pd.DataFrame({"user": [0, 1, 2], "item": [10, 11, 13]})
TEST_FRAME = pd.DataFrame({"user": [0, 1, 2], "item": [11, 10, 11]})


def test_a_triple_without_its_test_file(write: WriteFile) -> None:
    source = write(TRAIN, "tiny.train.rating")
    refuse(source)
