"""Trainings killed with SIGKILL at 20 random moments end as if nothing had been."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NUM_KILLS = 20
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_trainings_killed_at_random_moments_end_as_whole_ones(tmp_path: Path) -> None:
    """Every neural model in fp32 and bf16, one after the other, until there were enough kills."""
    command = [sys.executable, "-m", "tests.training.kills", "--kills", str(NUM_KILLS)]
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    *lines, summary = map(json.loads, done.stdout.splitlines())
    trainings = [line["same"] for line in lines if "same" in line]
    assert summary["kills"] >= NUM_KILLS
    assert len(trainings) == summary["trainings"] > 0
    assert all(all(same.values()) for same in trainings)
    assert len(summary["hits"]) > 1, "they all hit the same spot"
