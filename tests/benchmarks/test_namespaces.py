"""Two ranks without a common network; skipped where the system does not let a test make one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.namespaces import LAUNCH, SET_UP, differences, namespaces, train_both
from foretaste.data import GenerateConfig, generate, prepare
from tests import programs
from tests.docs.pages import page

SHAPE = GenerateConfig(num_users=60, num_items=40, num_interactions=900, num_genres=4)


@pytest.fixture
def _can_make_namespaces() -> None:
    programs.find("ip")
    try:
        with namespaces():
            pass
    except OSError as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")


@pytest.mark.usefixtures("_can_make_namespaces")
def test_two_ranks_learn_what_one_process_learns(tmp_path: Path) -> None:
    dataset = prepare(generate(SHAPE).table, tmp_path / "data")
    options = ["vae", "--hidden", "8", "--latent", "4", "--epochs", "2", "--batch-size", "16"]
    found = differences(*train_both(dataset.path, tmp_path, options))
    assert found["losses"] < 1e-5
    assert found["metrics"] < 0.05
    assert found["weights"] < 1e-3
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert "r0-" not in left


def test_the_page_shows_its_commands() -> None:
    text = page("scaling.md").section("Try it with two networks on one machine")
    assert all(line in text for line in SET_UP.strip().splitlines())
    assert all(line in text for line in LAUNCH)
