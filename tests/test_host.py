"""Settings of the whole process, which nothing else makes."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from foretaste.host import keep_freed_memory
from tests import forks

CHOICES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


@pytest.mark.parametrize(
    ("before", "chosen", "expected"),
    [
        ("", {}, "1000"),
        ("import sys\nsys.modules['torch'] = sys", {}, None),
        ("", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("", {"OMP_WAIT_POLICY": "PASSIVE"}, None),
    ],
)
def test_waiting_threads_spin_briefly_unless_the_user_chose(
    before: str, chosen: dict[str, str], expected: str | None
) -> None:
    inherited = {name: value for name, value in os.environ.items() if name not in CHOICES}
    code = f"import os\n{before}\nimport foretaste\nprint(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run(
        [sys.executable, "-c", code], env=inherited | chosen, capture_output=True, text=True
    )
    assert done.stdout.strip() == str(expected), done.stderr


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_memory_is_kept_unless_the_user_has_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    assert keep_freed_memory()
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_freed_memory()


def test_onnxruntime_leaves_nothing_in_the_home(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    status, _, err = forks.run(tmp_path, import_onnxruntime, timeout_s=60)
    assert status == 0, err
    assert list(tmp_path.rglob("*")) == []


def import_onnxruntime() -> None:
    from foretaste.export.formats import check_format

    os.environ.pop("XDG_CACHE_HOME", None)
    os.environ["HOME"] = str(Path.cwd())
    sys.modules["onnxscript"] = sys  # takes most of the time, and knows no onnxruntime
    check_format("onnx")
