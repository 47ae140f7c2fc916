"""The command line, Python and HTTP make equal requests from the same values."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest

import foretaste
from foretaste import (
    EvaluationConfig,
    Recommender,
    Run,
    compete,
    load,
    prepare,
    train,
    tune_model,
)
from foretaste.data import GivenSplit, PrepareConfig, PrepareRequest
from foretaste.errors import SettingError
from foretaste.evaluation.config import EvaluationOptions, lengths_of
from foretaste.measure.evaluate_runs import dataset_of_runs
from foretaste.measure.request import MeasureOptions, MeasureRequest
from foretaste.measure.tables import HEADLINE
from foretaste.recommend.config import FilterOptions, ListOptions, ListRequest
from foretaste.serve.schemas import RecommendBody
from foretaste.training import Callback, LogConfig, TrainingConfig, TrainRequest, train_run
from foretaste.tune.competition import CompeteRequest
from foretaste.tune.search import TuneRequest
from tests.cli.conftest import call
from tests.messages import raises
from tests.runs.tiny import FIRST_USER, make_dataset, make_run


class Given(NamedTuple):
    """A field's value by each door; None for a door without the field."""

    command: str | None
    python: dict[str, Any]
    body: dict[str, Any] | None


LISTS = {
    "nothing": Given("", {}, {}),
    "k": Given("-k 3", {"k": 3}, {"k": 3}),
    "exclude": Given("--exclude 3 4", {"exclude": [3, 4]}, {"exclude": [3, 4]}),
    "candidates": Given("--candidates 3 4", {"candidates": (3, 4)}, {"candidates": [3, 4]}),
    "include_seen": Given("--include-seen", {"include_seen": True}, {"include_seen": True}),
    "rules": Given("--rules b a b", {"rules": ["b", "a"]}, {"rules": ["a", "b"]}),
    # HTTP takes no SQL: the people who start the service write rules.
    "where": Given("--where item_id>3", {"where": "item_id>3"}, None),
    "max_per": Given(
        "--max-per title=2 genre=1",
        {"max_per": {"genre": 1, "title": 2}},
        {"max_per": {"title": 2, "genre": 1}},
    ),
    "reasons": Given("--reasons", {"reasons": True}, {"reasons": True}),
}


# `compare` and `report` take lengths of lists from --metrics, and they measure in batches of
# the usual size; a report always measures more.
MEASURED = {
    "nothing": Given("", {}, None),
    "dataset": Given("--dataset ./shop", {"dataset": "shop"}, None),
    "split": Given("--split validation", {"split": "validation"}, None),
    "device": Given("--device cpu", {"device": "cpu"}, None),
    "threads": Given("--threads 2", {"threads": 2}, None),
    "candidates": Given("--candidates sampled-3", {"candidates": "sampled-3"}, None),
    "k": Given("--k 5,3", {"k": [3, 5, 5]}, None),
    "evaluation_batch": Given("--evaluation-batch 7", {"evaluation_batch": 7}, None),
    "more": Given("--more", {"more": True}, None),
    "history_lengths": Given("--history-lengths 2 1", {"history_lengths": [1, 2]}, None),
}
OF_EVALUATE_ALONE = {"k", "evaluation_batch"}


TRAININGS = {
    "model": Given("train ease r.csv", {"model": "ease", "dataset": "r.csv"}, None),
    "data": Given(
        "train ease r.csv s.csv --items i.csv --features kind tags, --protocol temporal "
        "--filters reference --source-dir raw",
        {
            "model": "ease",
            "dataset": ["r.csv", "s.csv"],
            "items": "i.csv",
            "features": ["kind", "tags,"],
            "protocol": "temporal",
            "filters": "reference",
            "source_dir": "raw",
        },
        None,
    ),
    "model_config": Given(
        "train vae r.csv --hidden 20 10 --latent 5",
        {"model": "vae", "dataset": ("r.csv",), "hidden": [20, 10], "latent": 5},
        None,
    ),
    "none in place of auto": Given(
        "train sasrec r.csv --sampled-softmax none",
        {"model": "sasrec", "dataset": "r.csv", "sampled_softmax": None},
        None,
    ),
    "config": Given(
        "train vae r.csv --epochs 3 --learning-rate 1e-3 --seed 7 --candidates sampled-99",
        {
            "model": "vae",
            "dataset": "r.csv",
            "config": TrainingConfig(epochs=3, learning_rate=1e-3),
            "seed": 7,
            "candidates": "sampled-99",
        },
        None,
    ),
    "start_from": Given(
        "train gmf r.csv --from RUN --epochs 3",
        {"model": "gmf", "dataset": "r.csv", "start_from": "RUN", "epochs": 3},
        None,
    ),
    "pretraining": Given(
        "train neumf r.csv --pretrained-gmf g --pretrained-mlp m --pretrained-alpha 0.2",
        {
            "model": "neumf",
            "dataset": "r.csv",
            "pretrained_gmf": "g",
            "pretrained_mlp": "m",
            "pretrained_alpha": 0.2,
        },
        None,
    ),
    "run": Given(
        "train ease r.csv --run here", {"model": "ease", "dataset": "r.csv", "run": "here"}, None
    ),
    "overwrite": Given(
        "train ease r.csv --run here --overwrite",
        {"model": "ease", "dataset": "r.csv", "run": Path("here"), "overwrite": True},
        None,
    ),
    "logs": Given(
        "train vae r.csv --log-path m.jsonl --trace",
        {
            "model": "vae",
            "dataset": "r.csv",
            "logs": LogConfig(log_path=Path("m.jsonl"), trace=True),
        },
        None,
    ),
    "threads": Given(
        "train ease r.csv --threads 2", {"model": "ease", "dataset": "r.csv", "threads": 2}, None
    ),
}
"""Fields of a training. A service trains nothing."""

PYTHON_ALONE = {
    "runs_root": "a shell names the run, or changes the directory",
    "needs_features": "--like sets it, by the run that is repeated",
    "root": "a shell names the output, or changes the directory",
}
"""Fields that no option sets, with the reason."""

PREPARATIONS = {
    "source": Given("prepare r.csv s.csv", {"source": ["r.csv", "s.csv"]}, None),
    "config": Given(
        "prepare r.csv --user-column u --min-rating 4 --validation none --seed 3",
        {
            "source": "r.csv",
            "config": PrepareConfig(user_column="u", min_rating=4, seed=5),
            "validation": "none",
            "seed": 3,
        },
        None,
    ),
    "a split": Given(
        "prepare --train a.csv --validation b.csv --test c.csv",
        {"source": GivenSplit(train="a.csv", validation="b.csv", test="c.csv")},
        None,
    ),
    "items": Given(
        "prepare r.csv --items i.csv --features kind",
        {"source": "r.csv", "items": "i.csv", "features": ("kind",)},
        None,
    ),
    "source_dir": Given(
        "prepare ml-1m --source-dir raw", {"source": "ml-1m", "source_dir": Path("raw")}, None
    ),
    "like": Given("prepare r.csv --like RUN", {"source": "r.csv", "like": "RUN"}, None),
    "output": Given("prepare r.csv -o out", {"source": "r.csv", "output": "out"}, None),
    "overwrite": Given("prepare r.csv --overwrite", {"source": "r.csv", "overwrite": True}, None),
}
"""Fields of a preparation."""

SEARCHES = {
    "train": Given(
        "tune vae r.csv --latent 5 --epochs 3 --threads 2",
        {"model": "vae", "dataset": "r.csv", "latent": 5, "epochs": 3, "threads": 2},
        None,
    ),
    "given": Given(
        "tune ials r.csv --factors 64 --epochs auto",
        {"model": "ials", "dataset": "r.csv", "epochs": "auto", "factors": 64},
        None,
    ),
    "trials": Given(
        "tune ease r.csv --trials 3", {"model": "ease", "dataset": "r.csv", "trials": 3}, None
    ),
    "time_s": Given(
        "tune ease r.csv --time 2m", {"model": "ease", "dataset": "r.csv", "time_s": 120}, None
    ),
    "output": Given(
        "tune ease r.csv -o s", {"model": "ease", "dataset": "r.csv", "output": "s"}, None
    ),
}
"""Fields of a search."""

COMPETITIONS = {
    "data": Given(
        "compete r.csv --items i.csv --protocol temporal",
        {"dataset": "r.csv", "items": "i.csv", "protocol": "temporal"},
        None,
    ),
    "models": Given(
        "compete r.csv --models ease,vae ease",
        {"dataset": "r.csv", "models": ["ease", "vae"]},
        None,
    ),
    "tune": Given("compete r.csv --tune 2", {"dataset": "r.csv", "tune": 2}, None),
    "config": Given(
        "compete r.csv --epochs 3 --device cpu",
        {"dataset": "r.csv", "config": TrainingConfig(device="cpu"), "epochs": 3},
        None,
    ),
    "metrics": Given("compete r.csv -m hr@5", {"dataset": "r.csv", "metrics": ["hr@5"]}, None),
    "output": Given("compete r.csv -o c", {"dataset": "r.csv", "output": "c"}, None),
    "threads": Given("compete r.csv --threads 2", {"dataset": "r.csv", "threads": 2}, None),
}
"""Fields of a competition."""

VERBS: dict[str, Any] = {
    "train": (TrainRequest, train, TRAININGS),
    "prepare": (PrepareRequest, prepare, PREPARATIONS),
    "tune": (TuneRequest, tune_model, SEARCHES),
    "compete": (CompeteRequest, compete, COMPETITIONS),
}


class Asked(Exception):  # noqa: N818 (it carries a request out of a verb)
    """A request that reached the one function of its verb."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("requests")
    return make_run(root / "run", make_dataset(root, titles=True)).path


def test_every_field_of_a_list_is_in_the_table() -> None:
    assert {item.name for item in fields(ListRequest)} == LISTS.keys() - {"nothing"}
    assert ListOptions.__annotations__.keys() == LISTS.keys() - {"nothing", "k"}
    assert FilterOptions.__annotations__.keys() == LISTS.keys() - {"nothing", "k", "reasons"}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_the_same_request_by_every_door(name: str, run: Path) -> None:
    given = LISTS[name]
    made = []

    def keep(self: Recommender, users: object, request: ListRequest, *others: object) -> Any:
        made.append(request)
        raise Asked

    recommender = load(run, "cpu")
    with patch.object(Recommender, "answers", keep), patch.object(Recommender, "write", keep):
        with pytest.raises(Asked):
            recommender.recommend([FIRST_USER], **given.python)
        with pytest.raises(Asked):
            recommender.recommend_for([[1, 5]], **given.python)
        with pytest.raises(Asked):
            recommender.recommend_all(run / "all.csv", **given.python)
        with pytest.raises(Asked):
            recommender.recommend_all_for(run / "all.csv", [[1, 5]], **given.python)
        for users in (f"--user {FIRST_USER}", "--history 1 5", "--all --output all.csv"):
            if (name, users[:5]) == ("reasons", "--all"):
                continue  # reasons are not written to a file
            with pytest.raises(Asked):
                call("recommend", run, *users.split(), *(given.command or "").split())
    if given.body is not None:
        body = {"users": [{"user_id": FIRST_USER}]} | given.body
        made.append(RecommendBody.model_validate_json(json.dumps(body)).request())
    assert len(set(made)) == 1
    assert (made[0] == ListRequest()) == (name == "nothing")


def test_a_list_is_equal_however_its_values_are_given() -> None:
    expected = ListRequest(
        k=3, exclude=(3,), candidates=(1, 2), max_per=(("brand", 2), ("genre", 1))
    )
    for found in (
        ListRequest.of(3, exclude=3, candidates=[1, 2], max_per={"genre": 1, "brand": 2}),
        ListRequest.of(np.int64(3), exclude={3}, candidates=np.array([1, 2]), rules=[],
                       max_per={"brand": np.int32(2), "genre": 1}),
        replace(expected, where=None),
    ):  # fmt: skip
        assert found == expected
        assert hash(found) == hash(expected)


def test_reasons_are_written_to_no_file(run: Path, tmp_path: Path) -> None:
    asked = {"reasons": True}
    with raises(SettingError, "reasons"):
        load(run, "cpu").recommend_all(tmp_path / "all.csv", **asked)
    assert not [*tmp_path.iterdir()]


def test_an_unknown_keyword_is_refused_with_a_suggestion() -> None:
    for wrong, named in (
        ("excluded", ["exclude"]),
        ("epochs", ["TrainingConfig"]),
        (
            "colour",
            ["k", "exclude", "candidates", "include_seen", "rules", "where", "max_per", "reasons"],
        ),
    ):
        with raises(SettingError, "recommend", wrong, *named):
            ListRequest.of(**{wrong: 3})  # type: ignore[arg-type]
    with raises(SettingError, "evaluate_run", "history_lenghts", "history_lengths"):
        MeasureRequest.of("evaluate_run", history_lenghts=[1])
    for old, new in {"lr": "learning_rate", "run_path": "run", "sampling": "negatives"}.items():
        with raises(SettingError, "train", old, new):
            TrainRequest.of("gmf", "data", **{old: 1})


@pytest.mark.parametrize("method", [Recommender.recommend, Recommender.recommend_for])
def test_help_has_every_keyword_of_a_list(method: Any) -> None:
    parameters = inspect.signature(method).parameters
    for item in fields(ListRequest):
        assert parameters[item.name].default == item.default
        assert f"\n            {item.name}: " in str(Recommender.recommend.__doc__)
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())


def test_every_field_of_a_measurement_is_in_the_table() -> None:
    own = {item.name for item in fields(MeasureRequest)} - {"config"}
    assert own | {item.name for item in fields(EvaluationConfig)} == MEASURED.keys() - {"nothing"}
    assert MeasureOptions.__annotations__.keys() == MEASURED.keys() - {"nothing", "dataset"}
    assert EvaluationOptions.__annotations__.keys() == {
        item.name for item in fields(EvaluationConfig)
    }


@pytest.mark.parametrize("name", MEASURED)
def test_a_measurement_is_the_same_request_by_every_door(
    name: str, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, python = (MEASURED[name].command or "").split(), MEASURED[name].python
    made: list[MeasureRequest] = []

    def keep(runs: list[Run], request: MeasureRequest, *others: object) -> Any:
        data = dataset_of_runs(runs, request.dataset)
        made.append(replace(request, dataset=data.path.resolve()))
        raise Asked

    monkeypatch.chdir(run.parent)
    monkeypatch.setattr("foretaste.measure.evaluate_runs.measure_runs", keep)
    monkeypatch.setattr("foretaste.report.contents.measure_runs", keep)
    verbs: list[tuple[Callable[[], object], list[object]]] = [
        (partial(foretaste.evaluate_run, run, **python), ["evaluate", run]),
        (
            partial(foretaste.compare_runs, [run, run], **({"k": lengths_of(HEADLINE)} | python)),
            ["compare", run, run],
        ),
        (partial(foretaste.report_runs, [run], **python), ["report", run]),
    ]
    for verb, words in verbs[: 1 if name in OF_EVALUATE_ALONE else None]:
        if (name, words[0]) == ("more", "report"):
            continue
        with pytest.raises(Asked):
            verb()
        with pytest.raises(Asked):
            call(*words, *command)
        first, second = made[-2:]
        assert first == second
    assert (replace(made[0], dataset=None) == MeasureRequest()) == (name in ("nothing", "dataset"))


@pytest.mark.parametrize(
    "verb", [foretaste.evaluate_run, foretaste.compare_runs, foretaste.report_runs]
)
def test_help_has_every_keyword_of_a_measurement(verb: Any) -> None:
    parameters = inspect.signature(verb).parameters
    assert MEASURED.keys() - {"nothing"} <= parameters.keys()
    for name in MEASURED.keys() - {"nothing"}:
        assert f"\n        {name}: " in str(foretaste.evaluate_run.__doc__)
    assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.parametrize("verb", VERBS)
def test_every_field_is_in_a_table_or_has_its_reason(verb: str) -> None:
    request_class, _, table = VERBS[verb]
    names = {item.name for item in fields(request_class)}
    assert names <= table.keys() | PYTHON_ALONE.keys()
    assert not table.keys() & PYTHON_ALONE.keys()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(one, id=f"{verb}-{name}")
        for verb in VERBS
        for name, one in VERBS[verb][2].items()
    ],
)
def test_a_command_and_a_call_make_the_same_request(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert given.command is not None
    made = []

    def keep(request: object, *others: object) -> Any:
        made.append(request)
        raise Asked

    make_run(tmp_path / "RUN", make_dataset(tmp_path))
    monkeypatch.chdir(tmp_path)
    verb = VERBS[given.command.split()[0]][1]
    with (
        patch("foretaste.training.api.train_run", keep),
        patch("foretaste.training.request.TrainRequest.check_names"),  # nothing is there
        patch("foretaste.data.preparation.prepare_dataset", keep),
        patch("foretaste.tune.search.search_settings", keep),
        patch("foretaste.tune.competition.train_and_rank", keep),
    ):
        with pytest.raises(Asked):
            call(*given.command.split())
        with pytest.raises(Asked):
            verb(**given.python)
    command, python = made
    assert command == python
    assert not hasattr(command, "overwrite") or command != replace(
        command, overwrite=not command.overwrite
    )


def test_a_record_has_no_password_and_no_frame(tmp_path: Path) -> None:
    """A record has a frame's kind and the digest of its data, and a query's digest."""
    dataset = make_dataset(tmp_path)
    frame = pd.DataFrame({"user_id": [1], "item_id": [2]})
    url = "postgresql://shop:hunter2@host/shop"
    query = "SELECT * FROM events WHERE token = 'hunter3'"
    for source in (frame, url, [url, url]):
        request = TrainRequest.of("ease", source, query=query, items=url, run=tmp_path / "run")
        record = request.record(dataset.manifest)
        text = json.dumps(record)
        assert "hunter" not in text
        assert record["data"]["read"][0]["sha256"] == dataset.manifest.source[0]["sha256"]
    assert record["data"]["config"]["query"].startswith("sha256 ")
    assert TrainRequest.of("ease", frame).data.sources == ["a pandas DataFrame"]
    assert record["beside"].keys() >= {"run", "threads", "logs", "checkpoint_every_s"}


def test_fields_that_change_no_result_are_outside_comparisons_and_digests(tmp_path: Path) -> None:
    """Equal trainings have equal weight files, no matter where and by whom they are written."""
    dataset = make_dataset(tmp_path)
    one = TrainRequest.of("gmf", dataset, run=tmp_path / "one", device="cpu", epochs=1)
    beside: dict[str, Any] = {"run": tmp_path / "two", "threads": 1, "logs": LogConfig(trace=True)}
    config = replace(one.config, checkpoint_every_s=1.0, warm_up_epochs=1)
    two = replace(one, config=config, **beside)
    assert one.settings() == two.settings()
    assert one.settings() != replace(one, config=replace(config, seed=2)).settings()
    runs = [train_run(request, Callback()) for request in (one, two)]
    digests = {run.config.digest() for run in runs}
    assert len(digests) == 1
    assert len({run.open_weights().digest for run in runs}) == 1
    assert runs[1].config.request["beside"]["checkpoint_every_s"] == 1.0


def test_a_run_knows_its_request(tmp_path: Path) -> None:
    dataset = make_dataset(tmp_path)
    asked = TrainRequest.of(
        "gmf", dataset, run=tmp_path / "one", device="cpu", epochs=1, negatives="auto", factors=3
    )
    made = TrainRequest.of_run(train_run(asked, Callback()))
    assert made.settings() == asked.settings()
    assert made.data.source == dataset.path


def test_each_setting_stands_once_in_the_config_of_a_run(tmp_path: Path) -> None:
    request = TrainRequest.of("gmf", make_dataset(tmp_path), run=tmp_path / "one", epochs=1)
    config = train_run(request, Callback()).config
    assert config.request.keys() == {"data", "needs_features", "beside"}
    assert not config.asked.keys() & config.model_config.keys() - config.resolved.keys()
