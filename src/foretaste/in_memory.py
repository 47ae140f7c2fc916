"""The function `fit`: from raw interactions to a recommender in one call."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from foretaste._util.formatting import labelled_lines
from foretaste._util.settings import validate
from foretaste.data.dataset import Dataset
from foretaste.data.manifest import Manifest
from foretaste.data.preparation import open_or_prepare, prepare
from foretaste.data.request import PrepareRequest
from foretaste.errors import (
    DataWarning,
    ForetasteError,
    Interrupted,
    SettingError,
    UnsupportedError,
)
from foretaste.ops.device import computing_with
from foretaste.recommend.recommender import Recommender
from foretaste.runs.files import CONFIG, METRICS
from foretaste.runs.places import new_run_directory
from foretaste.runs.run import Run, load_model
from foretaste.training.api import train_run
from foretaste.training.auto import check_order
from foretaste.training.callbacks import Callback
from foretaste.training.config import TrainingConfig
from foretaste.training.request import TrainRequest, rerun_request
from foretaste.training.strategy import strategy_here

if TYPE_CHECKING:
    import torch
    from _typeshed import DataclassInstance

    from foretaste.data.histories import Histories
    from foretaste.keywords import ModelName, TrainKeywords

_OF_VALIDATION = (
    *("eval_every", "eval_after", "patience", "target", "select_by"),
    *("validation_users", "evaluation_batch", "candidates"),
)


class FittedRecommender(Recommender):
    """Recommender of a model that was fitted in memory; `save` writes it as a run."""

    def __init__(self, run: Run, device: torch.device, prepared: Manifest) -> None:
        """Copy a finished run into memory; its directory may then be removed.

        ``prepared`` is the manifest of the data.
        """
        model, histories = load_model(run, device), run.histories
        super().__init__(model, run.users, run.items, histories, seen=run.seen)
        self._config, self._prepared = run.config, prepared
        self._is_of_matrix = run.config.is_of_matrix
        self._epoch = run.loaded_epoch
        self._files = {
            name: (run.path / name).read_bytes() for name in (CONFIG, *run.written_once, METRICS)
        }

    def __repr__(self) -> str:
        return f"FittedRecommender({self._config.model})"

    def __str__(self) -> str:
        """Return what `foretaste prepare` prints: columns, notes, sizes and dropped rows."""
        return labelled_lines(repr(self), self._prepared.summary())

    def save(self, path: Path | str, *, overwrite: bool = False) -> Run:
        """Write the run to a directory, in the form of `foretaste.train`, and return it.

        ``overwrite`` replaces an existing run. Raises RunError if ``path`` exists or cannot be
        written.
        """
        overwrite = validate("overwrite", overwrite, bool)
        path = validate("path", path, Path)
        with new_run_directory(path, overwrite=overwrite) as directory:
            for name, content in self._files.items():
                (directory / name).write_bytes(content)
            Run(directory, self._config).save_weights(self.model.state_dict(), self._epoch)
        return Run(path, self._config)


def fit(
    model: ModelName,
    interactions: Any,
    *,
    items: Any = None,
    model_config: DataclassInstance | None = None,
    config: TrainingConfig | None = None,
    callback: Callback | None = None,
    threads: int | None = None,
    **settings: Unpack[TrainKeywords],
) -> FittedRecommender:
    """Fit ``model`` to all ``interactions`` and return a recommender; no file stays behind.

    A model with epochs is trained twice, unless ``epochs`` is given. The first training holds out
    each user's last item (one by hash without times) and finds the best epoch by these items. The
    second training learns from all interactions, for as many epochs, with the same settings and
    seed. Nothing is held out then, so there are no metrics; `foretaste.train` has them.

    Dataset and run are in a temporary directory (``TMPDIR``), which is always removed at the end.
    The recommender is in memory. Under torchrun the ranks train together, and each gets the
    recommender.

    Args:
        model: one of `foretaste.models.registry.MODEL_NAMES`.
        interactions: any source of `foretaste.prepare`, prepared with protocol none; or a prepared
            dataset or its directory, whose held-out parts train too.
        items: the titles and other columns of items, as in `foretaste.prepare`.
        model_config: settings of the model.
        config: settings of the training.
        callback: as in `foretaste.train`; gets the events of both trainings.
        threads: as in `foretaste.train`.
        settings: fields of these configs and of `PrepareConfig`, by name.

    Raises the errors of `foretaste.prepare` and `foretaste.train`. Notes on the data are warnings;
    ``print`` of the recommender shows them too, with all sizes.
    """
    request = TrainRequest.of(
        model,
        interactions,
        verb="fit",
        items=items,
        model_config=model_config,
        config=config,
        threads=threads,
        **settings,
    )
    kind = type(request.model_config)
    finds_epochs = kind.has_epochs and request.config.epochs == "auto"
    if not finds_epochs:
        for name in settings.keys() & set(_OF_VALIDATION):
            given = "epochs is given" if kind.has_epochs else f"{model} has no epochs to find"
            raise SettingError(f"{name} does nothing here: {given}, so nothing is held out")
    with (
        computing_with(threads),
        strategy_here() as here,
        TemporaryDirectory(prefix="foretaste-") as directory,
        _without_resume_hint(),
    ):
        root = Path(directory)
        dataset = _open_all_data(request, root)
        check_order(request.model, request.model_config, dataset)
        if finds_epochs:
            heldout = _hold_out_one_item_each(dataset, root / "holdout")
            found = train_run(_in_directory(request, heldout, root / "search"), callback)
            here.barrier()  # the first rank alone writes the run; the others wait until it has
            request = rerun_request(found)
        run = train_run(_in_directory(request, dataset, root / "run"), callback)
        here.barrier()
        device = here.device(request.config.device)
        fitted = FittedRecommender(run, device, dataset.manifest)
        here.barrier()  # the first rank removes the directory; all have read the run before
        return fitted


def _in_directory(request: TrainRequest, dataset: Dataset, run: Path) -> TrainRequest:
    """Return the request on another dataset, for a run in a new directory."""
    return replace(request, data=PrepareRequest(source=dataset), run=run)


def _open_all_data(request: TrainRequest, root: Path) -> Dataset:
    """Return a dataset that holds out nothing: the given one, all its parts, or raw data."""
    data, used = request.data, request.model_config
    if used.uses_order and hasattr(data.source, "tocoo"):
        raise UnsupportedError(
            f"{request.model} learns from the order of interactions, and a SciPy matrix has none; "
            "give a frame with a column of times"
        )
    if not data.is_prepared:
        if data.config.protocol not in ("auto", "none"):
            raise SettingError(
                f"protocol is {data.config.protocol}, but fit learns from all interactions; leave "
                "it out, or call prepare and train for a model with metrics"
            )
        config = replace(data.config, protocol="none")
        dataset = open_or_prepare(replace(data, config=config, root=root / "datasets"))
        dataset.name = "interactions"
        return dataset
    dataset = open_or_prepare(data)
    if not dataset.has_split("validation") and not dataset.has_split("test"):
        return dataset
    if used.takes_weights and dataset.manifest.mean_weight is not None:
        leave_out = ", or leave weights out (ignore_weights=True)"
        raise SettingError(
            f"{dataset.path}: held-out interactions have no weights to learn from; give the raw "
            "data, or prepare them with protocol none"
            f"{leave_out if hasattr(used, 'ignore_weights') else ''}"
        )
    described = dataset.items.table.rename_columns({"id": "item_id"})
    place = root / "datasets" / dataset.path.name
    if (features := dataset.features) is None:
        return _prepare_all(dataset, place, items=described, protocol="none")
    values = features.as_lists(len(described))
    others = [name for name in described.column_names if name not in values]
    described = described.select(others)
    for name, lists in values.items():
        described = described.append_column(name, lists)
    return _prepare_all(dataset, place, items=described, features=[*values], protocol="none")


def _hold_out_one_item_each(dataset: Dataset, path: Path) -> Dataset:
    if dataset.train.lengths().max(initial=0) < 2:
        raise SettingError(
            "epochs is auto, but every user has one item only, so none can be held out to find "
            "the best epoch; give epochs"
        )
    return _prepare_all(dataset, path, protocol="leave-one-out", validation="none")


def _prepare_all(dataset: Dataset, path: Path, **settings: Any) -> Dataset:
    """Return a dataset of all interactions of another, which issued the warnings already."""
    pairs = dataset.all_interactions()
    columns = _ids_of(dataset, pairs)
    if pairs.position is not None:
        columns["time_rank"] = pa.array(pairs.position)
    weight = dataset.train_weights(range(dataset.manifest.num_train_users))
    # Held-out interactions have no weights, so there are weights only if all are in training.
    if weight is not None and len(weight) == len(pairs.item_index):
        columns["weight"] = pa.array(weight)
        settings["weight_column"] = "weight"
    table = pa.table(columns)
    if (seen := dataset.seen) is not None:
        disliked = pa.table(_ids_of(dataset, seen))
        for field in [*table.schema][2:]:  # a rank or a weight, which no row may lack
            ones = pa.repeat(pa.scalar(1, field.type), len(disliked))
            disliked = disliked.append_column(field, ones)
        table = pa.concat_tables(
            one.append_column("kind", pa.array([kind] * len(one), pa.string()))
            for one, kind in ((table, "kept"), (disliked, "disliked"))
        )
        settings |= {"event_column": "kind", "events": ("kept", "disliked=seen")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        prepared = prepare(table, path, **settings)
    prepared.name = dataset.name
    # The source tells a model that rows of a matrix are histories; a table has no such source.
    prepared.manifest = replace(prepared.manifest, source=dataset.manifest.source)
    return prepared


def _ids_of(dataset: Dataset, pairs: Histories) -> dict[str, Any]:
    """Return the columns of ids of these pairs."""
    users, items = dataset.users.table["id"], dataset.items.table["id"]
    return {"user_id": users.take(pairs.row_index()), "item_id": items.take(pairs.item_index)}


@contextmanager
def _without_resume_hint() -> Iterator[None]:
    """Remove from errors the advice to resume a run, because the run is removed."""
    try:
        yield
    except Interrupted as error:
        raise Interrupted("interrupted; nothing of it is kept", error.signal_number) from None
    except ForetasteError as error:
        error.hint = ""
        raise
