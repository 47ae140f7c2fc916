"""The contract tests of a model, for models of other packages too.

::

    from foretaste.testing import ModelContract, Recipe

    class TestMine(ModelContract):
        recipes = [Recipe(model="mine", model_config=MineConfig(factors=2))]

They need pytest. With ``pytest.register_assert_rewrite("foretaste.testing")`` in a ``conftest.py``,
failing assertions show their values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save
from torch import Tensor

from foretaste.data import Dataset, Histories, PrepareConfig, prepare
from foretaste.errors import UnsupportedError
from foretaste.evaluation.ranking import to_device
from foretaste.measure.evaluate_runs import evaluate_run
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.config import ModelConfig
from foretaste.models.registry import config_class
from foretaste.models.scorer import ScorerInputs
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import Run, load_model
from foretaste.training import TrainingConfig, TrainRequest, train_run

__all__ = ["ModelContract", "Recipe"]

NUM_USERS, NUM_ITEMS = 40, 24
FEWEST_SEEN, MOST_SEEN = 5, 10
"""Items of the right parity that a user has; the model has to find the others of twelve."""

# Tolerance between scores in a batch and one by one. fp32 products differ in the last bits with the
# batch size, and NeuMF's fold-in takes forty steps from there.
TOLERANCE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings by which a model is trained in these tests: small, and enough to learn the board."""

    model: str
    """Name of the model."""

    model_config: ModelConfig | None = None
    """Settings of the model; its defaults if None."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the training."""

    defaults: ModelConfig | None = None
    """Settings for the test of the defaults, if they are not the model's defaults."""

    is_personalized: bool = True
    """False for a model that shows all users the same items."""

    @property
    def is_seeded(self) -> bool:
        """True if another seed gives other weights."""
        return config_class(self.model).has_epochs

    def train(self, dataset: Dataset, path: Path, *, seed: int = 1) -> Run:
        """Train the model into a new run at ``path``."""
        config = TrainingConfig(**self.settings, seed=seed, device="cpu")
        request = TrainRequest.of(
            self.model, dataset, model_config=self.model_config, config=config, run=path
        )
        return train_run(request)

    def train_with_defaults(self, dataset: Dataset, path: Path) -> Run:
        """Train the model with all settings at their defaults."""
        request = TrainRequest.of(
            self.model, dataset, model_config=self.defaults, device="cpu", run=path
        )
        return train_run(request)


@dataclass(frozen=True)
class Trained:
    """A model that was trained, saved in a run and loaded again."""

    recipe: Recipe
    dataset: Dataset
    run: Run

    @cached_property
    def model(self) -> RecommenderModel:
        return load_model(self.run, "cpu")

    @cached_property
    def histories(self) -> HistoryTensors:
        users = range(self.dataset.manifest.num_train_users)
        histories = self.dataset.train_part(users, order=self.model.config.uses_order)
        return to_device(histories, torch.device("cpu"))

    @cached_property
    def known(self) -> UserState:
        return self.model.user_state(torch.arange(NUM_USERS), self.histories)


def board() -> list[set[int]]:
    """The items of each user: even users have even items, odd users odd ones; some are left out,
    so histories have different lengths."""
    rng = np.random.default_rng(7)
    colours = [np.arange(parity, NUM_ITEMS, 2) for parity in (0, 1)]
    sizes = range(FEWEST_SEEN, MOST_SEEN + 1)
    return [
        set(rng.choice(colours[user % 2], sizes[user // 2 % len(sizes)], replace=False).tolist())
        for user in range(NUM_USERS)
    ]


def make_board(directory: Path) -> Dataset:
    """The prepared board; all pairs train, and indexes are the numbers on the board."""
    return prepare(board_table(), directory, PrepareConfig(protocol="none"))


def make_tiny_board(directory: Path) -> Dataset:
    """The prepared board with two items of each user held out, for validation and for test."""
    return prepare(board_table(), directory, PrepareConfig(protocol="leave-one-out"))


def make_board_with_new_items(directory: Path) -> Dataset:
    """The prepared board, colours as features, with an even and an odd item that nobody has."""
    colours = {"item_id": range(NUM_ITEMS + 2), "colour": [0, 1] * (NUM_ITEMS // 2 + 1)}
    config = PrepareConfig(protocol="none", features=("colour",))
    return prepare(board_table(), directory, config, items=pa.table(colours))


def board_table() -> pa.Table:
    """The board as pairs with random times."""
    pairs = [(user, item) for user, row in enumerate(board()) for item in sorted(row)]
    users, items = zip(*pairs, strict=True)
    times = np.random.default_rng(11).random(len(pairs))
    return pa.table({"user_id": users, "item_id": items, "timestamp": times})


class ModelContract:
    """Tests that every model must pass; a subclass sets the ``recipes``."""

    recipes: Sequence[Recipe] = ()

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run each test for each recipe."""
        names = [recipe.model for recipe in self.recipes]
        metafunc.parametrize("recipe", self.recipes, ids=names, scope="class")

    @pytest.fixture(scope="class")
    @classmethod
    def dataset(cls, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
        return make_board(tmp_path_factory.mktemp("board") / "dataset")

    @pytest.fixture(scope="class")
    @classmethod
    def trained(
        cls, recipe: Recipe, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
    ) -> Trained:
        path = tmp_path_factory.mktemp("runs") / "run"
        recipe.train(dataset, path)
        return Trained(recipe, dataset, Run.open(path))

    def test_it_is_registered_under_its_name(self, trained: Trained) -> None:
        name = trained.recipe.model
        assert trained.model.name == name
        assert trained.model.num_users == NUM_USERS
        assert trained.model.num_items == NUM_ITEMS
        assert isinstance(trained.model.config, config_class(name))

    def test_it_learns_the_board(self, trained: Trained) -> None:
        if not trained.recipe.is_personalized:
            pytest.skip("it knows no tastes")
        assert found_on_board(trained.model.score_catalogue(trained.known)) >= 0.98

    def test_it_learns_the_board_for_new_users(self, trained: Trained) -> None:
        if not trained.recipe.is_personalized:
            pytest.skip("it knows no tastes")
        assert found_on_board(folded_in(trained.model, trained.histories)) >= 0.98

    def test_its_defaults_learn_a_tiny_board(self, trained: Trained, tmp_path: Path) -> None:
        recipe = trained.recipe
        if not recipe.is_personalized:
            pytest.skip("it knows no tastes")
        data = make_tiny_board(tmp_path / "tiny")
        run = recipe.train_with_defaults(data, tmp_path / "run")
        found = evaluate_run(run, data, split="validation", device="cpu", k=[4])
        # A random list has 4 of the 18 items that a user can be shown; popularity finds 0.2 here.
        assert found["hr@4"] > 0.5

    def test_it_lists_new_items_by_their_features(self, trained: Trained, tmp_path: Path) -> None:
        if not hasattr(trained.model, "take_features"):
            pytest.skip("it takes no features")
        data = make_board_with_new_items(tmp_path / "new")
        run = trained.recipe.train(data, tmp_path / "run")
        found = Trained(trained.recipe, data, Run.open(run.path))
        assert found.model.num_items == run.num_items == NUM_ITEMS + 2
        scores_BI = found.model.score_catalogue(found.known)
        even_B, odd_B = scores_BI[:, NUM_ITEMS], scores_BI[:, NUM_ITEMS + 1]
        assert (even_B[::2] > odd_B[::2]).all()
        assert (even_B[1::2] < odd_B[1::2]).all()

    def test_scores_are_finite_float32(self, trained: Trained) -> None:
        scores_BI = trained.model.score_catalogue(trained.known)
        assert scores_BI.shape == (NUM_USERS, NUM_ITEMS)
        assert scores_BI.dtype == torch.float32
        assert scores_BI.isfinite().all()
        assert not scores_BI.requires_grad

    def test_scores_may_be_written_over(self, trained: Trained) -> None:
        scores_BI = trained.model.score_catalogue(trained.known)
        expected_BI = scores_BI.clone()
        scores_BI.fill_(-float("inf"))
        assert torch.equal(trained.model.score_catalogue(trained.known), expected_BI)

    def test_candidates_score_as_in_the_catalogue(self, trained: Trained) -> None:
        generator = torch.Generator().manual_seed(20260101)
        scores_BI = trained.model.score_catalogue(trained.known)
        for num_candidates in (1, 7, 3 * NUM_ITEMS):
            item_index_BK = torch.randint(
                NUM_ITEMS, (NUM_USERS, num_candidates), generator=generator
            )
            torch.testing.assert_close(
                trained.model.score_candidates(trained.known, item_index_BK),
                scores_BI.gather(1, item_index_BK),
                rtol=1e-4,
                atol=1e-4,
            )

    def test_nobody_has_no_scores(self, trained: Trained) -> None:
        nobody = torch.zeros(0, dtype=torch.int64)
        for state in (
            trained.model.user_state(nobody, trained.histories[:0]),
            trained.model.fold_in(trained.histories[:0]),
            trained.known[:0],
        ):
            assert len(state) == 0
            assert trained.model.score_catalogue(state).shape == (0, NUM_ITEMS)
            items = torch.zeros(0, 3, dtype=torch.int64)
            assert trained.model.score_candidates(state, items).shape == (0, 3)

    def test_a_batch_agrees_with_one_by_one(self, trained: Trained) -> None:
        model, histories = trained.model, trained.histories
        catalogue_BI = torch.arange(NUM_ITEMS).expand(NUM_USERS, -1)
        users = torch.arange(NUM_USERS)

        def known(one: slice) -> UserState:
            return model.user_state(users[one], histories[one])

        def new(one: slice) -> UserState:
            return model.fold_in(histories[one])

        for alone in (known, new):
            state = alone(slice(0, NUM_USERS))
            scores_BI = model.score_catalogue(state)
            candidates_BI = model.score_candidates(state, catalogue_BI)
            for user in range(0, NUM_USERS, 3):
                one = slice(user, user + 1)
                by_itself = alone(one)
                close(model.score_catalogue(by_itself), scores_BI[one])
                close(model.score_catalogue(state[one]), scores_BI[one])
                close(model.score_candidates(by_itself, catalogue_BI[one]), candidates_BI[one])

    def test_the_order_of_users_does_not_matter(self, trained: Trained) -> None:
        generator = torch.Generator().manual_seed(20260101)
        model, order = trained.model, torch.randperm(NUM_USERS, generator=generator)
        mixed = trained.histories.rows(order)
        known_BI = model.score_catalogue(trained.known)
        close(model.score_catalogue(model.user_state(order, mixed)), known_BI[order])
        folded_BI = folded_in(model, trained.histories)
        close(folded_in(model, mixed), folded_BI[order])

    def test_later_items_are_read_unless_it_keeps_rows(self, trained: Trained) -> None:
        model, users, dataset = trained.model, torch.arange(NUM_USERS), trained.dataset
        train = dataset.train_part(range(NUM_USERS), order=model.config.uses_order)
        # Every second user takes an item of the other colour.
        grown = np.arange(0, NUM_USERS, 2)
        items, first = 2 * (grown % 5) + 1, np.zeros(len(grown), dtype=np.int32)
        bounds: dict[str, Any] = {"num_users": NUM_USERS, "num_items": NUM_ITEMS}
        later = Histories.from_pairs(grown, items, position=first, **bounds)
        histories = to_device(train.followed_by(later), torch.device("cpu"))
        known_BI = model.score_catalogue(trained.known)
        scores_BI = model.score_catalogue(model.user_state(users, histories, users % 2 == 0))
        close(scores_BI[1::2], known_BI[1::2])
        expected_BI = known_BI if model.keeps_user_rows else folded_in(model, histories)
        close(scores_BI[::2], expected_BI[::2])

    def test_the_order_is_read_by_a_model_that_uses_it_alone(self, trained: Trained) -> None:
        model, histories = trained.model, trained.histories
        expected_BI, places = folded_in(model, histories), torch.arange(len(histories.item_index))
        changed_BI = folded_in(model, replace(histories, position=places.flip(0).int()))
        if not model.config.uses_order:
            assert torch.equal(changed_BI, expected_BI)
            return
        assert not torch.allclose(changed_BI, expected_BI)
        # Places may have gaps: items that training never saw are no items between others.
        assert histories.position is not None
        gaps_BI = folded_in(model, replace(histories, position=3 * histories.position + 5))
        assert torch.equal(gaps_BI, expected_BI)

    def test_users_without_history_are_shown_what_is_popular(self, trained: Trained) -> None:
        model = trained.model
        expected_I = torch.bincount(trained.histories.item_index, minlength=NUM_ITEMS).float()
        assert torch.equal(model.item_count_I, expected_I)
        histories = histories_of([set(), {0, 2}, set()])
        item_index_BK = torch.tensor([[5, 0, 9]]).expand(3, -1)
        for state in (model.fold_in(histories), model.user_state(torch.arange(3), histories)):
            assert state.has_history_B.tolist() == [False, True, False]
            scores_BI = model.score_catalogue(state)
            scores_BK = model.score_candidates(state, item_index_BK)
            for user in (0, 2):
                assert torch.equal(scores_BI[user], expected_I)
                assert torch.equal(scores_BK[user], expected_I[item_index_BK[user]])
        alone = model.fold_in(histories_of([set()]))
        assert torch.equal(model.score_catalogue(alone), expected_I[None])

    def test_a_user_with_every_item_can_be_scored(self, trained: Trained) -> None:
        state = trained.model.fold_in(histories_of([set(range(NUM_ITEMS))]))
        assert trained.model.score_catalogue(state).isfinite().all()

    def test_a_loaded_model_scores_the_same(self, trained: Trained) -> None:
        again = load_model(Run.open(trained.run.path), "cpu")
        scores_BI = again.score_catalogue(
            again.user_state(torch.arange(NUM_USERS), trained.histories)
        )
        assert torch.equal(scores_BI, trained.model.score_catalogue(trained.known))
        assert not again.training

    def test_the_same_seed_gives_the_same_bytes(self, trained: Trained, tmp_path: Path) -> None:
        again = trained.recipe.train(trained.dataset, tmp_path / "run")
        assert weights_of(again) == weights_of(trained.run)

    def test_another_seed_gives_other_weights(self, trained: Trained, tmp_path: Path) -> None:
        other = trained.recipe.train(trained.dataset, tmp_path / "run", seed=2)
        is_seeded = trained.recipe.is_seeded
        assert (weights_of(other) != weights_of(trained.run)) == is_seeded

    def test_its_scorer_gives_its_scores(self, trained: Trained) -> None:
        model = trained.model
        of_users = model.scores_known_users_only
        try:
            scorer = model.scorer(known_users=of_users)
        except UnsupportedError:
            pytest.skip("it has no scorer, so it cannot be exported")
        users = torch.arange(NUM_USERS)
        state = trained.known if of_users else model.fold_in(trained.histories)
        with torch.no_grad():
            scores_BI = scorer.scores(inputs_of(trained.histories, users if of_users else None))
        # Without the mean of each user: scores are comparable within a user only.
        expected_BI = model.score_catalogue(state)
        close(*(one - one.mean(1, keepdim=True) for one in (scores_BI, expected_BI)))

    def test_similar_items_are_of_the_same_colour(self, trained: Trained) -> None:
        items = torch.arange(NUM_ITEMS)
        try:
            similarity_II = trained.model.similarity(items)
        except UnsupportedError:
            pytest.skip("it compares no items")
        assert not similarity_II.isnan().any()
        assert similarity_II.shape == (NUM_ITEMS, NUM_ITEMS)
        assert not similarity_II.requires_grad
        same_II = items[:, None] % 2 == items % 2
        # An item without a relation has -inf.
        others_II = similarity_II.clamp(min=-1).masked_fill(torch.eye(NUM_ITEMS).bool(), torch.nan)
        assert others_II[same_II].nanmean() > others_II[~same_II].nanmean() + 0.01
        close(trained.model.similarity(items[3:5]), similarity_II[3:5])
        few = torch.tensor([7, 2])
        close(trained.model.similarity(items[3:6], few), similarity_II[3:6][:, few])


def folded_in(model: RecommenderModel, histories: HistoryTensors) -> Tensor:
    return model.score_catalogue(model.fold_in(histories))


def inputs_of(histories: HistoryTensors, user_index_B: Tensor | None) -> ScorerInputs:
    """Histories as a program gets them, in order if they have one."""
    items = histories.item_index.long()
    if histories.position is not None:
        items = items[histories.oldest_first()]
    return ScorerInputs(items, histories.lengths(), user_index_B, histories.num_items)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def histories_of(rows: Sequence[set[int]]) -> HistoryTensors:
    """Histories of the given items, in the order of their numbers."""
    offsets = np.cumsum([0, *map(len, rows)])
    items = np.array([item for row in rows for item in sorted(row)], dtype=np.int32)
    return HistoryTensors.from_numpy(offsets, items, NUM_ITEMS, "cpu", np.arange(len(items)))


def weights_of(run: Run) -> bytes:
    return save(load_file(run.path / "best.safetensors"))


def found_on_board(scores_BI: Tensor) -> float:
    """The share of pairs in which a left-out item of the right parity scores above a wrong item."""
    shares = []
    for user, seen in enumerate(board()):
        left_out = [item for item in range(user % 2, NUM_ITEMS, 2) if item not in seen]
        wrong = list(range(1 - user % 2, NUM_ITEMS, 2))
        better = scores_BI[user, left_out][:, None] > scores_BI[user, wrong]
        shares.append(better.double().mean().item())
    return sum(shares) / len(shares)
