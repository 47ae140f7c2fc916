"""The inputs of a preparation: found, opened and checksummed before it begins."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from foretaste._util.documents import Document
from foretaste._util.formatting import short_repr
from foretaste.data.config import FileFormat, PrepareConfig, Progress
from foretaste.data.like import Like
from foretaste.data.manifest import FORMAT_VERSION, UNSEEN, Manifest
from foretaste.data.movielens import find_files, named_set
from foretaste.data.preparation.candidates import open_candidates
from foretaste.data.preparation.features import FeaturesError
from foretaste.data.preparation.plan import Plan, make_plan
from foretaste.data.request import PrepareRequest
from foretaste.data.sources import (
    TABLE,
    Opener,
    check_format_acts,
    each_once,
    open_items,
    open_sources,
)
from foretaste.data.sources.source import Source
from foretaste.errors import DatasetError, SettingError

RUN_FILES = {
    "histories": ("user_index", "item_index", "in_training"),
    "users": ("user_index", "user_id"),
    "items": ("item_index", "item_id"),
}
"""The files with the pairs of a run, and the columns read from each file."""

_LONGEST_NAME = 200
_NCF_TRAIN, _NCF_TEST, _NCF_NEGATIVE = ".train.rating", ".test.rating", ".test.negative"


@dataclass(frozen=True, kw_only=True)
class GivenSplit:
    """The parts of a given split, which the preparation keeps.

    Each part is any source of `prepare`. Columns are found by name. Times order the interactions of
    a user, but decide no part. The catalogue is the items of ``train``. A pair in several parts
    belongs to the first part, in the order below. A model answers users outside of training from
    their fold-in items, or without a history if they have no fold-in items. Protocol ``none``
    trains on all parts.
    """

    train: object
    """Interactions that train the model."""

    validation_fold_in: object = None
    """Known interactions of validation users who are in no other part."""

    validation: object = None
    """Interactions that choose the best epoch."""

    test_fold_in: object = None
    """Known interactions of test users who are in no other part."""

    test: object = None
    """Interactions that measure the model."""

    test_candidates: object = None
    """Items against which each user's test items are ranked under candidates ``fixed``: a file or
    frame of (user, item) rows, or a ``.negative`` file of the NCF paper."""

    def __post_init__(self) -> None:
        if self.train is None:
            raise SettingError(f"a given split needs its training part: {_flag('train')}")
        if self.validation is None and self.test is None:
            raise SettingError(
                "a given split needs a held-out part beside the training part: "
                f"{_flag('test')} or {_flag('validation')}; to train on everything, prepare it as "
                "one source with protocol none"
            )
        for part, needed in (
            ("validation_fold_in", "validation"),
            ("test_fold_in", "test"),
            ("test_candidates", "test"),
        ):
            if getattr(self, part) is not None and getattr(self, needed) is None:
                raise SettingError(
                    f"{_flag(part)} is given without the items to be found, {_flag(needed)}"
                )

    def parts(self) -> dict[str, object]:
        """Return the sources by the names of their parts in the dataset; training first."""
        found = {"train": self.train}
        for split in ("validation", "test"):
            fold_in, target = getattr(self, f"{split}_fold_in"), getattr(self, split)
            if fold_in is not None:
                found |= {f"{split}_fold_in": fold_in, f"{split}_target": target}
            elif target is not None:
                found[split] = target
        return found


def _flag(part: str) -> str:
    return f"--{part.replace('_', '-')} (GivenSplit({part}=...) in Python)"


def as_given_split(source: object) -> GivenSplit | None:
    """Return the given split that ``source`` is or names; None if the protocol splits it.

    ``X.train.rating`` names the NCF paper's split, with ``X.test.rating`` and, if it exists,
    ``X.test.negative``.
    """
    if isinstance(source, GivenSplit):
        return source
    if isinstance(source, Sequence) and not isinstance(source, str) and len(source) == 1:
        source = source[0]
    if not isinstance(source, str | Path) or not str(source).endswith(_NCF_TRAIN):
        return None
    stem = str(source).removesuffix(_NCF_TRAIN)
    negative = Path(stem + _NCF_NEGATIVE)
    return GivenSplit(
        train=source,
        test=stem + _NCF_TEST,
        test_candidates=negative if negative.exists() else None,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Inputs:
    """The sources of one preparation."""

    interactions: list[Source]
    """Each source's ``part_number`` is its part's position in ``parts``."""

    parts: tuple[str, ...]
    """The parts of a given split, training first; empty if the protocol splits the source, and
    under protocol none, which trains on all parts."""

    candidates: list[Source]
    """The candidates given with the test part, if any."""

    run_files: dict[str, Source]
    """Under protocol unseen, the ``histories``, ``users`` and ``items`` of the compared run;
    otherwise empty."""

    like_notes: dict[str, str]
    """Notes on the settings repeated from another preparation, by subject."""

    items: Source | None
    """The description of the items, if any."""

    provenance: list[Document]
    """For each source: its part, name, size and checksum, and the format of text."""

    name: str
    """The name of the dataset, without the digest."""

    config: PrepareConfig
    """The settings of the preparation, completed for a named set."""

    plan: Plan
    """The columns of the interactions, and the settings without ``auto``."""

    @classmethod
    def open(
        cls, request: PrepareRequest, progress: Progress, opener: Opener | None = None
    ) -> Inputs:
        """Open and checksum the request's source, which may be a named set, and its items.

        The engine's ``opener`` opens names that only the engine knows. Raises InputError if an
        input cannot be read, SettingError for a setting of an absent input.
        """
        source, items, config, like_notes = request.source, request.items, request.config, {}
        if request.like is not None:
            like = Like.of(request.like)
            like_notes = like.notes(config)
            config = like.config(config, has_items=items is not None)
        items_format = config.items_format
        named = named_set(source, request.source_dir)
        if named is not None:
            config = named.settings(config)
            source, own_items = find_files(named, request.source_dir, progress)
            if items is None:
                items, items_format = own_items, named.items_format
        split, format = as_given_split(source), config.file_format
        interactions, parts = _open_parts(source, split, config, opener)
        described = None if items is None else open_items(items, items_format, opener)
        candidates: list[Source] = []
        if split is not None and parts and split.test_candidates is not None:
            candidates = open_candidates(split.test_candidates, config, described, opener)
        check_format_acts(format, interactions + candidates, described)
        _check_settings_act(config, items)
        run_files = _files_of_run(request.like) if config.protocol == UNSEEN else {}
        plan = make_plan(config, interactions, parts, described)
        interactions = [found.reading(plan.columns.values()) for found in interactions]
        progress("checksum")
        holds = [
            *((parts[found.part_number] if parts else "interactions") for found in interactions),
            *("test_candidates" for _ in candidates),
            *(["items"] if described else []),
            *(f"{name} of the run" for name in run_files),
        ]
        opened = [*interactions, *candidates, *([described] if described else [])]
        opened += run_files.values()
        return cls(
            interactions=interactions,
            parts=parts,
            candidates=candidates,
            run_files=run_files,
            like_notes=like_notes,
            items=described,
            provenance=[
                {"holds": part} | found.provenance()
                for part, found in zip(holds, opened, strict=True)
            ],
            name=_name_of(interactions[0]) if named is None else named.name,
            config=config,
            plan=plan,
        )

    def default_output(self, root: Path) -> Path:
        """Return ``root/<name>-<digest>``: equal for equal content and settings in any folder."""
        digest = hashlib.sha256(_key(self.provenance, self.config.content()).encode()).hexdigest()
        # File systems allow names of 255 bytes, and the temporary name has a prefix.
        # The cut may split a character; its rest is dropped.
        name = self.name.encode()[:_LONGEST_NAME].decode(errors="ignore")
        return root / f"{name}-{digest[:12]}"

    def is_prepared_in(self, directory: Path) -> bool:
        """Return True for a dataset of the same content and settings."""
        with suppress(DatasetError):
            manifest = Manifest.read(directory)
            key = _key(manifest.source, manifest.config)
            return key == _key(self.provenance, self.config.content())
        return False

    def check_unchanged(self) -> None:
        """Raise InputError if a file was written to since it was opened."""
        described = [] if self.items is None else [self.items]
        of_run = self.run_files.values()
        for source in (*self.interactions, *self.candidates, *described, *of_run):
            source.check_unchanged()


def _open_parts(
    source: object, split: GivenSplit | None, config: PrepareConfig, opener: Opener | None
) -> tuple[list[Source], tuple[str, ...]]:
    """Return the sources of all interactions, and the names of their parts; no names if the
    protocol splits the source, or if protocol none trains on all parts."""
    named = {"interactions": source} if split is None else split.parts()
    opened = [
        replace(found, part_number=number)
        for number, part in enumerate(named.values())
        for found in open_sources(part, config.file_format, opener=opener)
    ]
    if split is not None and config.protocol != "none":
        return opened, tuple(named)
    return each_once([replace(found, part_number=0) for found in opened]), ()


def _files_of_run(run: Path | None) -> dict[str, Source]:
    """Return the files of a run with its training pairs, by their names.

    Raises SettingError without a run.
    """
    if run is None:
        raise SettingError(
            "protocol unseen holds out what a run has not seen, and there is no run; name it: "
            "foretaste prepare --protocol unseen --like RUN (like=... in Python)"
        )
    files = {name: run / f"{name}.parquet" for name in RUN_FILES}
    if not files["histories"].is_file():
        raise SettingError(f"protocol unseen needs a run, and like is {run}, a dataset")
    return {name: open_sources(file, FileFormat())[0] for name, file in files.items()}


def _name_of(source: Source) -> str:
    """Return the dataset's name: a file name without suffixes, or a table name with its schema."""
    if source.name.startswith(TABLE):
        return Path(source.name.removeprefix(TABLE)).name
    return Path(source.name).name.split(".")[0]


def _key(source: Sequence[Document], settings: Document) -> str:
    """Return the content and settings that decide a dataset, as text."""
    key = {
        "format_version": FORMAT_VERSION,
        "source": sorted(
            # File names are left out: a renamed file makes the same dataset.
            [entry.get(name, "") for name in ("holds", "sha256", "read_as")]
            for entry in source
        ),
        "config": dict(settings),
    }
    return json.dumps(key, sort_keys=True)


def _check_settings_act(config: PrepareConfig, items: object) -> None:
    """Raise SettingError for a setting of an absent input."""
    for name in ("title_column", "features") if items is None else ():
        if (value := getattr(config, name)) is not None:
            named = short_repr(value) if isinstance(value, str) else " ".join(value)
            kind = FeaturesError if name == "features" else SettingError
            raise kind(
                f"{name} is {named}, and no file describes the items; give it with --items "
                "(items=... in Python)"
            )
