"""Answers as text and as a table."""

from __future__ import annotations

import pyarrow as pa
import pytest

from foretaste.recommend import Answer, Answers, Recommender, to_table

KNOWN = Answer(id=42, item_ids=[7, 110], scores=[1.5, 0.25], titles=["Seven", None])
SHORT = Answer(id=43, item_ids=[], scores=[], reason="only 0 of 2: 0 candidates in the catalogue")


def test_an_answer_reads_well() -> None:
    assert str(KNOWN) == ("user 42\n   1.    7     1.5000  Seven\n   2.  110     0.2500")
    assert str(SHORT).splitlines()[0] == "user 43"
    assert "(only 0 of 2" in str(SHORT)
    assert str(Answer(id=None, item_ids=[], scores=[], kind="history")) == "new user"
    assert str(Answer(id="a", item_ids=[], scores=[], kind="item")) == "similar to item a"


def test_an_answer_has_a_line_for_each_item() -> None:
    # An item without a relation to the history scores a little below zero.
    answer = Answer(id=1, item_ids=[7, 8], scores=[1.0, -1e-30], titles=["One\r\n  two\n", "Three"])
    assert str(answer).splitlines()[1:] == [
        "   1.  7     1.0000  One two",
        "   2.  8     0.0000  Three",
    ]


def test_a_table_has_one_row_per_item() -> None:
    table = to_table([KNOWN, SHORT, KNOWN])
    assert table.to_pydict() == {
        "user_id": [42, 42, 42, 42],
        "rank": [1, 2, 1, 2],
        "item_id": [7, 110, 7, 110],
        "score": [1.5, 0.25, 1.5, 0.25],
        "title": ["Seven", None, "Seven", None],
    }
    assert table.schema.field("score").type == pa.float32()


def test_a_table_of_histories_counts_them() -> None:
    answer = Answer(id=None, item_ids=["a"], scores=[1.0], kind="history")
    assert to_table([answer, answer]).to_pydict() == {
        "history": [0, 1],
        "rank": [1, 1],
        "item_id": ["a", "a"],
        "score": [1.0, 1.0],
    }

    assert to_table([answer], first=5).column("history").to_pylist() == [5]


def test_no_answers_make_an_empty_table() -> None:
    assert to_table([]).num_rows == 0


def test_a_notebook_shows_answers_as_tables_of_escaped_text(popularity: Recommender) -> None:
    answer = Answer(
        id="<b>", item_ids=["a&b"], scores=[0.5], titles=["<script>"], reason="only 1 < 2"
    )
    html = answer._repr_html_()
    assert "<b>" not in html
    assert "<script>" not in html
    for text in ("user &lt;b&gt;", "a&amp;b", "&lt;script&gt;", "0.5000", "only 1 &lt; 2"):
        assert text in html
    answers = popularity.recommend(popularity.users.ids()[:2], k=3)
    shown = answers._repr_html_()  # type: ignore[attr-defined]
    assert shown == "".join(answer._repr_html_() for answer in answers)
    assert shown.count("<table>") == 2


@pytest.mark.parametrize("method", ["to_pandas", "to_polars"])
def test_answers_are_frames_in_one_call(method: str, popularity: Recommender) -> None:
    answers = popularity.recommend_for([[], [3]], k=2)
    for some, kept in ((answers, [0, 1]), (answers[1], [1]), (Answers(answers[:1]), [0])):
        frame = getattr(some, method)()
        table = to_table([answers[number] for number in kept])
        assert list(frame.columns) == table.column_names
        assert frame["item_id"].to_list() == table["item_id"].to_pylist()
        assert some.to_arrow() == table
