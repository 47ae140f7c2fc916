"""A disk that is full or fails during a preparation: one sentence, and nothing left behind."""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.data.manifest import Manifest
from foretaste.data.preparation.duckdb_engine import DuckDBEngine
from foretaste.data.sources.text import TextFile
from foretaste.errors import DatasetError, InputError
from tests.data.conftest import WriteFile
from tests.messages import raises

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


def refused(source: Path, output: Path, *named: object) -> None:
    """Only the source is left afterwards."""
    with raises(DatasetError, output, *named):
        prepare(source, output, PrepareConfig(protocol="none", threads=1))
    assert list(source.parent.iterdir()) == [source]


def test_a_part_that_does_not_fit(write: WriteFile, tmp_path: Path) -> None:
    source, output = write(ROWS), tmp_path / "datasets" / "out"
    with room_for(1_000):
        refused(source, output, os.strerror(errno.EFBIG), "make room")


def test_a_manifest_that_cannot_be_written(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The advice to make room appears only if the disk is full."""

    def fail(manifest: Manifest, directory: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(directory / "manifest.json"))

    monkeypatch.setattr(Manifest, "write", fail)
    refused(write(ROWS), tmp_path / "out", os.strerror(errno.EIO))


def test_a_source_that_cannot_be_read_again_is_named(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of an empty id needs a second read; the output is not to blame."""

    def fail(*given: object) -> None:
        raise OSError("Truncated compressed stream")

    monkeypatch.setattr(TextFile, "line_of", fail)
    source = write("user_id,item_id\n1,\n")
    with raises(InputError, "raw.csv"):
        prepare(source, tmp_path / "out")


def test_a_dataset_is_complete_although_the_old_one_stays(
    write: WriteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, output = PrepareConfig(protocol="none"), tmp_path / "out"
    prepare(write("user_id,item_id\n1,1\n"), output, config)
    rmtree = shutil.rmtree

    def fail(path: Path, *, ignore_errors: bool = False) -> None:
        if ".tmp." not in path.name:
            rmtree(path, ignore_errors=ignore_errors)
        elif not ignore_errors:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(shutil, "rmtree", fail)
    found = prepare(write(ROWS), output, config, overwrite=True)
    assert len(found.items) == len({row.split(",")[1] for row in ROWS.splitlines()[1:]})


def test_no_room_to_spill_is_not_too_little_memory(tmp_path: Path) -> None:
    with DuckDBEngine(tmp_path / "scratch", "64MB", threads=1) as engine:
        engine.run("SET max_temp_directory_size = '1MB'")
        with raises(OSError):
            engine.make("large", "SELECT hash(i) AS h, i FROM range(20000000) r(i) ORDER BY h")
