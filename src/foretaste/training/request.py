"""One training as a value: the model, the data, the settings, and the place of its run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from foretaste._util.keywords import assign_settings
from foretaste._util.settings import (
    Threads,
    check_settings,
    fields_of,
    setting_error,
    to_document,
    validate,
)
from foretaste._util.system import launch
from foretaste.data.config import PrepareConfig
from foretaste.data.manifest import Manifest
from foretaste.data.request import OF_DATA, PrepareRequest, take_data
from foretaste.errors import RunError, SettingError
from foretaste.models.config import ModelConfig
from foretaste.models.registry import MODELS, config_class
from foretaste.runs.config import read_settings
from foretaste.runs.files import CONFIG
from foretaste.runs.places import check_is_new
from foretaste.runs.run import Run, model_config, read_config
from foretaste.training.config import (
    LogConfig,
    PretrainingConfig,
    TrainingConfig,
    applies,
    check_settings_act,
)

CHANGE_NO_RESULT = ("checkpoint_every_s", "warm_up_epochs")
"""Settings of a training that change neither its weights nor its metrics."""

SAME = "from"
"""Role of the run of the same model that gives the first weights."""

_BESIDE = ("run", "runs_root", "overwrite", "logs", "threads")


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The request of `train_run`; the command line and `train` make the same one."""

    model: str
    """Name of the model."""

    data: PrepareRequest
    """The dataset, or the raw interactions to prepare first."""

    model_config: ModelConfig
    """Settings of the model."""

    config: TrainingConfig = field(default_factory=TrainingConfig)
    """Settings of the training."""

    start_from: Path | None = None
    """A run of the same model whose weights are the training's first."""

    pretraining: PretrainingConfig | None = None
    """For neumf, the runs of GMF and MLP with its first weights."""

    needs_features: tuple[str, ...] = ()
    """Columns of features that the dataset must have, such as the columns of a repeated run."""

    # The fields below change neither weights nor metrics.

    run: Path | None = None
    """Directory of the run; by default a new one in ``runs_root``."""

    runs_root: Path = Path("runs")
    """The folder of runs without a name."""

    overwrite: bool = False
    """Replace the run, and the files of ``logs``."""

    logs: LogConfig = field(default_factory=LogConfig)
    """Files to write beside the run's own log."""

    threads: Threads | None = None
    """CPU threads of each rank; as many as PyTorch takes unless given."""

    def __post_init__(self) -> None:
        check_settings(self)
        validate("model_config", self.model_config, config_class(self.model))
        self._check_start()

    @classmethod
    def of(cls, model: str, dataset: Any, *, verb: str = "train", **keywords: Any) -> TrainRequest:
        """Return the request of `train`'s keywords: fields of the request, settings by name.

        Settings of the model are by default the settings of the run ``start_from``. ``verb`` is the
        name for messages. Raises SettingError for a setting that is unknown, out of range, or does
        nothing for the model.
        """
        if not isinstance(model, str):
            raise setting_error("model", model, f"text, and it comes first: {verb}(model, data)")
        kind = config_class(model)
        parts: dict[str, type[Any]] = {
            "config": TrainingConfig,
            "model_config": kind,
            "pretraining": PretrainingConfig,
            "logs": LogConfig,
            "preparation": PrepareConfig,
        }
        if isinstance(start := keywords.get("start_from"), Run):
            keywords["start_from"] = start.path
        if start is not None and keywords.get("model_config") is None:
            path = validate("start_from", keywords["start_from"], Path)
            if (begun := read_config(path)).model == model:
                keywords["model_config"] = model_config(begun, path / CONFIG)
        own = [item.name for item in fields(cls) if item.name not in ("model", "data", *parts)]
        given = assign_settings(verb, keywords, (*own, *OF_DATA), parts)
        check_settings_act(model, kind, keywords)
        if "model_config" not in given:
            given["model_config"] = kind()
        return cls(model=model, data=take_data(dataset, given), **given)

    @classmethod
    def of_run(cls, run: Run) -> TrainRequest:
        """Return the request that a run was made for: its settings as they were asked for, ``auto``
        included, on its dataset at the path of that time."""
        config, path = run.config, run.path / CONFIG
        found = model_config(config, path)
        own = {item.name for item in fields(found)}
        as_asked = {name: value for name, value in config.asked.items() if name in own}
        return cls(
            model=config.model,
            data=PrepareRequest(source=Path(config.dataset.path)),
            model_config=replace(found, **as_asked),
            config=read_settings(TrainingConfig, config.asked, path),
            **start_arguments(config.start),
            run=run.path,
        )

    def with_settings(self, **settings: Any) -> TrainRequest:
        """Return the same request with other settings of the model or the training."""
        of_training = {name: one for name, one in settings.items() if hasattr(self.config, name)}
        of_model = {name: one for name, one in settings.items() if hasattr(self.model_config, name)}
        return replace(
            self,
            config=replace(self.config, **of_training),
            model_config=replace(self.model_config, **of_model),
        )

    def settings(self) -> dict[str, Any]:
        """Return the settings of the model and of the training that change the result, by name."""
        kind, training = type(self.model_config), vars(self.config)
        named = {name: one for name, one in training.items() if applies(name, kind)}
        for name in CHANGE_NO_RESULT:
            named.pop(name, None)
        whole: dict[str, Any] = to_document(vars(self.model_config) | named)
        return {"model": self.model, **whole}

    def record(self, manifest: Manifest) -> dict[str, Any]:
        """Return the entries of ``config.json`` about the request, but for its settings and its
        start, without passwords. The entry ``beside`` has the settings that change no result;
        ``manifest`` is the dataset's."""
        beside = {name: to_document(getattr(self, name)) for name in _BESIDE}
        beside |= {name: getattr(self.config, name) for name in CHANGE_NO_RESULT}
        return {
            "data": self.data.record(manifest),
            "needs_features": list(self.needs_features),
            "beside": beside,
        }

    def starts(self) -> dict[str, Path]:
        """Return the runs that give the first weights, by role: ``from``, or pretrained parts."""
        if self.start_from is not None:
            return {SAME: self.start_from}
        if self.pretraining is None:
            return {}
        paths = {"gmf": self.pretraining.pretrained_gmf, "mlp": self.pretraining.pretrained_mlp}
        return {role: path for role, path in paths.items() if path is not None}

    def check_names(self) -> None:
        """Raise an error for runs and data that are not there, and for a run's name that is taken:
        all that can be said before PyTorch is imported. With several ranks these errors come later:
        the ranks meet first, and one of them looks."""
        if launch().size > 1:
            return
        if self.run is not None and not self.overwrite and Run.unfinished(self.run) is None:
            check_is_new(self.run)
        for path in self.starts().values():
            Run.open(path)
        self.data.check_names()

    def _check_start(self) -> None:
        """Raise SettingError for first weights that the model cannot take."""
        kind = type(self.model_config)
        if self.start_from is None and self.pretraining is None:
            return
        if self.start_from is not None and self.pretraining is not None:
            raise SettingError("start_from and pretraining are both given; name one start only")
        if self.pretraining is not None and not kind.pretrained_parts:
            able = ", ".join(name for name in MODELS if config_class(name).pretrained_parts)
            raise SettingError(f"{self.model} has no halves to be pretrained; only {able} has")
        if not kind.has_epochs:
            raise SettingError(
                f"{self.model} is fitted in one pass: it has no first weights to begin with"
            )


def rerun_request(run: Run) -> TrainRequest:
    """Return the request that repeats a run, for as many epochs as its best one took.

    The request keeps the values that ``auto`` chose, the warm start, and the settings of the
    fold-in that validation chose. A schedule falls over as many epochs as it did. Device, precision
    and kernels are found again, and so are the weights in a model's loss that depend on the data
    alone. No settings are searched, nothing stops the training early, and only the last epoch is
    evaluated, because the number of epochs is known. The dataset must have the features of a model
    that learns from them. Raises RunError if the run was never finished.
    """
    asked, settings, path = run.config.asked, run.config.settings, run.path / CONFIG
    chosen = fields_of(TrainingConfig, settings)
    chosen |= {name: asked[name] for name in ("device", "precision", "kernels")}
    if (summary := run.log.summary) is None:
        raise RunError(
            f"{run.path} was never finished, so its best epoch is not known; "
            "name a run that was trained to the end"
        )
    best_epoch = summary["best_epoch"]
    found = replace(model_config(run.config, path), **summary["fold_in"])
    if best_epoch is not None:
        if chosen.get("learning_rate_schedule") == "cosine":
            chosen["schedule_epochs"] = chosen.get("schedule_epochs") or chosen["epochs"]
        chosen |= {"epochs": best_epoch, "patience": 0, "target": None, "eval_every": best_epoch}
    kind = type(found)
    # What the search of that run found is in its model's settings.
    chosen["search"] = False
    act = {name: value for name, value in chosen.items() if applies(name, kind)}
    return replace(
        TrainRequest.of_run(run),
        model_config=found,
        config=read_settings(TrainingConfig, act, path),
        needs_features=run.config.dataset.feature_columns if found.uses_features else (),
        run=None,
    )


def start_arguments(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request behind the record of a warm start."""
    paths = {role: Path(run["path"]) for role, run in record.items() if role != "alpha"}
    pretraining = None
    if "alpha" in record:
        pretraining = PretrainingConfig(
            pretrained_gmf=paths["gmf"],
            pretrained_mlp=paths["mlp"],
            pretrained_alpha=record["alpha"],
        )
    return {"start_from": paths.get(SAME), "pretraining": pretraining}
