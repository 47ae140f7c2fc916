"""Trainings killed with SIGKILL end like whole ones after resuming."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NUM_KILLS = 8
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_trainings_killed_at_random_moments_end_as_whole_ones(tmp_path: Path) -> None:
    """Neural models of both families, one after the other, until the kills suffice."""
    *lines, summary = said("kills", "--kills", str(NUM_KILLS), "--directory", str(tmp_path))
    trainings = [line for line in lines if "same" in line]
    assert summary["kills"] >= NUM_KILLS
    assert len(trainings) == summary["trainings"]
    assert {"gmf", "vae"} <= {line["case"][0] for line in trainings}
    assert all(all(line["same"].values()) for line in trainings)
    assert len(summary["hits"]) > 1, "they all hit the same spot"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_night_killed_before_any_change_leaves_yesterdays_run_or_the_new_one() -> None:
    lines = said("killed_nights")
    assert sum("moment" in line for line in lines) == 4
    for can_exchange in (True, False):
        found = [line["found"] for line in lines if line.get("can_exchange") is can_exchange]
        assert {"popularity", "ease"} <= {*found} <= {"popularity", "ease", None}
        assert (None in found) is not can_exchange
        assert found == sorted(found, key=["popularity", None, "ease"].index)


def said(module: str, *arguments: str) -> list[dict[str, Any]]:
    """The lines of JSON that a module of the tests prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.training.{module}", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]
