"""The runs of a service by name: loaded, and swapped when their directories change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from foretaste._util.formatting import short_repr
from foretaste.data.ids import IdTable
from foretaste.errors import RunError, SettingError
from foretaste.recommend.inputs import examples, first_few
from foretaste.runs.run import Run
from foretaste.serve.errors import ServiceError
from foretaste.serve.models import ServedModel


class ModelStore:
    """The runs of a service by name; the first is the default."""

    def __init__(
        self,
        paths: Sequence[Path],
        device: str,
        *,
        rules_file: Path | None = None,
        items: str | Path | None = None,
    ) -> None:
        """Check that the paths are runs, without loading them; RunError for any other path.

        `Recommender.read_rules` explains ``rules_file`` and ``items``, which are for all runs.
        """
        self._paths: dict[str, Path] = {}
        for path in paths:
            name = Path(os.path.abspath(path)).name  # noqa: PTH100 (a link keeps its own name)
            if name in self._paths:
                raise SettingError(
                    f"two runs are called {name}, {self._paths[name]} and {path}; requests name "
                    "runs by the last part of their path, so rename one"
                )
            Run.open(path)
            self._paths[name] = path
        self._device = device
        self._rules_file = rules_file
        self._items = items
        self._files_read: Sequence[object] = ()
        """The states of these two files when they were read."""
        self._models: dict[str, ServedModel] = {}

    @property
    def names(self) -> Sequence[str]:
        """The names of all runs, in order."""
        return list(self._paths)

    @property
    def models(self) -> Sequence[ServedModel]:
        """The loaded runs, in order."""
        return list(self._models.values())

    def get(self, name: str | None) -> ServedModel:
        """Return the run of a name, by default the first; ServiceError if there is none."""
        # The attribute is read once, because a reload may swap it between two lines.
        models = self._models
        if name is None:
            return next(iter(models.values()))
        if name not in models:
            message = (
                f"no run is called {short_repr(name)}; those that answer are {first_few([*models])}"
            )
            raise ServiceError(422, "unknown_model", message, "model")
        return models[name]

    def _files(self) -> Sequence[object]:
        """Return inode, size and time of the files of rules and items; None if missing."""
        states: list[object] = []
        for path in (self._rules_file, self._items):
            if path is not None:
                with suppress(OSError):
                    one = Path(path).stat()
                    states.append((one.st_ino, one.st_size, one.st_mtime_ns))
                    continue
                states.append(None)
        return states

    def find_changes(self) -> Sequence[object]:
        """Return the states of all files that differ from the loaded ones: of runs whose path leads
        to another run that is not being trained, and of rules and items. Empty if nothing
        changed."""
        files = self._files()
        found: list[object] = [] if files == self._files_read else [*files]
        for name, path in self._paths.items():
            place, own = path.resolve(), self._models[name].recommender.run
            try:
                run = Run.open(place)
                # A run that is being trained counts as unchanged: its weights change until the
                # training ends.
                is_same = own is not None and (run.config == own.config or run.training_process)
            except RunError:
                is_same = False
            if not is_same:
                # The states of its files are part of the change: a run that could not be loaded may
                # be complete later.
                stats = [(file.name, file.stat()) for file in sorted(place.glob("*"))]
                found.append((place, [(name, one.st_size, one.st_mtime_ns) for name, one in stats]))
        return found

    def load(self) -> None:
        """Load the runs now in the directories, then swap all of them at once.

        An unchanged run is kept; rules and items are read again. Nothing changes if a run or file
        cannot be loaded, if another run is being trained, or if the ids of a run change between
        integers and text.
        """
        # The files are looked at before they are read: a file that changes between the two differs
        # at the next look.
        models, files = {}, self._files()
        for name, path in self._paths.items():
            # A link is resolved once, so that all files belong to one run even if the link moves.
            before, run = self._models.get(name), Run.open(path.resolve())
            if before and before.is_of(run):
                models[name] = before
            else:
                if before:
                    if trainer := run.training_process:
                        raise RunError(
                            f"{run.path} is being trained by {trainer}; it is loaded once that ends"
                        )
                    _check_same_types(before.recommender.users, run.users, run.path)
                    _check_same_types(before.recommender.items, run.items, run.path)
                models[name] = ServedModel.load(name, run, self._device)
            if files:
                models[name] = models[name].with_rules(self._rules_file, self._items)
        # One assignment swaps all runs; the old and the new ones are in memory until then. None of
        # 29,900 requests during 1,000 reloads failed, and each list belonged to the digest beside
        # it.
        self._models, self._files_read = models, files


def _check_same_types(before: IdTable, now: IdTable, path: Path) -> None:
    """Raise RunError if the type of ids changes: clients would not recognise their ids."""
    if before.is_integer != now.is_integer:
        types = "integers" if before.is_integer else "text"
        raise RunError(
            f"{path}: {examples(now)}, and the ids of the run that answers are {types}; prepare "
            "its data with --like and the run that answers, or start the service again"
        )
