"""Sharing cores: through the environment, and only where nobody has chosen."""

from __future__ import annotations

import os

import pytest

from foretaste._util.cores import share_cores


@pytest.fixture(autouse=True)
def _no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)


def test_waiting_threads_spin_briefly() -> None:
    share_cores()
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


@pytest.mark.parametrize("name", ["OMP_WAIT_POLICY", "GOMP_SPINCOUNT"])
def test_what_was_chosen_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "7")
    before = dict(os.environ)
    share_cores()
    assert dict(os.environ) == before
