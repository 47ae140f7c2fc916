"""The page's program that recommends inside Spark."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import foretaste
from tests.docs.pages import page
from tests.spark import quick_session

TITLE = "recommend_in_spark.py"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_answers_within_spark(directory: Path) -> None:
    (block,) = (block for block in page("recommending.md").blocks if block.title == TITLE)
    with contextlib.chdir(directory), quick_session():
        exec(compile(block.text, TITLE, "exec"), {"__name__": "__main__"})
    recommender = foretaste.load(directory / "runs/vae")
    lists = pq.read_table(directory / "lists").to_pylist()
    assert len({row["user_id"] for row in lists}) == len(recommender.users)
    for answer in recommender.recommend([7, 11], k=10):
        found = [row for row in lists if row["user_id"] == answer.id]
        assert [row["item_id"] for row in found] == answer.item_ids
        assert [row["score"] for row in found] == pytest.approx(answer.scores, rel=1e-5)
