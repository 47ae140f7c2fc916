"""Small files of interactions to prepare, and the real data sets if they are present."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import ForetasteError, InputError
from tests.messages import raises

WriteFile = Callable[..., Path]
PrepareText = Callable[..., Dataset]


def refuse(
    source: Any, *named: object, error: type[ForetasteError] = InputError, **settings: Any
) -> None:
    """A preparation fails with a message that names `named`, of readable length, and leaves nothing
    behind."""
    with TemporaryDirectory() as folder:
        with raises(error, *named) as caught:
            prepare(source, Path(folder) / "datasets" / "out", **settings)
        assert list(Path(folder).iterdir()) == []
    assert len(str(caught.value)) < 10_000


@pytest.fixture
def write(tmp_path: Path) -> WriteFile:
    """Writes text or bytes to a file of the test's own directory."""

    def write(content: str | bytes, name: str = "raw.csv") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def prepared(write: WriteFile, tmp_path: Path) -> PrepareText:
    """Prepares the text of a CSV file with the given settings."""

    def prepared(content: str, name: str = "out", **settings: object) -> Dataset:
        source = write(content, f"{name}.csv")
        return prepare(source, tmp_path / name, PrepareConfig(**settings))  # type: ignore[arg-type]

    return prepared


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The directory of real data sets; the test is skipped without it."""
    beside = Path(__file__).parents[2].parent / "shared" / "data"
    path = Path(os.environ.get("FORETASTE_DATA", beside))
    if not (path / "ml-1m" / "ratings.parquet").is_file():
        pytest.skip(f"no real data at {path}; set FORETASTE_DATA")
    return path
