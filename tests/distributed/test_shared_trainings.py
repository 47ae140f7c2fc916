"""Trainings by several ranks write the run that one process would have written. A run is
independent of ranks: some train it and stop, others resume it, and one process reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.distributed.collectives import Ranks
from foretaste.models.registry import MODELS
from foretaste.runs import Run, verify
from foretaste.training import Callback, PretrainingConfig, resume
from foretaste.training.callbacks import TrainingStart
from foretaste.training.checkpoint import Checkpoints
from tests.data.partitions import in_partitions
from tests.ranks import run_ranks
from tests.runs.tiny import parameters
from tests.training.trainings import CONFIGS, contents, events, numbers_of, run_of, weights_of

SMALL: dict[str, Any] = {"epochs": 2, "batch_size": 700, "callback": Callback()}
OF_AUTOENCODER: dict[str, Any] = {"batch_size": 20, "learning_rate": 0.003}
OWN = dict.fromkeys(("vae", "dae", "recvae"), OF_AUTOENCODER) | {"sasrec": {"batch_size": 100}}
TOYS = {
    "toy-steps": ("tests.training.toys:ToyConfig", "tests.training.toys:ToySteps"),
    "toy-phases": ("tests.training.toys:ToyConfig", "tests.training.toys:ToyPhases"),
    "toy-sweeps": ("tests.training.toys:ToySweepsConfig", "tests.training.toys:ToySweeps"),
}


class Stop(BaseException):
    """Ends all ranks after the same update, like a kill."""


def stopping_after(num_updates: int) -> AbstractContextManager[Any]:
    """`Stop` a training inside the context after ``num_updates`` saved updates; 0 for never."""
    if not num_updates:
        return nullcontext()

    save = Checkpoints.save

    def save_and_stop(checkpoints: Checkpoints) -> None:
        save(checkpoints)
        if checkpoints.state.global_step == num_updates:
            raise Stop

    stack = ExitStack()
    stack.enter_context(pytest.raises(Stop))
    stack.enter_context(mock.patch.object(Checkpoints, "save", save_and_stop))
    return stack


def trained(
    ranks: Ranks, name: str, data: Path, path: Path, settings: dict[str, Any], stop_after: int
) -> None:
    if stop_after:
        settings = settings | {"checkpoint_every_s": 0.0}
    with stopping_after(stop_after):
        run_of(name, data, path, **SMALL | OWN.get(name, {}) | settings)


class Told(Callback):
    """Remembers the moment from which a training resumes; the first rank's display shows it."""

    resumed_at: str | None = None

    def started(self, start: TrainingStart) -> None:
        self.resumed_at = start.resumed_at


def resumed(ranks: Ranks, path: Path, stop_after: int = 0) -> str | None:
    told = Told()
    with stopping_after(stop_after):
        resume(path, callback=told)
    return told.resumed_at


def run_by(
    size: int, name: str, dataset: Dataset, path: Path, stop_after: int = 0, **settings: Any
) -> Run:
    run_ranks(trained, size, name, dataset.path, path, settings, stop_after)
    return Run.open(path)


ByRanks = Callable[[int, str, str], Run]


@pytest.fixture(scope="module")
def by_ranks(shop: Dataset, tmp_path_factory: pytest.TempPathFactory) -> ByRanks:
    """Trains a model on the shop by a number of ranks in a precision, once; tests only read it."""

    @cache
    def trained(size: int, name: str, precision: str) -> Run:
        return run_by(size, name, shop, tmp_path_factory.mktemp(name) / "run", precision=precision)

    return trained


def assert_alike(run: Run, expected: Run, tolerance: float) -> None:
    """Weights and metrics to a tolerance; the same events."""
    there = parameters(expected)
    for name, weight in parameters(run).items():
        error = (weight - there[name]).double().norm()
        assert error <= tolerance * there[name].double().norm(), (name, error)
    pairs = zip(numbers_of(run), numbers_of(expected), strict=True)
    for one, other in pairs:
        assert one["event"] == other["event"]
        if one["event"] == "epoch":
            assert one["loss"] == pytest.approx(other["loss"], rel=tolerance)
    assert run.config.resolved == expected.config.resolved


@pytest.mark.parametrize(
    ("name", "size", "precision"),
    [
        ("neumf", 2, "fp32"),
        ("neumf", 3, "fp32"),
        ("neumf", 3, "bf16"),
        ("neumf", 2, "fp16"),
        ("vae", 2, "fp32"),
        ("dae", 3, "fp32"),
        ("vae", 3, "bf16"),
        ("vae", 2, "fp16"),
        ("recvae", 2, "fp32"),
        ("sasrec", 2, "fp32"),
    ],
)
def test_ranks_train_the_model_of_one_process(
    name: str, size: int, precision: str, by_ranks: ByRanks
) -> None:
    """The dataset has features if the model learns from features."""
    alone, shared = (by_ranks(each, name, precision) for each in (1, size))
    # Adam's first steps have one size for any gradient, so they amplify rounding.
    in_half = 0.1 if name == "neumf" else 0.05
    assert_alike(shared, alone, 1e-3 if precision == "fp32" else in_half)


@pytest.mark.parametrize("name", ["neumf", "vae"])
def test_ranks_train_on_partitions_as_one_on_the_whole(
    name: str, shop: Dataset, by_ranks: ByRanks, tmp_path: Path
) -> None:
    """Training pairs lie in files by ranges of users, like Spark's output."""
    last = shop.manifest.num_train_users - 1
    laid_out = in_partitions(shop, tmp_path / "data", [0, last // 3, last], row_group_size=50)
    shared = run_by(2, name, laid_out, tmp_path / "shared", precision="fp32")
    assert_alike(shared, by_ranks(1, name, "fp32"), 1e-3)


@pytest.mark.parametrize(("name", "batch_size"), [("mlp", 35), ("mlp", 10**6), ("gmf", 10**6)])
def test_ranks_train_its_halves(
    name: str,
    batch_size: int,
    heldout_users: Dataset,
    tmp_path: Path,
) -> None:
    """The batches have fewer samples than items, or one batch has all samples."""
    settings: dict[str, Any] = {"batch_size": batch_size, "epochs": 1}
    model_config: Any = CONFIGS[name]
    unlike = {"batch_layout": "shuffled", "verified_negatives": False}
    settings["model_config"] = replace(model_config, **unlike)
    alone = run_by(1, name, heldout_users, tmp_path / "alone", **settings)
    shared = run_by(2, name, heldout_users, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 5e-3)


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("neumf", "fp32"),
        ("neumf", "fp16"),
        ("vae", "fp32"),
        ("vae", "fp16"),
        ("recvae", "fp32"),
        ("sasrec", "fp32"),
    ],
)
def test_stopped_ranks_resume_exactly(
    name: str, precision: str, shop: Dataset, by_ranks: ByRanks, tmp_path: Path
) -> None:
    whole = by_ranks(2, name, precision)
    run_by(2, name, shop, tmp_path / "run", stop_after=4, precision=precision)
    run_ranks(resumed, 2, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    assert [event["step"] for event in events(run, "resume")] == [4]
    assert weights_of(run) == weights_of(whole)
    assert numbers_of(run) == numbers_of(whole)
    assert contents(run.path).keys() == contents(whole.path).keys()


@pytest.mark.parametrize("name", ["gmf", "vae"])
def test_another_number_of_ranks_resumes_and_says_so(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    alone = run_by(1, name, dataset, tmp_path / "alone", checkpoint_every_s=0.0)
    run = run_by(2, name, dataset, tmp_path / "run", stop_after=2)
    assert verify(run.path) == []
    for size, stop_after in ((1, 3), (3, 0)):
        said, *_ = run_ranks(resumed, size, run.path, stop_after)
        assert said.endswith("(begun with num_ranks 2: last digits may differ)")
        assert verify(run.path) == []
    assert [event["hardware"].get("num_ranks") for event in events(run, "resume")] == [None, 3]
    assert_alike(run, alone, 1e-3)


STEPLESS: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-12, "seed": 4}
"""Settings of a training that ends with its first weights."""


def test_ranks_begin_with_the_rows_of_a_run(
    everything: Dataset, by_ranks: ByRanks, tmp_path: Path
) -> None:
    """Each rank begins with its own users' rows, matched by id."""
    source = by_ranks(3, "neumf", "fp32")
    settings = STEPLESS | {"start_from": source.path}
    alone = run_by(1, "neumf", everything, tmp_path / "alone", **settings)
    shared = run_by(3, "neumf", everything, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-6)
    assert shared.config.start == alone.config.start
    assert shared.config.start["from"]["path"] == str(source.path)


def test_ranks_begin_with_pretrained_halves(dataset: Dataset, tmp_path: Path) -> None:
    for size, half in ((1, "gmf"), (2, "mlp")):
        run_by(size, half, dataset, tmp_path / half)
    halves = PretrainingConfig(pretrained_gmf=tmp_path / "gmf", pretrained_mlp=tmp_path / "mlp")
    settings = STEPLESS | {"pretraining": halves}
    alone = run_by(1, "neumf", dataset, tmp_path / "alone", **settings)
    shared = run_by(2, "neumf", dataset, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-6)
    assert shared.config.start == alone.config.start


def toys_trained(ranks: Ranks, *args: Any) -> None:
    with mock.patch.dict(MODELS, TOYS):
        trained(ranks, *args)


def toys_resumed(ranks: Ranks, path: Path) -> None:
    with mock.patch.dict(MODELS, TOYS):
        resumed(ranks, path)


@pytest.mark.parametrize("name", TOYS)
def test_a_later_family_is_shared_out_through_the_same_seam(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    """The family that alternates two optimizers is shared too; the first rank alone fits sweeps."""
    runs = {}
    trainings = [(1, 0), (2, 0), (2, 2)]
    for size, stop_after in trainings if name != "toy-sweeps" else trainings[:2]:
        path = tmp_path / f"{size}-{stop_after}"
        settings = {"batch_size": "auto"}
        run_ranks(toys_trained, size, name, dataset.path, path, settings, stop_after)
        if stop_after:
            run_ranks(toys_resumed, size, path)
        runs[size, stop_after] = Run.open(path)
    assert_alike(runs[2, 0], runs[1, 0], 1e-4)
    if (2, 2) in runs:
        assert weights_of(runs[2, 2]) == weights_of(runs[2, 0])
        assert numbers_of(runs[2, 2]) == numbers_of(runs[2, 0])


@pytest.mark.parametrize("name", ["neumf", "vae"])
def test_ranks_follow_the_schedule_and_average_the_weights_of_one_process(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    settings = {"ema": 0.9, "learning_rate_schedule": "cosine"}
    alone = run_by(1, name, dataset, tmp_path / "alone", **settings)
    shared = run_by(2, name, dataset, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-3)
    run_by(2, name, dataset, tmp_path / "run", stop_after=1, **settings)
    run_ranks(resumed, 2, tmp_path / "run")
    assert weights_of(Run.open(tmp_path / "run")) == weights_of(shared)


@pytest.mark.parametrize("name", ["neumf", "dae"])
def test_fewer_users_than_ranks(name: str, tmp_path: Path) -> None:
    """Some ranks have no row of the user tables, no user of a batch; the state of all is saved."""
    pairs = [(user, item, item) for user in (1, 2) for item in range(user, 20, 2)]
    names = ("user_id", "item_id", "timestamp")
    table = pa.table(dict(zip(names, zip(*pairs, strict=True), strict=True)))
    dataset = prepare(table, tmp_path / "data", PrepareConfig(protocol="none"))
    settings: dict[str, Any] = {"batch_size": 40, "eval_every": "auto"}
    alone = run_by(1, name, dataset, tmp_path / "alone", **settings)
    shared = run_by(3, name, dataset, tmp_path / "shared", **settings)
    assert_alike(shared, alone, 1e-3)
    run_by(3, name, dataset, tmp_path / "run", stop_after=1, **settings)
    run_ranks(resumed, 3, tmp_path / "run")
    assert weights_of(Run.open(tmp_path / "run")) == weights_of(shared)
