"""A test that starts processes shows the stacks of all of them at its limit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from foretaste.data import Dataset
from tests import launched
from tests.runs.tiny import make_dataset, make_run
from tests.serve import processes


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_dataset(tmp_path / "data")


def stand_still(rank: int) -> None:
    Path(f"standing-{rank}").write_text("now")
    time.sleep(60)


def test_stacks_of_ranks_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with launched.launched(2, "--help", tmp_path, prelude=stand_still) as ranks:
        for rank in range(2):
            ranks.wait_for(tmp_path / f"standing-{rank}", "now")
        monkeypatch.setattr(launched, "TIMEOUT_S", 0.1)
        with pytest.raises(TimeoutError) as caught:
            ranks.statuses()
    assert str(caught.value).count("in stand_still") == 2


def test_stacks_of_the_service_are_shown(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", dataset)

    def wait_in_vain() -> None:
        with processes.serve(run.path):
            monkeypatch.setattr(processes, "LIMIT_S", 0.1)
            processes.wait_for(lambda: False)

    with pytest.raises(TimeoutError) as caught:
        wait_in_vain()
    (note,) = caught.value.__notes__
    assert "foretaste/serve/" in note
    assert "(most recent call first)" in note
