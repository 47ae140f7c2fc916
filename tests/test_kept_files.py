"""Files of older versions stay readable, and formats change only with a new number."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretaste
from foretaste.data import open_dataset
from foretaste.export.formats import FILES, load
from foretaste.runs import Run, verify
from foretaste.serve.events import Event, EventStore
from tests.databases import items_of
from tests.docs.pages import page
from tests.fixtures import write

KEPT = write.HERE
DATASETS, RUNS, EXPORTS = (
    sorted(KEPT.glob(f"{kind}-*/*")) for kind in ("dataset", "run", "export")
)
LISTS = json.loads(write.LISTS.read_text())


def name_of(path: Path) -> str:
    return path.relative_to(KEPT).as_posix()


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The schemas of this foretaste's files."""
    root = tmp_path_factory.mktemp("fresh")
    write.write(root)
    return write.schemas(root)


@pytest.mark.parametrize("kind", write.FORMATS)
def test_a_schema_changes_with_its_number_alone(kind: str, schemas: dict[str, Any]) -> None:
    place = f"{kind}-{write.FORMATS[kind]}"
    stored = json.loads(write.SCHEMAS.read_text())
    new = schemas[place].keys() - stored.get(place, {}).keys()
    assert not new, "run python -m tests.fixtures.write, which writes what is new"
    for name, entries in stored[place].items():
        assert schemas[place].get(name) == entries, (
            f"{name}: what a {kind} holds has changed; raise its format number, then run "
            "python -m tests.fixtures.write; or, for a new setting of a preparation, name it in "
            "_ABSENT_IF_NONE of data/config.py"
        )


def test_every_kind_and_model_has_a_stored_file() -> None:
    number = write.FORMATS["run"]
    assert {path.name for path in KEPT.glob(f"run-{number}/*")} == {
        *write.RUNS,
        *("blend", "ease-features"),
    }
    assert {name_of(path) for path in RUNS} == LISTS.keys()
    folders = {path.name for path in KEPT.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == json.loads(write.SCHEMAS.read_text()).keys()


def test_the_page_has_the_numbers() -> None:
    rows = {row[0]: row[1] for row in page("data.md").rows("Versions")}
    numbers = {kind: number for kind, number in write.FORMATS.items() if kind != "events"}
    assert rows == {**{kind: str(number) for kind, number in numbers.items()}, "events": "none"}


@pytest.mark.parametrize("path", DATASETS, ids=name_of)
def test_a_kept_dataset_is_read(path: Path) -> None:
    dataset = open_dataset(path)
    assert dataset.train.num_interactions == dataset.manifest.num_interactions
    assert verify(path) == []


@pytest.mark.parametrize("path", RUNS, ids=name_of)
def test_a_stored_run_answers_and_resumes(path: Path, tmp_path: Path) -> None:
    assert verify(path) == []
    answer = foretaste.load(path, device="cpu").recommend([write.FIRST_USER], k=3)[0]
    assert [item.item_id for item in answer.items] == LISTS[name_of(path)]
    run = Run.open(path)
    if run.load_state() is None:
        assert run.is_finished
        return
    copy = shutil.copytree(path, tmp_path / "run")
    run = foretaste.resume(copy, dataset=KEPT / run.config.dataset.path)
    assert run.is_finished
    assert verify(copy) == []


@pytest.mark.parametrize("path", EXPORTS, ids=name_of)
def test_a_kept_export_answers(path: Path, tmp_path: Path) -> None:
    call = load("onnx" if (path / FILES["onnx"]).exists() else "torch", path)
    history = np.array([0, 2], dtype=np.int64)
    item_index, _ = call({"history": history, "history_length": np.array([2], dtype=np.int64)})
    run = path.parents[1] / f"run-{write.FORMATS['run']}" / "ease"
    answer = foretaste.load(run, device="cpu").recommend_for([[501, 503]], k=3)[0]
    assert [write.FIRST_ITEM + index for index in item_index[0]] == [
        item.item_id for item in answer.items
    ]
    copy = shutil.copytree(path, tmp_path / "export")
    foretaste.export_run(run, copy, format="torch", k=2, overwrite=True)


@pytest.mark.parametrize("path", sorted(KEPT.glob("events-*/*")), ids=name_of)
def test_stored_events_are_read_and_more_are_added(path: Path, tmp_path: Path) -> None:
    store = EventStore(str(shutil.copy(path, tmp_path)))
    store.create()
    store.start()
    try:
        assert items_of(store, ["100", "101"]) == {"100": ["502"]}
        later = [Event(name, "101", "505", 3.0) for name in ("one", "two", "three")]
        assert store.add(later).result() == 1  # one is there, two was withdrawn
        assert items_of(store, ["100", "101"]) == {"100": ["502"], "101": ["505"]}
    finally:
        store.close()
