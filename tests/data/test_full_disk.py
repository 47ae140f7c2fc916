"""A disk that is full while a dataset is made: one sentence, and nothing is left behind."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.data.engine import Engine
from foretaste.data.manifest import Manifest
from foretaste.errors import DatasetError
from tests.data.conftest import WriteFile

ROWS = "user_id,item_id\n" + "".join(f"{n % 50},{n // 7}\n" for n in range(2_000))


@contextmanager
def room_for(num_bytes: int) -> Iterator[None]:
    """No file gets longer while the block runs."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def refused(source: Path, output: Path) -> str:
    """What is said; only the source is there afterwards."""
    with pytest.raises(DatasetError) as caught:
        prepare(source, output, PrepareConfig(protocol="none", threads=1))
    assert list(source.parent.iterdir()) == [source]
    return str(caught.value)


def test_a_part_that_does_not_fit(write: WriteFile, tmp_path: Path) -> None:
    source, output = write(ROWS), tmp_path / "datasets" / "out"
    with room_for(1_000):
        said = refused(source, output)
    assert said == f"{output}: cannot be written: File too large; make room, or write elsewhere"


def test_a_manifest_that_does_not_fit(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(manifest: Manifest, directory: Path) -> None:
        raise OSError(28, "No space left on device", str(directory / "manifest.json"))

    monkeypatch.setattr(Manifest, "write", fail)
    said = refused(write(ROWS), tmp_path / "out")
    assert said.endswith("out: cannot be written: No space left on device; make room, or write "
                         "elsewhere")  # fmt: skip


def test_no_room_to_spill_is_not_too_little_memory(tmp_path: Path) -> None:
    with Engine(tmp_path / "scratch", "64MB", threads=1) as engine:
        engine.run("SET max_temp_directory_size = '1MB'")
        with pytest.raises(OSError, match="No space left on device"):
            engine.make("large", "SELECT hash(i) AS h, i FROM range(20000000) r(i) ORDER BY h")
