"""The weight of the prior of new users, chosen on the users of the validation part."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.models.neumf.config import GMFConfig, NeuMFConfig
from foretaste.runs import Run, load_model
from foretaste.training.callbacks import Callback
from foretaste.training.config import TrainingConfig
from foretaste.training.display import TrainingDisplay
from foretaste.training.request import rerun_request
from tests.training.trainings import CONFIGS, events, run_of, trained_again


def trained(
    name: str, dataset: Dataset, run_path: Path, seed: int = 2, callback: Callback | None = None
) -> Run:
    settings: dict[str, Any] = {
        "learning_rate": 0.05,
        "epochs": 12,
        "seed": seed,
        "batch_size": 200,
    }
    return run_of(name, dataset, run_path, callback=callback, **settings)


def value_of(run: Run, dataset: Dataset, factor: float = 1.0) -> float:
    """The deciding metric on the validation part, with ``factor`` times the run's weight."""
    model = load_model(run, "cpu")
    model.get_buffer("prior_weight").mul_(factor)
    model.eval()
    return evaluate(model, dataset.heldout("validation"), k=(100,))["ndcg@100"]


@pytest.mark.parametrize(("name", "seed", "is_less"), [("neumf", 2, False), ("mlp", 1, True)])
def test_no_larger_or_smaller_weight_is_better_for_validation(
    name: str,
    seed: int,
    is_less: bool,
    heldout_users: Dataset,
    everything: Dataset,
    tmp_path: Path,
) -> None:
    """A larger or smaller weight is no better, and a run repeated on all data keeps the chosen
    weight."""
    run = trained(name, heldout_users, tmp_path / "run", seed)
    (summary,) = events(run, "summary")
    assert (summary["fold_in"]["prior_weight"] < 1.0) == is_less
    assert (
        summary["fold_in"]["prior_weight"]
        == load_model(run, "cpu").get_buffer("prior_weight").item()
    )
    assert summary["best_value"] == pytest.approx(value_of(run, heldout_users), abs=1e-6)
    for factor in (0.3, 1 / 0.3):
        assert value_of(run, heldout_users, factor) <= summary["best_value"] + 1e-6
    again = trained_again(rerun_request(run), everything, tmp_path / "again")
    assert (
        load_model(again, "cpu").get_buffer("prior_weight").item()
        == summary["fold_in"]["prior_weight"]
    )


def test_a_better_prior_weight_than_in_training_is_saved(
    heldout_users: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The value of the better weight becomes the run's, in the log too; the best epoch stays."""
    monkeypatch.setattr(GMFConfig, "resolved_prior_weight", 0.1)
    out = StringIO()
    with TrainingDisplay(Console(file=out, width=200), TrainingConfig()) as display:
        run = trained("gmf", heldout_users, tmp_path / "run", callback=display)
    (summary,) = events(run, "summary")
    weight = summary["fold_in"]["prior_weight"]
    assert f"new users   prior_weight {weight:g}, by the validation part, which" in out.getvalue()
    assert weight > 0.1
    *of_epochs, chosen = [
        event["evaluation"]["metrics"]["ndcg@100"]["value"]
        for event in events(run, "evaluation")
        if event["evaluation"]["split"] == "validation"
    ]
    assert summary["best_value"] == chosen > max(of_epochs)
    assert run.open_weights().note["epoch"] == summary["best_epoch"]


def test_without_new_users_the_prior_weight_stays_the_one_in_training(
    dataset: Dataset, tmp_path: Path
) -> None:
    run = run_of("gmf", dataset, tmp_path / "run", epochs=1)
    assert events(run, "summary")[0]["fold_in"] == {}
    assert load_model(run, "cpu").get_buffer("prior_weight").item() == 1.0


def test_a_given_prior_weight_is_kept(
    heldout_users: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONFIGS, "neumf", NeuMFConfig(factors=4, layers=(8, 4), prior_weight=2.5))
    run = run_of("neumf", heldout_users, tmp_path / "run", epochs=1)
    assert events(run, "summary")[0]["fold_in"] == {}
    assert load_model(run, "cpu").get_buffer("prior_weight").item() == 2.5


def test_users_without_a_history_choose_nothing(tmp_path: Path) -> None:
    """New users of a later time have no history, so no prior would change their lists."""
    table = pa.table(
        {
            "user_id": [user for user in range(40) for _ in range(5)],
            "item_id": [(7 * user + 3 * n) % 11 for user in range(40) for n in range(5)],
            "timestamp": [5 * user + n for user in range(40) for n in range(5)],
        }
    )
    later = prepare(table, tmp_path / "later", PrepareConfig(protocol="temporal"))
    heldout = later.heldout("validation")
    is_new = heldout.user_index >= later.manifest.num_train_users
    assert is_new.any()
    run = run_of("neumf", later, tmp_path / "run", epochs=1)
    assert events(run, "summary")[0]["fold_in"] == {}
