"""Blends: runs made of runs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import foretaste
from foretaste.data import Dataset
from foretaste.errors import SettingError, UnsupportedError
from foretaste.evaluation.config import EvaluationConfig
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import RecommenderModel, UserState
from foretaste.models.neumf.model import GMF
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import Run, load_model
from foretaste.training import Callback, blend_weights, train
from foretaste.training.blending import chosen_weights
from tests.messages import Named, raises
from tests.training.trainings import run_of, weights_of

MEMBERS = ("ease", "gmf", "recvae", "popularity")
WEIGHTS = (0.5, 0.2, 0.3, 0.0)


@pytest.fixture(scope="module")
def members(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    root = tmp_path_factory.mktemp("members")
    return [run_of(name, dataset, root / name, callback=Callback()) for name in MEMBERS]


@pytest.fixture(scope="module")
def blended(members: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("blends") / "run"
    return foretaste.blend(members, weights=WEIGHTS, run=path, callback=Callback())


def states(model: RecommenderModel, dataset: Dataset) -> list[tuple[UserState, HistoryTensors]]:
    train = dataset.train
    histories = HistoryTensors.from_numpy(train.offsets, train.item_index, train.num_items, "cpu")
    known = model.user_state(torch.arange(len(histories)), histories)
    return [(known, histories), (model.fold_in(histories), histories)]


def test_a_blend_updates_later_items_like_each_model_alone(
    dataset: Dataset, tmp_path: Path
) -> None:
    runs = [run_of(name, dataset, tmp_path / name, callback=Callback()) for name in ("gmf", "ials")]
    blend = load_model(foretaste.blend(runs, weights=(0.5, 0.5), run=tmp_path / "blend"), "cpu")
    assert blend.keeps_user_rows
    histories = to_device(dataset.train, torch.device("cpu"))
    users = torch.arange(len(histories))
    state = blend.user_state(users, histories, users % 2 == 0)
    gmf, ials = (load_model(run, "cpu") for run in runs)
    kept, solved = gmf.user_state(users, histories), ials.fold_in(histories)
    rows, trained = ials.user_state(users, histories), state.parts[4]
    assert isinstance(state.parts[0], UserState)
    assert isinstance(trained, UserState)
    for found, expected, every in ((state.parts[0], kept, users), (trained, solved, users[::2])):
        for one, other in zip(found.parts, expected.parts, strict=True):
            assert isinstance(one, torch.Tensor)
            assert isinstance(other, torch.Tensor)
            torch.testing.assert_close(one[every], other[every])
    assert torch.equal(trained.parts[0][1::2], rows.parts[0][1::2])  # type: ignore[index]


def test_reasons_weigh_the_order_like_the_models(dataset: Dataset, tmp_path: Path) -> None:
    names, weights = ("slist", "ease"), (0.6, 0.2)
    runs = [run_of(name, dataset, tmp_path / name, callback=Callback()) for name in names]
    blend = foretaste.blend(runs, weights=weights, run=tmp_path / "blend", callback=Callback())
    position = torch.tensor([4, 9, 2, 7], dtype=torch.int32)
    histories = HistoryTensors(
        torch.tensor([0, 3, 4]), torch.tensor([1, 3, 5, 2]).int(), 20, None, position
    )
    slist = load_model(runs[0], "cpu")
    places_back = torch.tensor([2.0, 1.0, 3.0, 1.0])
    decay_N = places_back**-slist.config.recency
    found_N = load_model(blend, "cpu").history_weights(histories)
    torch.testing.assert_close(found_N, 0.75 * decay_N + 0.25)
    sets = foretaste.blend(
        [runs[1], run_of("popularity", dataset, tmp_path / "popularity", callback=Callback())],
        weights=(0.5, 0.5), run=tmp_path / "sets", callback=Callback(),
    )  # fmt: skip
    assert load_model(sets, "cpu").history_weights(histories) is None


def test_scores_are_the_sum_of_standardised_scores(
    blended: Run, members: list[Run], dataset: Dataset, generator: torch.Generator
) -> None:
    model = load_model(blended, "cpu")
    found = states(model, dataset)
    expected = [torch.zeros(len(histories), model.num_items) for _, histories in found]
    for run, weight in zip(members, WEIGHTS, strict=True):
        member = load_model(run, "cpu")
        for total, (state, _) in zip(expected, states(member, dataset), strict=True):
            scores = member.score_catalogue(state)
            centred = scores - scores.mean(1, keepdim=True)
            total += weight * centred / centred.square().mean(1, keepdim=True).sqrt()
    for total, (state, histories) in zip(expected, found, strict=True):
        torch.testing.assert_close(model.score_catalogue(state), total, rtol=1e-4, atol=1e-4)
        items = torch.randint(model.num_items, (len(histories), 7), generator=generator)
        candidates = model.score_candidates(state[3:], items[3:])
        torch.testing.assert_close(candidates, total.gather(1, items)[3:], rtol=1e-4, atol=1e-4)


def test_statistics_of_some_users_at_a_time_equal_statistics_of_all(
    blended: Run, dataset: Dataset, limit: Callable[..., None]
) -> None:
    model = load_model(blended, "cpu")
    whole, _ = states(model, dataset)[1]
    limit(catalogue_scores=3 * model.num_items)
    parts, _ = states(model, dataset)[1]
    for one, other in zip(whole.parts, parts.parts, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other)


def test_a_blend_answers_without_its_runs(
    blended: Run, dataset: Dataset, members: list[Run], tmp_path: Path
) -> None:
    path = shutil.copytree(blended.path, tmp_path / "copy")
    recommender = foretaste.load(Run.open(path), device="cpu")
    known = recommender.recommend([blended.users.ids()[0]], k=3)
    new = recommender.recommend_for([blended.items.ids()[:2], []], k=3)
    assert [len(answer.items) for answer in (*known, *new)] == [3, 3, 3]
    assert recommender.similar_items(blended.items.ids()[:1], k=3)
    with raises(UnsupportedError, "blend"):
        recommender.item_vectors()
    found = foretaste.evaluate_run(blended, dataset, EvaluationConfig(), device="cpu")
    assert found["ndcg@10"] == pytest.approx(blended.metrics["ndcg@10"])


def test_similar_items_need_a_model_that_knows_some(
    members: list[Run], dataset: Dataset, tmp_path: Path
) -> None:
    other = train("popularity", dataset, run=tmp_path / "other", callback=Callback())
    run = foretaste.blend(
        [members[3], other], weights=[1, 1], run=tmp_path / "run", callback=Callback()
    )
    with raises(UnsupportedError):
        foretaste.load(run).similar_items(run.items.ids()[:1])
    unheard = foretaste.blend(
        [members[3], members[0]], weights=[1, 0], run=tmp_path / "ease", callback=Callback()
    )
    with raises(UnsupportedError):
        foretaste.load(unheard).similar_items(run.items.ids()[:1])


@pytest.mark.parametrize("name", ["gmf", "mlp"])
def test_new_people_are_fitted_as_by_the_run_alone(
    name: str, members: list[Run], dataset: Dataset, tmp_path: Path
) -> None:
    settings = {"negatives": 1, "epochs": 3, "learning_rate": 0.01, "run": tmp_path / name}
    alone = train(name, dataset, callback=Callback(), **settings)
    run = foretaste.blend(
        [alone, members[3]], weights=[1, 0], run=tmp_path / "run", callback=Callback()
    )
    histories = states(load_model(alone, "cpu"), dataset)[1][1]
    blended, member = load_model(run, "cpu"), load_model(alone, "cpu")
    scores = member.score_catalogue(member.fold_in(histories))
    deviation, mean = torch.std_mean(scores, dim=1, correction=0, keepdim=True)
    found = blended.score_catalogue(blended.fold_in(histories))
    torch.testing.assert_close(found, (scores - mean) / deviation, rtol=1e-3, atol=1e-3)


def test_weights_are_found_on_validation_and_are_the_same_again(
    members: list[Run], dataset: Dataset, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    weights = blend_weights(members[:3], progress=lambda *counts: told.append(counts))
    assert sum(weights) == pytest.approx(1.0, abs=1e-3)
    assert told == [(number, 45) for number in range(1, len(told) + 1)]
    runs = [
        foretaste.blend(members[:3], run=tmp_path / name, callback=Callback())
        for name in ("one", "other")
    ]
    assert weights_of(runs[0]) == weights_of(runs[1])
    recorded = runs[0].config.model_config["members"].values()
    assert tuple(member["weight"] for member in recorded) == weights
    config = EvaluationConfig(k=(10,))
    equal = foretaste.blend(
        members[:3], weights=[1, 1, 1], run=tmp_path / "equal", callback=Callback()
    )
    of_chosen, of_equal = (
        foretaste.evaluate_run(run, dataset, config, split="validation")["ndcg@10"]
        for run in (runs[0], equal)
    )
    assert of_chosen >= of_equal


@pytest.mark.parametrize("has_memory", [True, False])
def test_models_score_once_while_memory_lasts(
    has_memory: bool,
    members: list[Run],
    dataset: Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    num_users, user_state = [0], GMF.user_state

    def counted(self: GMF, user_index_B: torch.Tensor, *given: Any) -> UserState:
        num_users[0] += len(user_index_B)
        return user_state(self, user_index_B, *given)

    expected = blend_weights(members[:3])
    monkeypatch.setattr("foretaste.training.blending.SHARE_OF_MEMORY", 0.25 * has_memory)
    monkeypatch.setattr(GMF, "user_state", counted)
    assert blend_weights(members[:3]) == expected
    num_validated = int((dataset.heldout("validation").target.lengths() > 0).sum())
    assert (num_users[0] == num_validated) == has_memory


def test_weights_are_found_with_the_given_candidates_and_length(
    members: list[Run], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, tuple[int, ...]]] = []

    def recorded(*arguments: Any, candidates: str, k: tuple[int, ...], **settings: Any) -> Any:
        asked.append((candidates, k))
        return evaluate(*arguments, candidates=candidates, k=k, **settings)

    monkeypatch.setattr("foretaste.training.blending.evaluate", recorded)
    run = foretaste.blend(
        members[:2],
        select_by="hr@3",
        candidates="sampled-5",
        run=tmp_path / "run",
        callback=Callback(),
    )
    assert set(asked) == {("sampled-5", (3,))}
    assert run.config.asked["candidates"] == "sampled-5"


@pytest.mark.parametrize("best", [(0.35, 0.65), (1.0, 0.0), (0.2, 0.3, 0.5), (0.0, 0.7, 0.3)])
def test_the_search_comes_near_the_best_weights(best: tuple[float, ...]) -> None:
    def value_of(weights: tuple[float, ...]) -> float:
        return -sum((a - b) ** 2 for a, b in zip(weights, best, strict=True))

    found = chosen_weights(len(best), value_of)
    assert sum(found) == pytest.approx(1.0, abs=1e-3)
    assert found == pytest.approx(best, abs=0.06)


def test_shares_move_between_runs_whose_sum_alone_helps() -> None:
    """A share also moves to a run without one if raising a single share helps nothing."""

    def value_of(weights: tuple[float, ...]) -> float:
        first, second, third = weights
        return first - abs(second - 0.2) - 3 * abs(first + third - 0.8)

    assert chosen_weights(3, value_of) == pytest.approx((0.8, 0.2, 0.0), abs=0.06)


def test_weightings_are_few() -> None:
    tried: list[tuple[float, ...]] = []

    def value_of(weights: tuple[float, ...]) -> float:
        tried.append(weights)
        return float(len(tried))  # each is better than the one before

    chosen_weights(4, value_of)
    assert len(tried) == 60
    assert len(tried) == len(set(tried))


def test_runs_that_cannot_be_blended_are_refused(
    members: list[Run], blended: Run, everything: Dataset, tmp_path: Path
) -> None:
    other = train("ease", everything, run=tmp_path / "other", callback=Callback())
    more = train("popularity", everything, run=tmp_path / "more", callback=Callback())
    path = tmp_path / "run"
    first = members[0]
    cases: list[tuple[list[Any], dict[str, Any], Named]] = [
        ([first], {}, (1,)),
        ([first, first.path], {}, (first.path,)),
        ([first, blended], {}, (blended.path,)),
        ([first, other], {}, (other.path, first.path)),
        ([other, more], {}, (everything.path,)),
        (members[:2], {"candidates": "fixed"}, ("candidates", "fixed", "validation")),
        (members[:2], {"weights": [1, 1], "select_by": "hr@5"}, ("select_by", "hr@5")),
        (members[:2], {"weights": [1.0]}, (1, 2)),
        (members[:2], {"weights": [0, 0]}, ()),
    ]
    for runs, settings, named in cases:
        with raises(SettingError, *named):
            foretaste.blend(runs, run=path, callback=Callback(), **settings)
    assert not path.exists()
