"""`foretaste.fit`: a recommender from raw interactions in one call, with no files left behind."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import sparse

import foretaste
from foretaste.data import Dataset, GenerateConfig, generate, prepare
from foretaste.errors import (
    Interrupted,
    RunError,
    SettingError,
    TrainingError,
    UnsupportedError,
)
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.recommend import Recommender
from foretaste.runs import Run, list_runs, verify
from foretaste.training import Callback
from foretaste.training.callbacks import EpochReport, TrainingStart
from foretaste.training.request import rerun_request
from tests.messages import Named, raises
from tests.training.trainings import trained_again

SHAPE = GenerateConfig(num_users=40, num_items=30, num_interactions=500, num_genres=4)
SMALL: dict[str, dict[str, Any]] = {
    "neumf": {"factors": 4, "layers": (8, 4)},
    "gmf": {"factors": 4},
    "mlp": {"layers": (8, 4)},
    "vae": {"hidden": (12,), "latent": 4},
    "dae": {"hidden": (12,), "latent": 4},
    "recvae": {"width": 12, "latent": 4},
    "sasrec": {"factors": 8, "max_length": 6},
}
QUIET = Callback()


@pytest.fixture(scope="module")
def plays() -> pa.Table:
    return generate(SHAPE).table


@pytest.fixture(scope="module")
def films() -> pa.Table:
    return generate(SHAPE).items


@pytest.fixture(scope="module")
def everything(
    plays: pa.Table, films: pa.Table, tmp_path_factory: pytest.TempPathFactory
) -> Dataset:
    """A dataset that holds nothing out."""
    return prepare(plays, tmp_path_factory.mktemp("all") / "data", items=films, protocol="none")


@pytest.fixture(scope="module")
def whole(plays: pa.Table, films: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """EASE fitted to the raw interactions."""
    run: Run = fitted("ease", plays, items=films).save(tmp_path_factory.mktemp("whole") / "run")
    return run


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no file is left in the temporary or working directory, however a test ends."""
    places = (tmp_path / "temporary", tmp_path / "working")
    for place in places:
        place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(places[0]))
    monkeypatch.chdir(places[1])
    yield
    assert [list(place.iterdir()) for place in places] == [[], []]


def quick(model: str) -> dict[str, Any]:
    """Settings of a short training that act on the model."""
    kind = config_class(model)
    steps = {"learning_rate": 0.01} if kind.has_steps else {}
    return {"epochs": 2, **steps} if kind.has_epochs else {}


def fitted(model: str, interactions: Any, **settings: Any) -> Any:
    given = {"device": "cpu", **quick(model), **SMALL.get(model, {}), "callback": QUIET, **settings}
    return foretaste.fit(model, interactions, **given)


def answers(recommender: Recommender) -> list[Any]:
    known = recommender.recommend(recommender.users.ids(), k=5)
    return [known, recommender.recommend_for([recommender.items.ids()[:3], []], k=5)]


class Trainings(Callback):
    """Callback that remembers every training and its epochs."""

    def __init__(self) -> None:
        self.protocols: list[str] = []
        self.epochs: list[int] = []

    def started(self, start: TrainingStart) -> None:
        assert not start.dataset.startswith(tempfile.gettempdir())
        self.protocols.append(start.protocol)
        self.epochs.append(0)

    def epoch_done(self, report: EpochReport) -> None:
        self.epochs[-1] = report.epoch


@pytest.mark.parametrize("model", MODEL_NAMES)
def test_every_model_answers_as_one_that_was_trained_does(
    model: str, everything: Dataset, tmp_path: Path
) -> None:
    recommender = fitted(model, everything)
    settings = quick(model) | SMALL.get(model, {})
    run = foretaste.train(
        model, everything, run=tmp_path / "run", device="cpu", callback=QUIET, **settings
    )
    assert answers(recommender) == answers(foretaste.load(run, device="cpu"))
    assert recommender.recommend(1, k=1)[0].items[0].title is not None
    saved = recommender.save(tmp_path / "saved")
    weights = [(place / "best.safetensors").read_bytes() for place in (run.path, saved.path)]
    assert weights[0] == weights[1]
    assert saved.config.dataset.digest == everything.manifest.digest
    assert answers(recommender) == answers(foretaste.load(tmp_path / "saved", device="cpu"))


def test_epochs_are_those_that_were_best_on_a_hold_out(plays: pa.Table, tmp_path: Path) -> None:
    """The epochs equal the steps by hand: train on all but the last item of each user, then repeat
    the run on everything."""
    model, watched = "gmf", Trainings()
    settings: dict[str, Any] = SMALL[model] | {"device": "cpu", "eval_every": 1, "patience": 2}
    recommender = foretaste.fit(model, plays, callback=watched, learning_rate=0.2, **settings)
    heldout = prepare(plays, tmp_path / "holdout", protocol="leave-one-out", validation="none")
    found = foretaste.train(
        model, heldout, run=tmp_path / "found", callback=QUIET, learning_rate=0.2, **settings
    )
    best_epoch = found.log.read()[-1]["best_epoch"]
    assert watched.protocols == ["leave-one-out", "none"]
    assert watched.epochs == [len(found.history), best_epoch]
    everything = prepare(plays, tmp_path / "all", protocol="none")
    run = trained_again(rerun_request(found), everything, tmp_path / "run", QUIET)
    saved = recommender.save(tmp_path / "saved")
    assert run.open_weights().digest == saved.open_weights().digest
    assert len(saved.history) == best_epoch


def test_a_saved_recommender_is_an_ordinary_run(plays: pa.Table, tmp_path: Path) -> None:
    run = fitted("vae", plays, epochs=3).save(tmp_path / "runs" / "shop")
    assert isinstance(run, Run)
    assert run.is_finished
    assert len(run.history) == 3
    ours = {"best.safetensors", "config.json", "histories.parquet", "items.parquet"}
    assert {path.name for path in run.path.iterdir()} == ours | {"metrics.jsonl", "users.parquet"}
    assert verify(run.path) == []
    (listed,) = list_runs(tmp_path / "runs")
    assert (listed.model, listed.state) == ("vae", "finished")


def test_a_path_that_is_taken_is_refused(plays: pa.Table, tmp_path: Path) -> None:
    recommender = fitted("popularity", plays)
    run = recommender.save(tmp_path / "run")
    with raises(RunError, run.path, "--overwrite"):
        recommender.save(run.path)
    before = (run.path / "best.safetensors").stat().st_ino
    assert recommender.save(run.path, overwrite=True).path == run.path
    assert (run.path / "best.safetensors").stat().st_ino != before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "temporary", "working"]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    with raises(RunError, tmp_path / "notes"):
        recommender.save(tmp_path / "notes", overwrite=True)


@pytest.mark.parametrize("protocol", ["leave-one-out", "held-out-users", "temporal", "none"])
def test_fit_learns_from_the_whole_dataset_for_any_split(
    protocol: Any, plays: pa.Table, films: pa.Table, whole: Run, tmp_path: Path
) -> None:
    dataset = prepare(plays, tmp_path / "data", items=films, protocol=protocol)
    recommender = fitted("ease", dataset)
    assert answers(recommender) == answers(foretaste.load(whole, device="cpu"))
    assert recommender.save(tmp_path / "run").config.dataset.digest == whole.config.dataset.digest


@pytest.mark.parametrize("kind", [str, Path])
def test_the_path_of_a_dataset_is_taken(kind: Any, everything: Dataset, whole: Run) -> None:
    assert everything.manifest.digest == whole.config.dataset.digest
    recommender = fitted("ease", kind(everything.path))
    assert answers(recommender) == answers(foretaste.load(whole, device="cpu"))


def test_frames_and_files_are_taken(plays: pa.Table, tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    file = tmp_path / "plays.csv"
    plays.to_pandas().to_csv(file, index=False)
    expected = answers(fitted("ease", plays))
    frames = (pd.read_csv(file), pl.from_arrow(plays), file)
    assert [answers(fitted("ease", frame)) for frame in frames] == [expected] * 3
    renamed = plays.rename_columns(["listener", "song", "at"])
    columns = {"user_column": "listener", "item_column": "song"}
    assert answers(fitted("ease", renamed, **columns)) == expected


def test_a_model_of_the_order_reads_it(plays: pa.Table) -> None:
    by_times = fitted("slist", plays, search=False)
    newest_first = plays.sort_by([("timestamp", "descending")]).drop_columns("timestamp")
    by_rows = fitted("slist", newest_first[::-1], search=False, order="rows")
    backwards = fitted("slist", newest_first, search=False, order="rows")
    expected = answers(by_times)
    assert answers(by_rows) == expected
    assert answers(backwards) != expected


def test_a_model_of_the_order_is_refused_without_one(plays: pa.Table) -> None:
    pairs = plays.drop_columns("timestamp")
    with raises(UnsupportedError, "slist", "--time-column", "--layout lists", "--order rows"):
        fitted("slist", pairs)
    odd = plays.rename_columns(["user_id", "item_id", "bought_on"])
    with raises(UnsupportedError, "slist", "bought_on", "--time-column", "--time-column"):
        fitted("slist", odd)
    user_id, item_id = (plays[name].to_numpy() for name in ("user_id", "item_id"))
    matrix = sparse.coo_array((np.ones(len(plays)), (user_id, item_id)))
    for settings in ({}, {"order": "rows"}):
        with raises(UnsupportedError, "slist"):
            fitted("slist", matrix, **settings)
    assert fitted("ease", matrix, search=False).recommend([1])


def test_a_matrix_is_answered_by_a_model_of_all_parts_of_a_prepared_one(
    plays: pa.Table, tmp_path: Path
) -> None:
    user_id, item_id = (plays[name].to_numpy() for name in ("user_id", "item_id"))
    matrix = sparse.csr_array((np.ones(len(plays)), (user_id, item_id)))
    recommender = fitted("ease", prepare(matrix, tmp_path / "data", protocol="leave-one-out"))
    saved = foretaste.load(recommender.save(tmp_path / "run"), device="cpu")
    lists = [matrix.indices[start:end].tolist() for start, end in pairwise(matrix.indptr)]
    for answering in (recommender, saved):
        assert answering.recommend_for(matrix) == answering.recommend_for(lists)


def test_settings_that_prepare_the_same_file_are_taken(tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    rows = "".join(f"u{n % 7};i{n % 5};{n % 28 + 1:02}.01.2024\n" for n in range(40))
    file.write_text(f"user;item;Tag\n{rows}", encoding="utf-8")
    settings = {"time_column": "Tag", "time_format": "%d.%m.%Y"}
    prepare(file, tmp_path / "prepared", **settings)
    fitted = foretaste.fit("popularity", file, callback=QUIET, **settings)
    assert len(fitted.recommend("u1", k=5, include_seen=True)[0].item_ids) == 5


class Interrupting(Callback):
    """Callback that sends this process a signal after an epoch."""

    def __init__(self, number: int) -> None:
        self.number = number

    def epoch_done(self, report: EpochReport) -> None:
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize(("number", "epochs"), [(signal.SIGINT, 3), (signal.SIGTERM, "auto")])
def test_an_interrupted_fit_leaves_nothing(number: int, epochs: Any, plays: pa.Table) -> None:
    with raises(Interrupted) as caught:
        fitted("gmf", plays, epochs=epochs, callback=Interrupting(number))
    assert caught.value.signal_number == number


def test_a_diverging_loss_is_reported_without_a_run(plays: pa.Table) -> None:
    with raises(TrainingError, "nan", 1, 2, 42, "--learning-rate", 1e30):
        fitted("gmf", plays, loss="bce", learning_rate=1e30, epochs=20)


@pytest.mark.parametrize(
    ("model", "settings", "named"),
    [
        ("knn", {}, ("model", "knn", *MODEL_NAMES, "itemknn")),
        ("ease", {"epochs": 3}, ("epochs", "ease", "device", "select_by", "search", "candidates")),
        ("ease", {"candidates": "sampled-9"}, ("candidates", "ease")),
        ("gmf", {"epochs": 3, "patience": 2}, ("patience", "epochs")),
        ("ease", {"protocol": "temporal"}, ("protocol", "temporal")),
    ],
)
def test_wrong_settings_are_one_error(
    model: str, settings: dict[str, Any], named: Named, plays: pa.Table
) -> None:
    with raises(SettingError, *named):
        foretaste.fit(model, plays, callback=QUIET, **settings)


def test_data_in_place_of_the_model_are_not_printed(plays: pa.Table) -> None:
    swapped: Any = (plays, "ease")
    with raises(SettingError, "model", "Table", "fit(model, data)"):
        foretaste.fit(*swapped)


def test_one_item_each_leaves_no_epochs_to_find() -> None:
    plays = pa.table({"user_id": [1, 2, 3], "item_id": [1, 2, 1]})
    with raises(SettingError, "epochs", "auto", "epochs"):
        fitted("gmf", plays, epochs="auto")
    assert len(fitted("gmf", plays).recommend(1, k=1)[0].items) == 1
