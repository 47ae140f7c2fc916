"""Weights of interactions in the models that learn from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import foretaste
from foretaste.data import Dataset, prepare
from foretaste.errors import SettingError
from foretaste.export.program import ListProgram
from foretaste.models.base import ClosedFormModel
from foretaste.models.ials.model import IALS
from foretaste.models.linear.config import EaseConfig
from foretaste.models.linear.ease import Ease
from foretaste.models.popularity.config import PopularityConfig
from foretaste.models.popularity.model import Popularity
from foretaste.models.registry import MODEL_NAMES, build_model, config_class
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import Run, load_model
from foretaste.training import Callback, TrainingConfig, TrainingStart, train
from tests.messages import raises, says
from tests.models.linear.tables import neighbor_weights
from tests.ops.cases import histories_of

NUM_USERS, NUM_ITEMS = 60, 12
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ease": ("ease", {"user_power": 0.3}),
    "sparse ease": ("ease", {"neighbors": 5}),
    "itemknn": ("itemknn", {}),
    "rp3beta": ("rp3beta", {}),
    "rp3beta by source": ("rp3beta", {"cut": "source", "alpha": 1.0}),
    "ials": ("ials", {"factors": 4}),
}
"""Every model that takes weights, and each of its ways to count pairs."""


@pytest.fixture
def histories(rng: np.random.Generator) -> HistoryTensors:
    """Histories with most pairs of users and items, and weights from 0.02 to 50."""
    matrix = rng.random((NUM_USERS, NUM_ITEMS)) < 0.5
    matrix[:, 0] |= ~matrix.any(1)
    rows = [set(np.flatnonzero(row).tolist()) for row in matrix]
    weight = torch.from_numpy(rng.lognormal(0, 1.3, matrix.sum()).astype(np.float32))
    return replace(histories_of(rows, NUM_ITEMS), weight=weight / weight.mean())


def fitted(case: str, histories: HistoryTensors) -> dict[str, Tensor]:
    name, settings = CASES[case]
    model = build_model(name, config_class(name)(**settings), len(histories), NUM_ITEMS)
    if isinstance(model, ClosedFormModel):
        model.fit(histories, lambda *_: None)
    else:
        assert isinstance(model, IALS)
        model.count_items(histories)
        model.reset_parameters(1)
        batch = model.make_batches(histories)
        for _ in range(3):
            model.sweep(batch)
    return model.state_dict()


@pytest.mark.parametrize("case", CASES)
def test_weights_of_one_change_no_bit(case: str, histories: HistoryTensors) -> None:
    ones = torch.ones(histories.item_index.numel())
    plain = fitted(case, replace(histories, weight=None))
    with_ones = fitted(case, replace(histories, weight=ones))
    weighted = fitted(case, histories)
    assert all(torch.equal(plain[name], with_ones[name]) for name in plain)
    assert not all(torch.equal(plain[name], weighted[name]) for name in plain)


def dense(histories: HistoryTensors) -> NDArray[Any]:
    return histories.to_dense().double().numpy()


def weights_between(state: Mapping[str, Tensor]) -> NDArray[Any]:
    """The weight of each item towards another in a model of neighbours."""
    found, first = np.zeros((NUM_ITEMS, NUM_ITEMS)), state["first_target_I"].tolist()
    for item in range(NUM_ITEMS):
        entries = slice(first[item], first[item + 1])
        found[item, state["target_M"][entries]] = state["weight_M"][entries]
    return found


def gram(histories: HistoryTensors, power: float) -> NDArray[Any]:
    """``X'VX`` for X the weights of interactions and V the users' weights by their number of
    items."""
    entries, length_U = dense(histories), histories.lengths().double().numpy()
    weight_U = length_U**-power
    weight_U *= length_U.sum() / (length_U * weight_U).sum()
    return entries.T @ (weight_U[:, None] * entries)


def test_popularity_is_the_sum_of_weights_for_everyone(histories: HistoryTensors) -> None:
    model = Popularity(PopularityConfig(), NUM_USERS, NUM_ITEMS)
    model.fit(histories, lambda *_: None)
    entries = dense(histories)
    nobody = histories_of([set(), {0}], NUM_ITEMS)
    scores = model.score_catalogue(model.fold_in(nobody)).numpy()
    np.testing.assert_allclose(scores, [entries.sum(0)] * 2, rtol=1e-6)
    inputs = torch.zeros(1, NUM_ITEMS), None
    np.testing.assert_array_equal(model.scorer(known_users=False)(*inputs)[0], scores[1])
    found = ListProgram(model, NUM_ITEMS)(torch.tensor([0]), torch.tensor([0, 1]))[1]
    np.testing.assert_array_equal(found[0], -np.sort(-scores[0]))


def test_weights_of_popularity_are_found_in_files_that_have_some(
    boards: dict[str, Dataset], tmp_path: Path
) -> None:
    """A blend's weights are found too; older files have the counts alone."""
    quiet: dict[str, Any] = {"device": "cpu", "callback": Callback()}
    runs = [
        train(name, boards["plays"], run=tmp_path / name, **quiet)
        for name in ("popularity", "ease")
    ]
    blend = foretaste.blend(runs, weights=(1.0, 0.0), run=tmp_path / "blend", **quiet)
    weighted = load_model(runs[0], "cpu")
    assert isinstance(weighted, Popularity)
    assert torch.equal(weighted.popularity(), load_model(blend, "cpu").members[0].popularity())
    before = Popularity(PopularityConfig(), weighted.num_users, weighted.num_items)
    before.load_state_dict({"item_count_I": weighted.item_count_I})
    assert torch.equal(before.popularity(), weighted.item_count_I)
    assert not torch.equal(before.popularity(), weighted.popularity())


def test_ease_solves_for_the_weighted_gram_matrix(histories: HistoryTensors) -> None:
    gram_II = gram(histories, 0.3)
    inverse_II = np.linalg.inv(gram_II + np.diag(200.0 + np.diag(gram_II)))
    expected_II = -inverse_II / np.diag(inverse_II)
    np.fill_diagonal(expected_II, 0.0)
    found_II = fitted("ease", histories)["weight_II"].numpy()
    np.testing.assert_allclose(found_II, expected_II, atol=2e-4)
    config = EaseConfig(l2=200.0, dropout=0.5, user_power=0.3)
    few_II = neighbor_weights(Ease(config, NUM_USERS, NUM_ITEMS), histories, NUM_ITEMS - 1)
    np.testing.assert_allclose(few_II, expected_II, atol=2e-4)


def test_itemknn_is_the_cosine_of_weights(histories: HistoryTensors) -> None:
    gram_II = gram(histories, 0.5)
    length_I = np.sqrt(np.diag(gram_II))
    expected_II = gram_II / (np.outer(length_I, length_I) + 10.0)
    np.fill_diagonal(expected_II, 0.0)
    np.testing.assert_allclose(
        weights_between(fitted("itemknn", histories)), expected_II, atol=2e-4
    )


def test_rp3beta_walks_by_weights(histories: HistoryTensors) -> None:
    entries = dense(histories)
    to_user, to_item = entries / entries.sum(0), entries / entries.sum(1, keepdims=True)
    expected_II = (to_user**0.6).T @ to_item**0.6 / entries.sum(0) ** 0.4
    np.fill_diagonal(expected_II, 0.0)
    np.testing.assert_allclose(
        weights_between(fitted("rp3beta", histories)), expected_II, rtol=1e-4, atol=1e-7
    )


def test_histories_keep_weights_with_their_items(histories: HistoryTensors) -> None:
    whole = dense(histories)
    rows = torch.tensor([5, 2, 5])
    assert np.array_equal(dense(histories[3:9]), whole[3:9])
    assert np.array_equal(dense(histories.rows(rows)), whole[rows])
    assert np.array_equal(dense(histories.transposed()), whole.T)
    np.testing.assert_allclose(histories.total_weights(), whole.sum(1), rtol=1e-6)


def board(path: Path, **settings: Any) -> Dataset:
    rng = np.random.default_rng(5)
    pairs = [(u, i) for u in range(30) for i in rng.choice(16, 6, replace=False).tolist()]
    users, items = zip(*pairs, strict=True)
    plays = rng.integers(1, 50, len(users))
    columns = {"user_id": users, "item_id": items, "plays": plays, "ones": np.ones(len(users))}
    columns["timestamp"] = np.arange(len(users))
    return prepare(pa.table(columns), path, protocol="none", **settings)


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """Datasets without weights, with weights of one, and with other weights."""
    root = tmp_path_factory.mktemp("boards")
    return {
        "none": board(root / "none"),
        "ones": board(root / "ones", weight_column="ones"),
        "plays": board(root / "plays", weight_column="plays", weight_scale="log"),
    }


class Starts(Callback):
    def __init__(self) -> None:
        self.lines: list[str | None] = []

    def started(self, start: TrainingStart) -> None:
        self.lines.append(start.weights)


QUICK: dict[str, dict[str, Any]] = {"ials": {"factors": 4}}


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_a_training_takes_weights_or_says_that_it_does_not(
    name: str, boards: dict[str, Dataset], tmp_path: Path
) -> None:
    """Weights of one give the same files as no weights; other weights change only models that take
    them."""
    kind, starts = config_class(name), Starts()
    config = TrainingConfig(device="cpu", epochs=2) if kind.has_epochs else TrainingConfig()

    def weights_of(dataset: str, **settings: Any) -> dict[str, Tensor]:
        place = tmp_path / f"run-{dataset}-{len(starts.lines)}"
        settings = QUICK.get(name, {}) | settings
        run = train(name, boards[dataset], run=place, config=config, callback=starts, **settings)
        return Run.open(run.path).load_weights()

    def are_alike(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
        alike = all(torch.equal(one[key], other[key]) for key in one.keys() & other.keys())
        return alike and one.keys() == other.keys()

    plain, ones, plays = (weights_of(dataset) for dataset in boards)
    assert are_alike(plain, ones)
    assert are_alike(plain, plays) != kind().takes_weights
    assert starts.lines[0] is None
    if kind().takes_weights:
        assert starts.lines[2] is not None
        assert "the mean" in starts.lines[2]
    if hasattr(kind, "ignore_weights"):
        assert are_alike(plain, weights_of("plays", ignore_weights=True))
    if name != "popularity":
        says(starts.lines[-1], name)


def test_a_blend_says_that_its_runs_have_taken_weights(
    boards: dict[str, Dataset], tmp_path: Path
) -> None:
    dataset, starts = boards["plays"], Starts()
    runs = [train(name, dataset, run=tmp_path / name) for name in ("popularity", "ease")]
    foretaste.blend(runs, weights=(0.5, 0.5), run=tmp_path / "blend", callback=starts)
    says(*starts.lines)


def test_fit_finds_the_epoch_with_weights_too(boards: dict[str, Dataset], tmp_path: Path) -> None:
    dataset = boards["plays"]
    settings: dict[str, Any] = {"factors": 4, "device": "cpu", "callback": Callback()}
    weighted = foretaste.fit("ials", dataset, **settings)
    plain = foretaste.fit("ials", dataset, ignore_weights=True, **settings)
    assert not torch.equal(weighted.model.item_vectors(), plain.model.item_vectors())
    table = pa.table({"user_id": [1, 1, 1, 2], "item_id": [1, 2, 3, 3], "n": [1.0, 2.0, 3.0, 4.0]})
    split = prepare(
        table, tmp_path / "split", protocol="leave-one-out", validation="none", weight_column="n"
    )
    with raises(SettingError, "split", "none", "ignore_weights=True"):
        foretaste.fit("ials", split, **settings)
