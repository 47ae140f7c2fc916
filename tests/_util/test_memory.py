"""The amount of free memory, and the errors if more is needed or the system refuses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from foretaste._util import system
from foretaste._util.memory import require_memory, was_refused
from foretaste._util.system import free_bytes, peak_of_process, reset_peak_of_process
from foretaste.errors import SettingError, UnsupportedError
from tests.messages import raises

FAR_TOO_MUCH = 1 << 60


def test_some_memory_is_free() -> None:
    assert 0 < free_bytes() <= sys.maxsize


def test_the_error_of_too_little_memory_has_both_numbers() -> None:
    require_memory(5, 5, "this", "lower that")
    with raises(UnsupportedError, "this", "3.0 GiB", "310 MiB", "lower that"):
        require_memory(3 << 30, 310 << 20, "this", "lower that")


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is one of Linux")
def test_a_limit_of_the_process_counts() -> None:
    code = (
        "import resource; from foretaste._util.system import free_bytes;"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); print(free_bytes())"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert 0 < int(done.stdout) < 1 << 30


@pytest.mark.parametrize(
    ("limit", "stat"),
    [
        ("memory.max", "anon 200\nfile 700\n"),
        ("memory/memory.limit_in_bytes", "cache 700\ntotal_rss 200\n"),
    ],
)
def test_a_limit_of_a_container_counts(
    limit: str, stat: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / limit
    path.parent.mkdir(exist_ok=True)
    path.write_text("1000\n")
    (path.parent / "memory.stat").write_text(stat)
    monkeypatch.setattr(system, "CGROUPS", tmp_path)
    assert free_bytes() == 800
    path.write_text("max\n" if limit == "memory.max" else f"{2**63 - 4096}\n")
    assert free_bytes() > 800


def test_memory_that_the_system_refuses_is_known_by_its_errors() -> None:
    for ask in (
        lambda: np.empty(FAR_TOO_MUCH, dtype=np.int8),
        lambda: torch.empty(FAR_TOO_MUCH, dtype=torch.int8),
        lambda: bytearray(FAR_TOO_MUCH),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011  (each has a kind of its own)
            ask()
        assert was_refused(caught.value)
    assert was_refused(OSError(12, "Cannot allocate memory"))
    assert not was_refused(RuntimeError("shapes do not match"))
    assert not was_refused(SettingError("k is 0"))


def test_the_peak_of_the_process_can_be_reset() -> None:
    large = bytearray(96 << 20)
    del large
    before = peak_of_process()
    if not reset_peak_of_process():
        pytest.skip("only Linux lets a process reset its peak")
    after = peak_of_process()
    assert before is not None
    assert after is not None
    assert after <= before - (64 << 20)
