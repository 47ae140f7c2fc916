"""A preparation repeats the settings of a run's data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretaste._util.signed_json import signed_text
from foretaste.data import Dataset, prepare
from foretaste.errors import DatasetError, InputError, RunError
from foretaste.runs import Run
from foretaste.training import Callback, train
from tests.cli.conftest import call
from tests.data.conftest import WriteFile
from tests.messages import raises, says

ROWS = "".join(
    f"{user};{(user + step) % 7};{1 + step};{'cart' if step else 'view'};{step + 3}\n"
    for user in range(12)
    for step in range(4)
)
HEADINGS = "who;what;stars;kind;when\n"
SETTINGS: dict[str, Any] = {
    "user_column": "who",
    "item_column": "what",
    "rating_column": "stars",
    "min_rating": 2.0,
    "min_item_users": 2,
    "time_column": "when",
    "event_column": "kind",
    "events": ("cart=4", "view"),
    "weight_scale": "log",
    "delimiter": ";",
    "user_id_type": "text",
}


@pytest.fixture
def source(write: WriteFile) -> Path:
    return write(HEADINGS + ROWS, "shop.csv")


@pytest.fixture
def run(source: Path, tmp_path: Path) -> Run:
    data = prepare(source, tmp_path / "first", protocol="leave-one-out", seed=3, **SETTINGS)
    return train("ease", data, run=tmp_path / "run", device="cpu", callback=Callback())


def preparation(run: Run) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run.path / "config.json").read_text())
    kept: dict[str, Any] = document["request"]["data"]["preparation"]
    return kept


def settings_of(dataset: Dataset) -> dict[str, Any]:
    config = dataset.manifest.config
    return {name: tuple(config[name]) if name == "events" else config[name] for name in SETTINGS}


def test_a_run_keeps_the_settings_of_its_preparation(run: Run) -> None:
    of_files = {"user_id_type"}
    assert preparation(run) == {
        name: list(value) if name == "events" else value
        for name, value in SETTINGS.items()
        if name not in of_files
    }


@pytest.mark.parametrize("like", ["run", "first"])
def test_the_settings_of_a_run_are_repeated(
    run: Run, source: Path, tmp_path: Path, like: str
) -> None:
    again = prepare(source, tmp_path / "again", like=tmp_path / like, protocol="none")
    assert settings_of(again) == SETTINGS
    assert (again.manifest.protocol, again.manifest.seed) == ("none", 0)
    assert again.train_weights(range(1)) is not None
    note = again.manifest.notes["like"]
    assert note.endswith(f" as {tmp_path / like}")
    assert "--event-column kind --events cart=4 view" in note
    by_hand = prepare(source, tmp_path / "hand", protocol="none", **SETTINGS)
    assert again.manifest.digest == by_hand.manifest.digest


def test_what_is_given_wins_and_is_printed(run: Run, source: Path, tmp_path: Path) -> None:
    again = prepare(
        source,
        tmp_path / "again",
        like=run.path,
        protocol="none",
        event_column="kind",
        events=["cart"],
        min_rating=3.0,
    )
    given = {"events": ("cart",), "min_rating": 3.0}
    assert settings_of(again) == SETTINGS | given
    assert again.manifest.notes["like"].endswith(
        f" as {run.path}; --min-rating 3.0 --events cart in place of --min-rating 2.0 --events "
        "cart=4 view"
    )


def test_a_column_that_is_missing_is_one_sentence(
    run: Run, write: WriteFile, tmp_path: Path
) -> None:
    other = write("who;what;stars;when\n1;2;3;4\n", "other.csv")
    with raises(InputError, "kind", "--event-column"):
        prepare(other, tmp_path / "x", like=run.path, protocol="none")
    done = call("train", "--like", str(run.path), str(other))
    assert done.status == 2
    says(done.err, other, "kind", "--event-column")


def test_a_changed_description_is_named(run: Run, source: Path, tmp_path: Path) -> None:
    for like, file, kind in (
        ("run", "config.json", RunError),
        ("first", "manifest.json", DatasetError),
    ):
        path = tmp_path / like / file
        for content in (path.read_text()[:-9], path.read_text().replace("who", "what"), "[]"):
            path.write_text(content)
            with raises(kind, path):
                prepare(source, tmp_path / "x", like=tmp_path / like, protocol="none")


def test_a_run_of_another_version_is_named(run: Run, source: Path, tmp_path: Path) -> None:
    path = run.path / "config.json"
    document = json.loads(path.read_text())
    del document["request"]
    path.write_text(signed_text(document))
    with raises(RunError, path, "request"):
        prepare(source, tmp_path / "x", like=run.path, protocol="none")


def test_train_repeats_the_weights(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = call("train", "--like", "run", str(source), "--run", "again")
    assert done.status == 0, done.err
    dataset = prepare(source, protocol="none", **SETTINGS)
    assert Run.open("again").config.dataset.digest == dataset.manifest.digest
    assert dataset.manifest.mean_weight is not None


def test_no_password_is_kept(run: Run) -> None:
    """The settings of a preparation have no query, no master of Spark and no source."""
    others = {"query", "spark_master", "engine", "output", "protocol", "seed"}
    assert not others & preparation(run).keys()


def test_the_layout_is_repeated(write: WriteFile, tmp_path: Path) -> None:
    source = write("1 10 11 12\n2 11 12 13\n3 10 13\n", "lists.txt")
    data = prepare(source, tmp_path / "first", layout="lists", protocol="none")
    run = train("ease", data, run=tmp_path / "run", device="cpu", callback=Callback())
    for number, like in enumerate((data.path, run.path)):
        again = prepare(source, tmp_path / f"again{number}", like=like, protocol="none")
        assert again.manifest.digest == data.manifest.digest
        assert again.manifest.notes["like"] == f"--layout lists as {like}"
