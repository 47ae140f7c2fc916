"""Protocol unseen: the new items of half of a run's users since its training are held out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from foretaste.data import Dataset, prepare
from foretaste.errors import DatasetError, NothingLeftError, SettingError
from foretaste.runs import Run
from tests.data.conftest import PrepareText, WriteFile
from tests.data.test_protocols import hashed, pairs_of
from tests.messages import raises, says
from tests.runs.tiny import make_run

HEADINGS = "user_id,item_id,timestamp\n"
# Users 1 to 9 with three items each; user 9 alone has item 90.
BEFORE = [(user, item, item) for user in range(1, 10) for item in (user, user + 1, user + 2)]
BEFORE.append((9, 90, 90))
# Users 1 to 5 come back, user 1 with an item that nobody had; 20 and 21 are new users. User 6
# repeats an item. Item 8 of user 8 is withdrawn, and so is all that user 9 had, who comes back.
NEWS = [(user, 30, 100) for user in range(1, 6)]
NEWS += [(1, 99, 101), (2, 31, 101), (6, 7, 102), (9, 30, 103)]
NEWS += [(user, item, 104) for user in (20, 21) for item in (1, 30)]
WITHDRAWN = {(8, 8), *((9, item) for _, item, _ in BEFORE if _ == 9)}
TODAY = [row for row in BEFORE if row[:2] not in WITHDRAWN and row[0] != 9] + NEWS


def text(rows: list[tuple[int, int, int]]) -> str:
    return HEADINGS + "".join("{},{},{}\n".format(*row) for row in rows)


@pytest.fixture
def run(prepared: PrepareText, tmp_path: Path) -> Run:
    """The served run: trained on everything before."""
    return make_run(tmp_path / "served", prepared(text(BEFORE), "before", protocol="none"))


@pytest.fixture
def tonight(run: Run, write: WriteFile, tmp_path: Path) -> Dataset:
    source = write(text(TODAY), "today.csv")
    return prepare(source, tmp_path / "unseen", protocol="unseen", like=run.path, seed=20261129)


def test_half_of_those_who_come_back_are_held_out(tonight: Dataset, run: Run) -> None:
    manifest = tonight.manifest
    came_back = sorted(range(1, 6), key=lambda user: hashed(20261129, user))
    held = {(user, item) for user, item, _ in NEWS if user in came_back[:3]}
    assert pairs_of(tonight, "test") == held
    assert pairs_of(tonight, "train") == {row[:2] for row in TODAY} - held
    assert not tonight.has_split("validation")
    assert manifest.protocol == "unseen"
    says(manifest.notes["unseen"], 5, run.path, 3)


def test_everybody_is_compared_some_night(run: Run, write: WriteFile, tmp_path: Path) -> None:
    source, counts = write(text(TODAY), "today.csv"), Counter[int | str]()
    for seed in range(5):
        dataset = prepare(source, tmp_path / str(seed), protocol="unseen", like=run.path, seed=seed)
        held = {user for user, _ in pairs_of(dataset, "test")}
        assert len(held) == 3
        counts.update(held)
    assert sorted(counts) == [1, 2, 3, 4, 5]


def test_the_history_is_what_both_were_trained_on(tonight: Dataset, run: Run) -> None:
    trained = {row[:2] for row in BEFORE}
    assert pairs_of(tonight, "test_history") < trained
    assert pairs_of(tonight, "test_known") == pairs_of(tonight, "test_history")


@pytest.mark.parametrize(
    "rows",
    [
        BEFORE,
        [*BEFORE, (1, 2, 500)],  # a repeat
        [*BEFORE, (20, 1, 500), (20, 777, 501)],  # a new user, with a new item
        [row for row in BEFORE if row[0] != 3],
    ],
    ids=["the same", "a repeat", "a stranger", "fewer"],
)
def test_a_night_without_news_of_known_users_has_no_test_part(
    run: Run, write: WriteFile, tmp_path: Path, rows: list[tuple[int, int, int]]
) -> None:
    source = write(text(rows), "quiet.csv")
    dataset = prepare(source, tmp_path / "quiet", protocol="unseen", like=run.path)
    assert not dataset.has_split("test")
    assert not (dataset.path / "test.parquet").exists()
    assert pairs_of(dataset, "train") == {row[:2] for row in rows}
    with raises(NothingLeftError, 0):
        dataset.heldout("test")
    with raises(DatasetError):
        dataset.heldout("validation")


def test_one_user_who_comes_back_is_held_out(run: Run, write: WriteFile, tmp_path: Path) -> None:
    source = write(text([*BEFORE, (4, 1, 500)]), "one.csv")
    dataset = prepare(source, tmp_path / "one", protocol="unseen", like=run.path)
    assert pairs_of(dataset, "test") == {(4, 1)}
    says(dataset.manifest.notes["unseen"], 1, run.path, 1)


def test_pairs_that_a_run_held_out_are_unseen(
    prepared: PrepareText, write: WriteFile, tmp_path: Path
) -> None:
    rows = [row for row in BEFORE if row[0] != 9]
    run = make_run(tmp_path / "run", prepared(text(rows), "loo", protocol="leave-one-out"))
    source = write(text(rows), "again.csv")
    dataset = prepare(source, tmp_path / "unseen", protocol="unseen", like=run.path)
    held = sorted(range(1, 9), key=lambda user: hashed(0, user))[:4]
    # One item of three trains under leave-one-out.
    assert pairs_of(dataset, "test") == {(user, item) for user, item, _ in rows
                                         if user in held and item != user}  # fmt: skip


def test_ids_of_text_are_matched(prepared: PrepareText, write: WriteFile, tmp_path: Path) -> None:
    lines = "user_id,item_id\nanna,1\nanna,007\nbo,1\nbo,2\n"
    run = make_run(tmp_path / "run", prepared(lines, "before", protocol="none"))
    source = write(lines + "anna,2\nbo,7\n", "today.csv")
    dataset = prepare(source, tmp_path / "unseen", protocol="unseen", like=run.path)
    assert pairs_of(dataset, "test") in ({("anna", "2")}, {("bo", "7")})


def test_another_run_is_another_dataset(run: Run, write: WriteFile, tmp_path: Path,
                                        monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    source = write(text(TODAY), "today.csv")
    first, again = (prepare(source, protocol="unseen", like=run.path) for _ in range(2))
    other = make_run(tmp_path / "other", prepare(source, "all", protocol="none"))
    assert first.path == again.path
    assert prepare(source, protocol="unseen", like=other.path).path != first.path


def test_protocol_unseen_needs_a_run(run: Run, write: WriteFile, tmp_path: Path) -> None:
    source = write(text(TODAY), "today.csv")
    for like, *named in ((None, "protocol unseen"), (tmp_path / "before", "like", "before")):
        with raises(SettingError, *named):
            prepare(source, tmp_path / "none", protocol="unseen", like=like)
    assert not (tmp_path / "none").exists()
