"""Directories of part files: together, to the last bit, the one file of a single process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
import pytest
import torch

from foretaste.distributed.collectives import Ranks
from foretaste.errors import SettingError
from foretaste.evaluation import ranking
from foretaste.recommend import Export, Recommender, load, recommender
from tests.ranks import run_ranks
from tests.recommend.shop import HISTORIES

READERS = {".parquet": pq.read_table, ".csv": pa_csv.read_csv, ".jsonl": pa_json.read_json}


def write(ranks: Ranks, run: Path, output: str, users_at_once: int, options: Any) -> Export:
    """Lists of four for everyone, on one thread, so many users at a time."""
    usual, num_threads = ranking._SCORE_BYTES, torch.get_num_threads()
    opened = load(run, "cpu")
    ranking._SCORE_BYTES = {"cpu": 4 * users_at_once * opened.model.num_items}
    recommender._USERS_AT_ONCE = 9
    torch.set_num_threads(1)
    done: list[tuple[int, int]] = []
    try:
        export = opened.recommend_all(
            output, k=4, progress=lambda now, all: done.append((now, all)), **options
        )
    finally:
        ranking._SCORE_BYTES = usual
        recommender._USERS_AT_ONCE = 1 << 16
        torch.set_num_threads(num_threads)
    assert done == sorted(done)
    assert done[-1:] in ([], [(export.num_users, export.num_users)])
    return export


def described(export: Export) -> dict[str, Any]:
    return vars(export) | {"path": None, "elapsed_s": None, "num_processes": None}


@pytest.mark.parametrize(("num_ranks", "ending"), [(1, ".csv"), (2, ".jsonl"), (3, ".parquet")])
def test_part_files_are_together_what_one_process_writes(
    tmp_path: Path, personal: Recommender, num_ranks: int, ending: str
) -> None:
    assert personal.run is not None
    run = personal.run.path
    name = f"{tmp_path}/lists{'' if ending == '.parquet' else ending}"
    alone = write(Ranks(), run, f"{tmp_path}/one{ending}", 7, {})
    exports = run_ranks(write, num_ranks, run, f"{name}/", 7, {})
    assert [described(export) for export in exports] == [described(alone)] * num_ranks
    assert [export.num_processes for export in exports] == [num_ranks] * num_ranks
    parts = sorted(Path(name).iterdir())
    assert [part.name for part in parts] == [
        f"part-{rank:05d}-of-{num_ranks:05d}{ending}" for rank in range(num_ranks)
    ]
    together = pa.concat_tables(READERS[ending](part) for part in parts)
    assert together.equals(READERS[ending](alone.path))
    assert alone.num_users == len(HISTORIES)
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_a_rank_without_a_batch_writes_a_part_without_rows(
    tmp_path: Path, popularity: Recommender
) -> None:
    assert popularity.run is not None
    run_ranks(write, 3, popularity.run.path, f"{tmp_path}/lists/", 40, {})
    tables = [pq.read_table(part) for part in sorted((tmp_path / "lists").iterdir())]
    assert [table.num_rows for table in tables] == [0, 4 * 40, 4 * 20]
    assert tables[0].schema == tables[1].schema


def test_other_users_than_all_are_shared_out_too(tmp_path: Path, personal: Recommender) -> None:
    assert personal.run is not None
    asked = {"user_ids": personal.run.users.ids()[::-2]}
    alone = write(Ranks(), personal.run.path, f"{tmp_path}/one.parquet", 3, asked)
    run_ranks(write, 2, personal.run.path, f"{tmp_path}/lists/", 3, asked)
    assert pq.read_table(tmp_path / "lists").equals(pq.read_table(alone.path))


def test_several_ranks_do_not_write_one_file(tmp_path: Path, popularity: Recommender) -> None:
    assert popularity.run is not None
    with pytest.raises(
        SettingError, match=r"2 ranks write one each; name a directory .*: .*\.csv/"
    ):
        run_ranks(write, 2, popularity.run.path, f"{tmp_path}/lists.csv", 7, {})
    assert not any(tmp_path.iterdir())


def test_only_part_files_are_replaced(tmp_path: Path, popularity: Recommender) -> None:
    lists = tmp_path / "lists"
    for size in (3, 2):
        assert popularity.run is not None
        run_ranks(write, size, popularity.run.path, f"{lists}/", 7, {"overwrite": True})
    assert len(list(lists.iterdir())) == 2
    with pytest.raises(SettingError, match="lists exists already; replace it with --overwrite"):
        popularity.recommend_all(f"{lists}/")
    (lists / "notes.txt").write_text("mine")
    with pytest.raises(SettingError, match=r"lists/ holds 'notes.txt', which is no part file"):
        popularity.recommend_all(f"{lists}/", overwrite=True)
    assert len(list(lists.iterdir())) == 3
    with pytest.raises(SettingError, match=r"notes.txt/ is a file; name another directory"):
        popularity.recommend_all(f"{lists}/notes.txt/", overwrite=True)


def test_a_directory_is_not_there_where_its_writer_failed(
    tmp_path: Path, popularity: Recommender
) -> None:
    def fail(done: int, users: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        popularity.recommend_all(f"{tmp_path}/lists/", progress=fail)
    assert not any(tmp_path.iterdir())
    (tmp_path / "lists").mkdir()
    popularity.recommend_all(f"{tmp_path}/lists/", k=2)
    assert pq.read_table(tmp_path / "lists").num_rows == 2 * len(HISTORIES)
