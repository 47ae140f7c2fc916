"""Refitting known users from their histories keeps what their trained rows knew."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretaste.data import Dataset, GenerateConfig, PrepareConfig, generate, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.models.neumf.config import GMFConfig, MLPConfig, NeuMFConfig
from foretaste.runs import load_model
from foretaste.training import TrainingConfig, train

CONFIGS = {
    "neumf": NeuMFConfig(factors=16, layers=(64, 32, 16)),
    "gmf": GMFConfig(factors=16),
    "mlp": MLPConfig(layers=(64, 32, 16)),
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    shape = GenerateConfig(num_users=1000, num_items=400, num_interactions=25_000)
    directory = tmp_path_factory.mktemp("generated") / "dataset"
    return prepare(generate(shape).table, directory, PrepareConfig(protocol="leave-one-out"))


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_fold_in_keeps_nine_tenths_of_the_trained_rows_ndcg(
    name: str, dataset: Dataset, tmp_path: Path
) -> None:
    # of six seeds the MLP kept .86 to .93 of its NDCG@10, NeuMF .95 to .98
    config = TrainingConfig(epochs=20, learning_rate=0.005, patience=0, seed=4, device="cpu")
    run = train(
        name,
        dataset,
        model_config=CONFIGS[name],
        config=config,
        run_path=tmp_path / "run",
    )
    model, heldout = load_model(run, "cpu"), dataset.heldout("test")
    trained, folded = (
        evaluate(
            model,
            heldout,
            num_train_users=num_known,
            protocol=dataset.manifest.protocol,
            k=(10, 100),
            seed=0,
        )
        for num_known in (dataset.manifest.num_train_users, 0)
    )
    for metric in ("ndcg@10", "ndcg@100"):
        assert folded[metric] >= 0.9 * trained[metric]
