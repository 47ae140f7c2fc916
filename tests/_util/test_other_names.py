"""A user of another library finds our names in messages and on the page."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import foretaste
from foretaste._util.other_names import OTHER_NAMES, translate_name
from foretaste.errors import DataWarning, SettingError
from foretaste.in_memory import FittedRecommender
from foretaste.recommend import Recommender
from foretaste.recommend.config import ListRequest
from tests.cli.conftest import call
from tests.docs.pages import page
from tests.messages import raises, says

OURS = (
    {
        item.name
        for each in dir(foretaste)
        if each.endswith(("Config", "Request"))
        for item in fields(getattr(foretaste, each))
    }
    | {item.name for item in fields(ListRequest)}
    | {"user_ids", "item_ids", "histories", "threads"}
)


@pytest.fixture(scope="module")
def matrix() -> sp.csr_matrix:
    """Thirty users with two tastes; every value is 1."""
    users = np.arange(30)
    entries = [(user, user % 2 * 6 + (user + step) % 6) for user in users for step in range(4)]
    rows, columns = np.array(entries).T
    return sp.csr_matrix((np.ones(len(entries)), (rows, columns)), shape=(30, 12))


@pytest.fixture(scope="module")
def fitted(matrix: sp.csr_matrix) -> FittedRecommender:
    return foretaste.fit("ease", matrix, device="cpu")


@pytest.mark.parametrize("library", sorted(OTHER_NAMES.keys() - {"foretaste"}))
def test_every_suggested_name_is_ours(library: str) -> None:
    assert {name for meant in OTHER_NAMES[library].values() for name in meant} <= OURS
    assert {row[0] for row in page("coming-from-libraries.md").rows(library)} == {
        *OTHER_NAMES[library]
    }


def test_the_name_that_the_verb_takes_is_meant() -> None:
    assert translate_name("embedding_size", ["latent", "dropout"]) == "latent"
    assert translate_name("embedding_size", ["dropout"]) is None
    assert translate_name("no_such_name", ["k"]) is None


@pytest.mark.parametrize(
    ("model", "given", "meant"),
    [
        ("ials", "iterations", "epochs"),
        ("ease", "regularization", "l2"),
        ("itemknn", "K", "neighbors"),
        ("vae", "factors", "latent"),
        ("sasrec", "session_max_len", "max_length"),
        ("gmf", "train_batch_size", "batch_size"),
    ],
)
def test_a_setting_of_another_library_is_translated(
    matrix: sp.csr_matrix, model: str, given: str, meant: str
) -> None:
    with raises(SettingError, "fit", given, meant):
        foretaste.fit(model, matrix, **{given: 15})  # type: ignore[call-overload]


def test_an_option_of_another_library_is_translated() -> None:
    done = call("train", "ials", "data", "--iterations", 15)
    assert (done.status, done.err.splitlines()[0]) == (
        2,
        "error: Unknown option: --iterations. Did you mean --epochs?",
    )


def test_calls_in_the_form_of_implicit_are_explained(
    fitted: Recommender, matrix: sp.csr_matrix
) -> None:
    with raises(SettingError, "N", "k"):
        fitted.recommend([1], N=10)  # type: ignore[call-arg]
    for ask in (lambda: fitted.recommend([1, 2], matrix[[1, 2]]),  # type: ignore[arg-type]
                lambda: fitted.recommend_for([[1]], matrix)):  # type: ignore[arg-type]  # fmt: skip
        with raises(SettingError, "k", "recommend(user_ids, k=10)", "recommend_for(matrix)"):
            ask()


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
def test_rows_of_a_matrix_are_histories(
    fitted: Recommender, matrix: sp.csr_matrix, form: str
) -> None:
    rows = matrix[[3, 4, 5]].asformat(form)
    lists = [row.indices.tolist() for row in matrix[[3, 4, 5]]]
    found, expected = (fitted.recommend_for(given, k=3) for given in (rows, lists))  # type: ignore[arg-type]
    assert [one.item_ids for one in found] == [one.item_ids for one in expected]
    assert (fitted.score_for(rows, [1, 2]) == fitted.score_for(lists, [1, 2])).all()  # type: ignore[arg-type]


def test_a_run_trained_on_a_matrix_takes_one(
    matrix: sp.csr_matrix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trained = foretaste.train("ease", matrix, protocol="none", device="cpu")
    dataset = foretaste.prepare(matrix, "data", protocol="none")
    for run in (trained, foretaste.train("ease", dataset.path, device="cpu")):
        assert len(foretaste.load(run).recommend_for(matrix[:2])) == 2  # type: ignore[arg-type]


def test_a_saved_fit_of_a_matrix_takes_one(
    fitted: FittedRecommender, matrix: sp.csr_matrix, tmp_path: Path
) -> None:
    loaded = foretaste.load(fitted.save(tmp_path / "run"))
    here, there = (one.recommend_for(matrix[[3, 4]], k=3) for one in (fitted, loaded))  # type: ignore[arg-type]
    assert [one.item_ids for one in here] == [one.item_ids for one in there]
    with raises(SettingError, "k", "recommend(user_ids, k=10)", "recommend_for(matrix)"):
        loaded.recommend([3, 4], matrix[[3, 4]])  # type: ignore[arg-type]


def test_a_model_of_other_data_takes_no_matrix(matrix: sp.csr_matrix) -> None:
    rows = matrix.tocoo()
    frame = pd.DataFrame({"user_id": rows.row, "item_id": rows.col})
    recommender = foretaste.fit("ease", frame, device="cpu")
    with raises(SettingError, "histories"):
        recommender.recommend_for(matrix)  # type: ignore[arg-type]


def test_values_other_than_one_are_named(
    matrix: sp.csr_matrix, recwarn: pytest.WarningsRecorder
) -> None:
    plays = matrix.copy()
    plays.data[3] = 7
    with pytest.warns(DataWarning) as warned:
        foretaste.fit("ease", plays, device="cpu")
    says(warned[0].message, 'weight_column="rating"')
    recwarn.clear()
    foretaste.fit("ease", matrix, device="cpu")
    foretaste.fit("ease", plays, weight_column="rating", device="cpu")
    assert [str(one.message) for one in recwarn if "not used" in str(one.message)] == []


def test_files_of_recbole_are_read(tmp_path: Path) -> None:
    rows = "user_id:token\titem_id:token\trating:float\ttimestamp:float\n" + "".join(
        f"u{user}\ti{item}\t5\t{item}\n" for user in range(4) for item in range(3)
    )
    source, items = tmp_path / "shop.inter", tmp_path / "shop.item"
    source.write_text(rows)
    items.write_text("item_id:token\tmovie_title:token_seq\ni0\tOne\ni1\tTwo\n")
    dataset = foretaste.prepare(source, tmp_path / "data", items=items)
    assert dataset.manifest.columns == {
        "user_id": "user_id:token", "item_id": "item_id:token", "time": "timestamp:float"
    }  # fmt: skip
    assert dataset.manifest.notes["titles"].startswith(
        "'movie_title:token_seq' of shop.item, for 2"
    )
