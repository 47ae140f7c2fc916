"""A new family: its classes and one registry line, for every kind of fitting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import foretaste
from foretaste.data import Dataset
from foretaste.errors import SettingError
from foretaste.evaluation.config import EvaluationConfig
from foretaste.models.base import IterativeModel, NeuralModel
from foretaste.models.registry import MODELS, config_class, model_class
from foretaste.runs import Run
from foretaste.training import Callback, resume, train
from tests.messages import raises
from tests.training.test_interruption import Killing
from tests.training.trainings import events, weights_of

STEPS = {
    "toy-steps": ("ToyConfig", "ToySteps"),
    "toy-phases": ("ToyConfig", "ToyPhases"),
    "toy-sweeps": ("ToySweepsConfig", "ToySweeps"),
}
FAMILIES = {
    **STEPS,
    "toy-fit": ("ToyFitConfig", "ToyFit"),
    "toy-blend": ("ToyBlendConfig", "ToyBlend"),
}
QUIET: dict[str, Any] = {"device": "cpu", "callback": Callback()}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, names in FAMILIES.items():
        monkeypatch.setitem(MODELS, name, tuple(f"tests.training.toys:{each}" for each in names))


def trained(name: str, dataset: Dataset, path: Path, **settings: Any) -> Run:
    if name == "toy-blend":
        parts = [
            train(part, dataset, run=path.with_name(f"{path.name}-{part}"), **QUIET).path
            for part in ("toy-steps", "ease")
        ]
        settings["runs"] = tuple(map(str, parts))
    return train(name, dataset, run=path, **QUIET | settings)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_registered_family_trains_evaluates_and_recommends(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    run = trained(name, dataset, tmp_path / "run")
    evaluation = foretaste.evaluate_run(run, dataset, EvaluationConfig(), device="cpu")
    logged = events(run, "evaluation")[-1]["evaluation"]["metrics"]
    assert evaluation["ndcg@10"] == pytest.approx(logged["ndcg@10"]["value"])
    recommender = foretaste.load(run, device="cpu")
    known = recommender.recommend([run.users.ids()[0]], k=3)
    new = recommender.recommend_for([run.items.ids()[:2]], k=3)
    assert [len(answer.items) for answer in (*known, *new)] == [3, 3]


def test_a_registered_family_has_its_own_command(dataset: Dataset, tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    families = {name: MODELS[name] for name in ("toy-steps", "toy-fit")}
    lines = (
        "toy-steps --help",
        "toy-fit --help",
        f"toy-steps --width 2 --epochs 1 --device cpu --run {tmp_path}/toy-steps",
        f"toy-fit --candidates sampled-9 --device cpu --run {tmp_path}/toy-fit",
    )
    code = (
        "from foretaste.cli.app import main\n"
        "from foretaste.models.registry import MODELS\n"
        f"MODELS.update({families!r})\n"
        f"for line in {lines!r}:\n"
        f"    main(['train', *line.split(), {str(dataset.path)!r}])\n"
        "    print('---')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root
    )
    steps, fit, *trained, _ = done.stdout.split("---\n")
    assert "A toy with a vector for every item." in steps
    assert "--width INT" in steps
    assert "--epochs" in steps
    assert "--epochs" not in fit
    for option in ("--precision", "--negatives", "--pretrained-gmf"):
        assert option not in steps + fit
    for name, out in zip(families, trained, strict=True):
        assert f"Run: {tmp_path / name}\n" in out
    assert Run.open(tmp_path / "toy-steps").config.model_config == {"width": 2}


@pytest.mark.parametrize("name", STEPS)
def test_a_family_with_epochs_learns_and_resumes(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    whole = trained(name, dataset, tmp_path / "whole")
    first, *_, last = (event["loss"] for event in events(whole, "epoch"))
    assert last < first
    with pytest.raises(KeyboardInterrupt):
        trained(name, dataset, tmp_path / "run", callback=Killing("epoch 2"))
    resumed = resume(tmp_path / "run", callback=Callback())
    assert weights_of(resumed) == weights_of(whole)


def test_each_phase_updates_its_own_parameters(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        trained("toy-phases", dataset, tmp_path / "run", callback=Killing("step 1-1"))
    state = Run.open(tmp_path / "run").load_state()
    assert state is not None
    names = {name for name in state.tensors if name.startswith("optimizer.exp_avg.")}
    assert names == {"optimizer.exp_avg.left"}


def test_a_model_of_other_runs_wants_their_dataset(
    dataset: Dataset, everything: Dataset, tmp_path: Path
) -> None:
    other = train("ease", everything, run=tmp_path / "other", **QUIET)
    with raises(SettingError, other.path, dataset.path, f"--like {other.path} {dataset.path}"):
        train("toy-blend", dataset, run=tmp_path / "run", runs=[str(other.path)], **QUIET)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", MODELS)
def test_settings_and_class_of_every_model_agree(name: str) -> None:
    kind = model_class(name)
    assert kind.name == name
    assert kind.config_class is config_class(name)
    facts = kind.config_class
    assert issubclass(kind, IterativeModel) == facts.has_epochs
    assert issubclass(kind, NeuralModel) == (facts.has_epochs and facts.has_steps)
