"""Verification of a dataset directory by the digests that its manifest holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from foretaste._util.settings import checked
from foretaste.data.manifest import FILE_NAME, Manifest
from foretaste.data.part_files import PartFiles
from foretaste.errors import DatasetError, ForetasteError, RunError


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check, and its outcome."""

    subject: str
    """A file of the directory, or a topic of several files."""

    is_ok: bool

    found: str
    """The result of a passed check; the problem, with the path of the file, of a failed one."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """All checks of one directory."""

    path: Path

    holds: str
    """The kind of directory: ``dataset`` or ``run``."""

    checks: tuple[Check, ...]

    @property
    def is_ok(self) -> bool:
        """True if no check failed."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """The problems, each with the path of the file."""
        return [check.found for check in self.checks if not check.is_ok]

    def raise_if_wrong(self) -> None:
        """Raise the first problem, a DatasetError or RunError, if there is one."""
        if not self.problems:
            return
        first, *others = self.problems
        more = f" (and {len(others)} more)" if others else ""
        raise (DatasetError if self.holds == "dataset" else RunError)(first + more)


class Checks:
    """Checks of a directory, made one after the other, with their outcomes."""

    def __init__(self, path: Path) -> None:
        self.outcomes: list[Check] = []
        self._path = path

    def make(self, subject: str, check: Callable[[], str]) -> bool:
        """True if ``check`` returns its result; False if it raises the problem."""
        try:
            is_ok, found = True, check()
        except ForetasteError as error:
            is_ok, found = False, str(error)
        except Exception as error:
            # A file that somebody else wrote may raise anything; the other checks still run.
            is_ok, found = False, f"{self._path / subject}: is damaged: {error!r}"
        self.outcomes.append(Check(subject=subject, is_ok=is_ok, found=found))
        return is_ok


def verify_dataset(path: Path | str) -> Verification:
    """Check the digest of a prepared dataset's manifest, and the sha256 of every file it lists.

    Problems are in the result and are not raised.
    """
    path = checked("path", path, Path)
    checks = Checks(path)
    opened: list[PartFiles] = []

    def check_manifest() -> str:
        manifest = Manifest.read(path)
        opened.append(PartFiles(path, manifest))
        version, digest = manifest.format_version, manifest.digest[:12]
        return f"format {version}, {manifest.protocol}, digest {digest}"

    def check_part(files: PartFiles, name: str) -> str:
        files.check(name)
        return f"{files.manifest.parts[name].num_rows:,} rows: bytes"

    checks.make(FILE_NAME, check_manifest)
    for files in opened:
        for name in files.manifest.parts:
            checks.make(name, partial(check_part, files, name))
    return Verification(path=path, holds="dataset", checks=tuple(checks.outcomes))
