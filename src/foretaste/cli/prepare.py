"""``foretaste prepare``: makes a dataset of files of interactions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import Parameter

from foretaste._util.terminal import print_data
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, say_next, stdout_console, steps
from foretaste.data.config import PrepareConfig, Validation
from foretaste.data.request import PrepareRequest
from foretaste.errors import SettingError

_NO_FILES = (None, *get_args(Validation))


@dataclass(frozen=True, kw_only=True)
class SplitFiles:
    """Files of a given split, in place of SOURCES; they are not split again."""

    # Text and not Path, which would turn the sqlite:///shop.db of a database into sqlite:/shop.db.

    train: str | None = None
    """Training part of a given split, in place of SOURCES. Each part is a file, a folder, a
    pattern in quotes, or a database."""

    validation: Validation | str = PrepareConfig.validation
    """With --train, the file of the validation part. Without it, hold-out keeps a validation part,
    which chooses the best epoch; none gives that part to training, and the test part chooses the
    epoch, as in the reference."""

    test: str | None = None
    """With --train, the file of the test part."""

    validation_fold_in: str | None = None
    """With --train, known interactions of validation users who are in no other part."""

    test_fold_in: str | None = None
    """With --train, known interactions of test users who are in no other part."""

    test_candidates: str | None = None
    """With --train, the candidates of each test user under --candidates fixed: a file of users and
    items, or a .negative file of the NCF paper. X.train.rating as SOURCES finds X.test.rating and
    X.test.negative by itself."""

    def source(self, sources: tuple[str, ...]) -> Any:
        """Return the input: ``sources``, or the given split of these files."""
        from foretaste.data import GivenSplit

        given = {name: value for name, value in vars(self).items() if value not in _NO_FILES}
        if not given:
            return sources
        if sources:
            name, value = next(iter(given.items()))
            raise SettingError(
                f"{sources[0]} and --{name.replace('_', '-')} {value} are both given: for a given "
                "split name all parts by options, beginning with --train; for one source "
                "--validation is hold-out or none"
            )
        return GivenSplit(**{"train": None} | given)

    def settings(self, config: PrepareConfig | None) -> PrepareConfig:
        """``config`` with the given validation."""
        given = {} if config is None else vars(config)
        if self.validation in _NO_FILES:
            given = given | {"validation": self.validation}
        return PrepareConfig(**given)


@dataclass(frozen=True, kw_only=True)
class Settings(PrepareConfig):
    """The settings of a preparation without validation, which may be a file on the command line."""

    # Not parsed here: a name in two flattened dataclasses silently goes to the first of them.
    validation: Annotated[Validation, Parameter(parse=False)] = PrepareConfig.validation


def prepare(
    sources: Annotated[tuple[str, ...], Parameter(show_default=False)] = (),
    /,
    *,
    output: Path | None = None,
    items: str | None = None,
    source_dir: Path | None = None,
    like: Path | None = None,
    overwrite: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
    config: Annotated[Settings | None, Parameter(name="*", group="Preparation")] = None,
    split: Annotated[SplitFiles | None, Parameter(name="*", group="Files split already")] = None,
) -> None:
    """Turn files of interactions into a dataset.

    Args:
        sources: CSV, TSV, JSON lines or Parquet files, folders of them, or patterns in quotes
            ('folder/*.parquet'), or databases (sqlite:///FILE, postgresql://USER@HOST/DATABASE).
            Columns of users, items, ratings and times are found by common names. Or MovieLens by
            name, which is downloaded once: ml-100k, ml-1m, ml-20m, ml-25m or ml-32m.
        output: Directory of the dataset; by default datasets/NAME-DIGEST. An existing dataset of
            the same sources and settings is kept.
        items: File or database that describes items: their ids, and columns such as a title.
        source_dir: Folder with a named set's files or archive; nothing is then downloaded.
        like: Run or dataset whose settings of preparation are repeated: columns, filters, weights,
            events, half-life, features, and the types of ids; other ids are refused. Settings that
            are given win.
        overwrite: Replace an existing dataset.
        quiet: Print the directory of the dataset and nothing else.
    """
    from foretaste.data.preparation import prepare_dataset

    split = split or SplitFiles()
    request = PrepareRequest(
        source=split.source(sources),
        config=split.settings(config),
        items=items,
        source_dir=source_dir,
        like=like,
        output=output,
        overwrite=overwrite,
    )
    console = stdout_console()
    with steps("Preparing", quiet=quiet) as progress:
        dataset = prepare_dataset(request, progress)
    if quiet:
        print_data(str(dataset.path))
        return
    say(console, str(dataset))
    manifest = dataset.manifest
    models = ["popularity", "ease", "ials", "vae"]  # what docs/models.md begins with
    if manifest.has_order:
        # With ties too: on ml-100k slist is ahead of ease until a hash orders 97 % of the places.
        models.insert(0, "slist")
    is_fixed = dataset.has_candidates("test") and not dataset.has_split("validation")
    options = ("--candidates", "fixed") if is_fixed else ()
    say_next(
        console,
        *(("foretaste", "train", model, dataset.path, *options) for model in models),
        heading="Next (popularity is what the others must beat):",
    )
    if manifest.has_order:
        say(
            console,
            "slist learns what comes next from the order; ease finds more of the same in any "
            "order.",
        )
    if manifest.num_listed_items > manifest.num_items:
        say(
            console,
            "ease, slist, ials and sasrec list new items, by their features; the other models do "
            "not.",
        )
