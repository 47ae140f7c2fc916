"""First weights from other runs, their users and items matched by id.

Rows of users and items that a run knows are copied; new ones keep the first weights of their seed,
as in a training from nothing; those that are gone are counted. Everything else is copied whole. The
optimizer begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretaste._util.settings import checked
from foretaste.data.dataset import Dataset
from foretaste.data.ids import IdTable
from foretaste.errors import RunError, SettingError
from foretaste.models.base import IterativeModel
from foretaste.models.registry import MODELS, config_class
from foretaste.runs.loading import model_config
from foretaste.runs.paths import CONFIG
from foretaste.runs.run import Run
from foretaste.training.config import PretrainingConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAME = "from"
"""The role of a run of the same model, beside its pretrained parts."""

_SIZES = ("factors", "layers", "hidden", "latent")
"""The settings of models that decide the shapes of their weights."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Match:
    """Rows of a new table in an old one."""

    row_N: NDArray[np.int64]
    """The old row of each new one; -1 where there is none."""
    num_gone: int
    """Old rows that are in the new table no more."""

    @classmethod
    def of(cls, new: IdTable, num_new: int, old: IdTable, num_old: int) -> Match:
        """Match the first rows of two tables, those that training knows, by id."""
        row_N = old.lookup(new.ids(np.arange(num_new)))
        row_N[row_N >= num_old] = -1
        return cls(row_N=row_N, num_gone=num_old - int((row_N >= 0).sum()))

    def counts(self) -> dict[str, int]:
        num_found = int((self.row_N >= 0).sum())
        num_new = len(self.row_N) - num_found
        return {"num_found": num_found, "num_new": num_new, "num_gone": self.num_gone}


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """A run whose weights a training begins with."""

    run: Run
    weights: dict[str, Tensor]
    digest: str
    """Of these weights."""
    matches: dict[str, Match]
    """By kind, ``users`` and ``items``: of those that the model has rows for."""

    @classmethod
    def open(cls, run: Run, kind: str, model: IterativeModel, dataset: Dataset) -> Origin:
        """Match a run of model ``kind`` with the model to be trained on ``dataset``.

        Raises SettingError where it is of another kind or has no item in common.
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
        has_rows = {"users": model.user_rows, "items": model.item_rows}
        matches = {kind: match for kind, match in matches.items() if has_rows[kind]}
        weights, digest = run.load_signed_weights()
        return cls(run=run, weights=weights, digest=digest, matches=matches)

    def check_sizes(self, model: IterativeModel, begin: tuple[str, ...]) -> None:
        """SettingError where parameters whose names so begin are of other sizes than the model's.

        How many users and items there are does not matter.
        """
        buffers = dict(model.named_buffers())
        found, expected = (
            {
                name: list(tensor.shape)[0 if self._match(model, name) is None else 1 :]
                for name, tensor in tensors
                if name.startswith(begin) and tensor.numel() and name not in buffers
            }
            for tensors in (self.weights.items(), model.named_parameters())
        )
        if found != expected:
            ours, theirs = vars(model.config), self.run.config.model_config
            sizes = ", ".join(
                f"{name} is {_spaced(theirs[name])} there and {_spaced(ours[name])} here"
                for name in _SIZES
                if name in ours and name in theirs and _spaced(theirs[name]) != _spaced(ours[name])
            )
            raise SettingError(
                f"{self.run.path} has other sizes than this {model.name}: {sizes}; give those of "
                "the run, or none: --from (start_from=... in Python) takes them from it"
            )

    @torch.no_grad()
    def copy(self, model: IterativeModel, begin: tuple[str, ...]) -> None:
        """Copy the parameters whose names so begin, row by row where rows are users or items."""
        for name, parameter in model.named_parameters():
            if not (name.startswith(begin) and parameter.numel()):
                continue
            match, weight = self._match(model, name), self.weights[name]
            if match is None:
                parameter.copy_(weight)
            else:
                new_row = torch.from_numpy(np.flatnonzero(match.row_N >= 0)).to(model.device)
                old_row = torch.from_numpy(match.row_N[match.row_N >= 0])
                parameter[new_row] = weight[old_row].to(model.device)

    def _match(self, model: IterativeModel, name: str) -> Match | None:
        """The match of a parameter's rows; None where they are no users or items."""
        if name in model.user_rows:
            return self.matches["users"]
        return self.matches["items"] if name in model.item_rows else None


@dataclass(frozen=True, kw_only=True, eq=False)
class WarmStart:
    """First weights from a run of the same model or from NeuMF's halves; from nowhere if empty."""

    origins: dict[str, Origin]
    """By role: ``from``, or ``gmf`` and ``mlp``."""
    alpha: float | None

    @classmethod
    def open(cls, record: Mapping[str, Any], model: IterativeModel, dataset: Dataset) -> WarmStart:
        """Open the runs of a `record`, those of a run's config or new ones without digests.

        Raises SettingError where they do not fit the model, RunError where they are no runs, have
        no weights or have others than recorded.
        """
        origins = {}
        for role, named in _runs(record):
            kind = model.name if role == _SAME else role
            origin = Origin.open(Run.open(named["path"]), kind, model, dataset)
            if origin.digest != named.get("weights_sha256", origin.digest):
                raise RunError(
                    f"{origin.run.path} has other weights than when this training began with them, "
                    "so it cannot begin again; train anew"
                )
            origins[role] = origin
        for role, origin in origins.items():
            origin.check_sizes(model, _prefixes(model, role))
        return cls(origins=origins, alpha=record.get("alpha"))

    def record(self) -> dict[str, Any]:
        """Runs and digests, as ``config.json`` keeps them."""
        runs = {
            role: {"path": str(origin.run.path.resolve()), "weights_sha256": origin.digest}
            for role, origin in self.origins.items()
        }
        return runs if self.alpha is None else runs | {"alpha": self.alpha}

    def summary(self) -> dict[str, Any]:
        """By run: how many users and items were found there, are new, or are gone."""
        return {
            str(origin.run.path): {kind: match.counts() for kind, match in origin.matches.items()}
            for origin in self.origins.values()
        }

    def apply(self, model: IterativeModel) -> None:
        """Replace the first weights of ``model`` by what the runs know."""
        for role, origin in self.origins.items():
            origin.copy(model, _prefixes(model, role))
        if self.alpha is not None:
            weights = {role: origin.weights for role, origin in self.origins.items()}
            model.join(weights, self.alpha)


def warm_start_record(
    model: str, start_from: Run | Path | str | None, pretraining: PretrainingConfig | None
) -> dict[str, Any]:
    """The record for `WarmStart.open` of the arguments of `train`; empty for weights by seed."""
    if start_from is not None and pretraining is not None:
        raise SettingError("start_from and pretraining are both given; name one start only")
    if start_from is not None:
        start = checked("start_from", start_from, Run | Path)
        return {_SAME: {"path": str(start.path if isinstance(start, Run) else start)}}
    if pretraining is None:
        return {}
    if not config_class(model).pretrained_parts:
        able = ", ".join(name for name in MODELS if config_class(name).pretrained_parts)
        raise SettingError(f"{model} has no halves to be pretrained; only {able} has")
    return {
        "gmf": {"path": str(pretraining.pretrained_gmf)},
        "mlp": {"path": str(pretraining.pretrained_mlp)},
        "alpha": pretraining.pretrained_alpha,
    }


def settings_to_start_with(model: str, start_from: Run | Path | str | None) -> Any:
    """The settings of the model of the run to start from, which hold where none are given.

    None where there is no run, or one of another model, which `Origin.open` refuses.
    """
    if start_from is None:
        return None
    run = start_from if isinstance(start_from, Run) else Run.open(start_from)
    return model_config(run.config, run.path / CONFIG) if run.config.model == model else None


def warm_start_arguments(record: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `train` that a record was made of."""
    paths = {role: Path(named["path"]) for role, named in _runs(record)}
    pretraining = None
    if "alpha" in record:
        pretraining = PretrainingConfig(
            pretrained_gmf=paths["gmf"],
            pretrained_mlp=paths["mlp"],
            pretrained_alpha=record["alpha"],
        )
    return {"start_from": paths.get(_SAME), "pretraining": pretraining}


def _prefixes(model: IterativeModel, role: str) -> tuple[str, ...]:
    """The first letters of the names of the parameters that a role provides."""
    return ("",) if role == _SAME else model.config_class.pretrained_parts[role]


def _spaced(value: Any) -> str:
    """A size as the command line has it: ``256 128``."""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _runs(record: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((role, named) for role, named in record.items() if role != "alpha")
