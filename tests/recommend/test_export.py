"""The lists of every user in one file."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.errors import SettingError, UnknownIdError
from foretaste.recommend import Recommender, to_table
from foretaste.recommend.inputs import Unknown
from tests.messages import raises, says
from tests.recommend.shop import HISTORIES, popularity_order


@pytest.fixture(autouse=True)
def small_batches(limit: Callable[..., None]) -> None:
    limit(score_bytes=7 * 4 * 150)


def expected(recommender: Recommender, k: int) -> pa.Table:
    return to_table(recommender.recommend(recommender.run.users.ids(), k=k))


def test_the_file_holds_the_lists_of_all_users(tmp_path: Path, popularity: Recommender) -> None:
    output = tmp_path / "lists.parquet"
    export = popularity.recommend_all(output, k=4)
    written = pq.read_table(output)
    assert written.equals(expected(popularity, 4).cast(written.schema))
    assert export.path == output
    assert export.num_users == len(HISTORIES)
    assert export.num_rows == written.num_rows == 4 * len(HISTORIES)
    assert export.num_short_lists == 0
    assert export.notes == ()
    catalogue = set(popularity_order(popularity))
    assert export.num_popularity_lists == sum(
        not history & catalogue for history in HISTORIES.values()
    )


def test_scores_of_personal_models_agree_with_single_answers(
    tmp_path: Path, personal: Recommender
) -> None:
    personal.recommend_all(tmp_path / "lists.parquet", k=3)
    written = pq.read_table(tmp_path / "lists.parquet")
    assert written["item_id"].to_pylist() == expected(personal, 3)["item_id"].to_pylist()


def test_the_lists_of_some_users(tmp_path: Path, personal: Recommender) -> None:
    users = personal.run.users.ids()
    asked = [users[-1], users[3], users[-1]]
    export = personal.recommend_all(tmp_path / "lists.parquet", k=3, user_ids=asked)
    written = pq.read_table(tmp_path / "lists.parquet")
    found = to_table(personal.recommend(asked, k=3))
    assert export.num_users == 3
    assert written.select(["user_id", "rank", "item_id"]).equals(
        found.select(["user_id", "rank", "item_id"])
    )
    with raises(UnknownIdError, 1, 2, "nobody"):
        personal.recommend_all(tmp_path / "other.csv", user_ids=[users[0], "nobody"])
    assert not (tmp_path / "other.csv").exists()


@pytest.mark.parametrize(
    ("unknown", "asked", "written_ids"),
    [("skip", ["x", 130, "7"], [130]), ("popular", ["x", 130, "7"], ["x", "130", "7"])],
)
def test_unknown_users_are_counted(
    tmp_path: Path,
    personal: Recommender,
    unknown: Unknown,
    asked: list[int | str],
    written_ids: list[int | str],
) -> None:
    output = tmp_path / "lists.parquet"
    export = personal.recommend_all(output, k=1, user_ids=asked, unknown=unknown)
    written = pq.read_table(output)
    assert written["user_id"].to_pylist() == written_ids
    answers = personal.recommend(asked, k=1, unknown=unknown)
    assert written["item_id"].to_pylist() == [answer.item_ids[0] for answer in answers]
    (note,) = export.notes
    says(note, 2, 3, "x", 7)
    assert export.num_users == len(written_ids)
    assert export.num_popularity_lists == len(written_ids) - 1


@pytest.mark.parametrize("are_named", [True, False])
def test_the_lists_of_new_users(tmp_path: Path, personal: Recommender, are_named: bool) -> None:
    order = popularity_order(personal)
    given = {"b": order[:3], "a": [], "d": ["nothing"], "c": [order[4], "new"]}
    histories = given if are_named else [*given.values()]
    export = personal.recommend_all_for(tmp_path / "lists.parquet", histories, k=3)
    written = pq.read_table(tmp_path / "lists.parquet")
    found = to_table(personal.recommend_for(histories, k=3))
    assert written.column_names == found.column_names
    assert written.drop_columns("score").equals(found.drop_columns("score"))
    assert (export.num_users, export.num_rows) == (4, 12)
    assert (export.num_popularity_lists, export.num_partial_histories) == (2, 1)
    assert export.notes == ()


def test_new_users_without_known_items(tmp_path: Path, popularity: Recommender) -> None:
    export = popularity.recommend_all_for(tmp_path / "lists.csv", {"a": ["x"], "b": ["y"]}, k=3)
    assert export.num_popularity_lists == 2
    (note,) = export.notes
    says(note, "0, 1, 2")


def test_csv_and_json_lines_hold_the_same(tmp_path: Path, popularity: Recommender) -> None:
    rows = expected(popularity, 2).to_pylist()
    popularity.recommend_all(tmp_path / "lists.csv", k=2)
    with (tmp_path / "lists.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [
        {name: f"{value:g}" if name == "score" else str(value) for name, value in row.items()}
        for row in rows
    ]
    popularity.recommend_all(tmp_path / "lists.jsonl", k=2)
    lines = (tmp_path / "lists.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows


def test_small_batches_are_gathered_into_row_groups(
    tmp_path: Path, popularity: Recommender, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "lists.parquet"
    popularity.recommend_all(output, k=4)
    assert pq.ParquetFile(output).num_row_groups == 1
    monkeypatch.setattr("foretaste.recommend.export.ROW_GROUP_ROWS", 100)
    popularity.recommend_all(output, k=4, overwrite=True)
    assert pq.ParquetFile(output).num_row_groups > 1
    assert pq.read_table(output).num_rows == 4 * len(HISTORIES)


def test_progress_ends_with_all_users(tmp_path: Path, popularity: Recommender) -> None:
    calls: list[tuple[int, int]] = []
    popularity.recommend_all(
        tmp_path / "lists.csv", k=1, progress=lambda done, total: calls.append((done, total))
    )
    assert len(calls) > 1
    assert calls == sorted(calls)
    assert calls[-1] == (len(HISTORIES), len(HISTORIES))


def test_short_lists_are_counted(tmp_path: Path, popularity: Recommender) -> None:
    candidates = [*popularity_order(popularity)[:2], "new"]
    export = popularity.recommend_all(tmp_path / "lists.csv", k=5, candidates=candidates)
    assert export.num_short_lists == len(HISTORIES)
    assert export.num_rows < 2 * len(HISTORIES)
    (note,) = export.notes
    says(note, 1, 3, "candidates", "new")


def test_no_candidates_make_a_file_without_rows(tmp_path: Path, popularity: Recommender) -> None:
    for ending in ("parquet", "csv", "jsonl"):
        export = popularity.recommend_all(tmp_path / f"lists.{ending}", candidates=[])
        assert export.num_rows == 0
    assert pq.read_table(tmp_path / "lists.parquet").column_names[0] == "user_id"
    assert (tmp_path / "lists.csv").read_text().startswith('"user_id"')


def test_an_existing_file_is_kept_without_overwrite(
    tmp_path: Path, popularity: Recommender
) -> None:
    output = tmp_path / "lists.csv"
    output.write_text("mine")
    with raises(SettingError, "lists.csv"):
        popularity.recommend_all(output, k=1)
    assert output.read_text() == "mine"
    popularity.recommend_all(output, k=1, overwrite=True)
    assert output.read_text() != "mine"


def test_the_first_among_several_writers_of_one_output_wins(
    tmp_path: Path, popularity: Recommender
) -> None:
    path = tmp_path / "lists.csv"
    written = []

    def write_another(*_: int) -> None:
        if not written:
            written.append(popularity.recommend_all(path, k=2).num_rows)

    with raises(SettingError, "lists.csv"):
        popularity.recommend_all(path, k=1, progress=write_another)
    assert len(path.read_text().splitlines()) - 1 == written[0]
    assert [*tmp_path.iterdir()] == [path]


def test_outputs_that_cannot_be_written_are_refused(
    tmp_path: Path, popularity: Recommender
) -> None:
    with raises(SettingError, "lists.xlsx", ".parquet", ".csv", ".jsonl"):
        popularity.recommend_all(tmp_path / "lists.xlsx")
    with raises(SettingError, "lists.csv", "missing"):
        popularity.recommend_all(tmp_path / "missing" / "lists.csv")
    (tmp_path / "folder.csv").mkdir()
    with raises(SettingError, "folder.csv"):
        popularity.recommend_all(tmp_path / "folder.csv", overwrite=True)


def test_a_failure_leaves_nothing(tmp_path: Path, popularity: Recommender) -> None:
    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        popularity.recommend_all(tmp_path / "lists.csv", progress=stop)
    assert list(tmp_path.iterdir()) == []
