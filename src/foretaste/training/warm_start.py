"""First weights from other runs, their users and items matched by id.

Rows of users and items that a run knows are copied. New users and items keep the weights that the
seed gives, as in a training from nothing. Users and items that the new data lack are counted. All
other weights are copied whole. The optimizer starts from nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste.data.dataset import Dataset
from foretaste.data.features import Features
from foretaste.data.ids import IdTable
from foretaste.errors import RunError, SettingError
from foretaste.models.base import IterativeModel
from foretaste.runs.files import CONFIG
from foretaste.runs.run import Run, model_config
from foretaste.training.request import SAME, TrainRequest


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """The rows of a new table, matched with the rows of an old one."""

    row_N: NDArray[np.int64]
    """The old row of each new one; -1 if there is none."""
    num_gone: int
    """Number of old rows that the new table lacks."""

    @classmethod
    def of(cls, new: IdTable, num_new: int, old: IdTable, num_old: int) -> Match:
        """Match the first rows of two tables, those that training knows, by id."""
        row_N = old.lookup(new.ids(np.arange(num_new)))
        # Ids that the old training never saw stand behind those it learned, and have no weights.
        row_N[row_N >= num_old] = -1
        return cls(row_N=row_N, num_gone=num_old - int((row_N >= 0).sum()))

    @classmethod
    def of_names(cls, new: Features | None, old: Features | None) -> Match:
        """Match feature values by column and value."""
        names = old.names if old is not None else ()
        row_of = {name: row for row, name in enumerate(names)}
        rows = [row_of.get(name, -1) for name in (new.names if new is not None else ())]
        row_N = np.array(rows, dtype=np.int64)
        return cls(row_N=row_N, num_gone=len(names) - int((row_N >= 0).sum()))

    def counts(self) -> dict[str, int]:
        num_found = int((self.row_N >= 0).sum())
        num_new = len(self.row_N) - num_found
        return {"num_found": num_found, "num_new": num_new, "num_gone": self.num_gone}


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """A run that gives the first weights of a training."""

    run: Run
    weights: dict[str, Tensor]
    digest: str
    """Digest of these weights."""
    matches: dict[str, Match]
    """The kinds with rows in the model: ``users``, ``items`` and feature ``values``."""

    @classmethod
    def open(cls, run: Run, kind: str, model: IterativeModel, dataset: Dataset) -> Origin:
        """Match a run of model ``kind`` with the model to be trained on ``dataset``.

        Raises SettingError if it is of another kind or has no item in common.
        """
        if run.config.model != kind:
            raise SettingError(
                f"{run.path} is a run of {run.config.model}, which {model.name} cannot start from "
                f"here; name a run of {kind}"
            )
        matches = {
            "users": Match.of(dataset.users, model.num_users, run.users, run.num_train_users),
            "items": Match.of(dataset.items, model.num_items, run.items, run.num_items),
        }
        if not matches["items"].counts()["num_found"]:
            raise SettingError(
                f"none of the {model.num_items:,} items of {dataset.path} is known to {run.path}: "
                "there is nothing to start from"
            )
        if model.config.keeps_features or run.features is not None:
            matches["values"] = Match.of_names(dataset.features, run.features)
        rows = _rows_by_kind(model)
        matches = {kind: one for kind, one in matches.items() if rows[kind]}
        weights = run.open_weights()
        return cls(run=run, weights=weights.tensors, digest=weights.digest, matches=matches)

    def check_sizes(self, model: IterativeModel, begin: tuple[str, ...]) -> None:
        """Raise SettingError if the run has another `architecture`, or parameters of other shapes.
        Only parameters whose names start with one of ``begin`` count. The numbers of users and
        items may differ.
        """
        theirs, ours = model_config(self.run.config, self.run.path / CONFIG), model.config
        both = [name for name in theirs.architecture if hasattr(ours, name)]
        settings = _differing({name: (getattr(theirs, name), getattr(ours, name)) for name in both})
        buffers = dict(model.named_buffers())
        found, expected = (
            {
                # The shapes leave out the number of rows if rows are users or items.
                name: list(tensor.shape)[0 if self._match(model, name) is None else 1 :]
                for name, tensor in tensors
                if name.startswith(begin) and tensor.shape[1:].numel() and name not in buffers
            }
            for tensors in (self.weights.items(), model.named_parameters())
        )
        names = sorted({*found, *expected})
        shapes = _differing({name: (found.get(name), expected.get(name)) for name in names})
        # A model may name no settings that decide its sizes: then the message names its parameters.
        if sizes := settings or shapes:
            raise SettingError(
                f"{self.run.path} has other sizes than this {model.name}: {', '.join(sizes)}; give "
                "those of the run, or none: --from (start_from=... in Python) takes them from it"
            )

    def check_scores(self, model: IterativeModel, role: str) -> None:
        """Raise SettingError if the weights would make other scores in the model than in the run.

        Pretrained halves must have the loss of the model that they become, and no cosines.
        """
        theirs, ours = model_config(self.run.config, self.run.path / CONFIG), model.config
        expected = ours.scoring if role == SAME else dict.fromkeys(theirs.scoring, False)
        differing = [
            f"{name} {'on' if value else 'off'}"
            for name, value in theirs.scoring.items()
            if value != expected[name]
        ]
        advice = "give its settings, or none: --from (start_from=... in Python) takes them from it"
        if role != SAME:
            if theirs.loss != ours.loss:
                differing.append(f"loss {theirs.loss}")
            advice = f"train it again with the loss {ours.loss} and without cosines"
        if differing:
            raise SettingError(
                f"{self.run.path} was trained with {' and '.join(differing)}, which this "
                f"{model.name} would not take over; {advice}"
            )

    @torch.no_grad()
    def copy(self, model: IterativeModel, begin: tuple[str, ...]) -> None:
        """Copy the parameters whose names start with one of ``begin``.

        Rows that are users or items are copied one by one, by their match.
        """
        for name, parameter in model.named_parameters():
            if not (name.startswith(begin) and parameter.numel()):
                continue
            match, weight = self._match(model, name), self.weights[name]
            if match is None:
                parameter.copy_(weight)
            else:
                rows = model.rows_of(name)
                row_N = match.row_N if rows is None else match.row_N[rows.start : rows.stop]
                new_row = torch.from_numpy(np.flatnonzero(row_N >= 0)).to(model.device)
                old_row = torch.from_numpy(row_N[row_N >= 0])
                # In place: the optimizer holds this very tensor.
                parameter[new_row] = weight[old_row].to(model.device)

    def _match(self, model: IterativeModel, name: str) -> Match | None:
        """Return the match of a parameter's rows; None unless they are users, items or values."""
        kinds = [kind for kind, names in _rows_by_kind(model).items() if name in names]
        return self.matches[kinds[0]] if kinds else None


def take_first_weights(
    request: TrainRequest, model: IterativeModel, dataset: Dataset, begun: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Replace the first weights of ``model`` by those of the runs that a request begins with.

    ``begun`` is the record of a training that has begun with them before, or empty. Returns the
    record for ``config.json`` and, by run, how many users and items were found there, are new, or
    are gone. Raises SettingError if a run does not fit the model, RunError if it has no weights, or
    other weights than before.
    """
    origins = {
        role: Origin.open(Run.open(path), model.name if role == SAME else role, model, dataset)
        for role, path in request.starts().items()
    }
    digests = {role: origin.digest for role, origin in origins.items()}
    for role, origin in origins.items():
        if begun and begun[role]["weights_sha256"] != origin.digest:
            raise RunError(
                f"{origin.run.path} has other weights than when this training began with them, "
                "so it cannot begin again; train again"
            )
        origin.check_scores(model, role)
        origin.check_sizes(model, _prefixes(model, role))
    # Check everything before replacing the first weight.
    for role, origin in origins.items():
        origin.copy(model, _prefixes(model, role))
    if (pretraining := request.pretraining) is not None:
        halves = {role: origin.weights for role, origin in origins.items()}
        model.join(halves, pretraining.pretrained_alpha)
    found = {
        str(origin.run.path): {kind: match.counts() for kind, match in origin.matches.items()}
        for origin in origins.values()
    }
    return _record(request, digests), found


def _record(request: TrainRequest, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the record for ``config.json``: the runs, and the digests of their weights."""
    record: dict[str, Any] = {
        role: {"path": str(path.resolve()), "weights_sha256": digests[role]}
        for role, path in request.starts().items()
    }
    if request.pretraining is not None:
        record["alpha"] = request.pretraining.pretrained_alpha
    return record


def record_of_start(request: TrainRequest) -> dict[str, Any]:
    """Return the record of the first weights of a request, as they are now."""
    starts = request.starts().items()
    return _record(request, {role: Run.open(path).open_weights().digest for role, path in starts})


def weights_of_start(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what comparisons use of a record of first weights: the weights, not their paths."""
    return {
        f"the start ({role})": one["weights_sha256"][:12] if isinstance(one, Mapping) else one
        for role, one in record.items()
    }


def _rows_by_kind(model: IterativeModel) -> dict[str, tuple[str, ...]]:
    """Return the parameters with rows of users, items and feature values."""
    return {"users": model.user_rows, "items": model.item_rows, "values": model.value_rows}


def _prefixes(model: IterativeModel, role: str) -> tuple[str, ...]:
    """Return the beginnings of the names of the parameters that a role provides."""
    return ("",) if role == SAME else model.config_class.pretrained_parts[role]


def _differing(sizes: Mapping[str, tuple[Any, Any]]) -> list[str]:
    """Describe each size that differs between a run and a model."""
    return [
        f"{name} is {_format_sizes(there)} there and {_format_sizes(here)} here"
        for name, (there, here) in sizes.items()
        if there != here
    ]


def _format_sizes(value: Any) -> str:
    """Return a size as the command line has it: ``256 128``."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
