"""Settings that are ``auto`` and chosen by fits on the validation part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from foretaste.data import Dataset, prepare
from foretaste.evaluation.evaluator import evaluate
from foretaste.models.config import ModelConfig
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.runs import Run, load_model
from foretaste.training import Callback, TrainingConfig, train
from foretaste.training import search as search_module
from foretaste.training.auto import resolve_sizes
from foretaste.training.request import TrainRequest, rerun_request
from foretaste.training.search import MOST_FITS, Fit, Part, Search, chosen_settings

from .trainings import numbers_of, trained_again, weights_of

SEARCHED = [name for name in MODEL_NAMES if config_class(name).has_candidates]
CPU = torch.device("cpu")


def found(
    name: str, dataset: Dataset, given: ModelConfig | None = None, **settings: Any
) -> dict[str, Any]:
    request = TrainRequest.of(name, dataset, model_config=given, config=TrainingConfig(**settings))
    return chosen_settings(request, dataset, CPU, lambda *_: None).record


def trained(name: str, dataset: Dataset, run: Path, **settings: Any) -> Run:
    if name == "ials":
        settings |= {"factors": 4, "epochs": 2}
    return train(name, dataset, device="cpu", run=run, callback=Callback(), **settings)


@pytest.fixture(scope="module", params=SEARCHED)
def run(
    request: pytest.FixtureRequest, heldout_users: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    return trained(request.param, heldout_users, tmp_path_factory.mktemp("searched") / "one")


def test_the_list_of_models_that_search() -> None:
    assert SEARCHED == ["ials", "ease", "slist", "itemknn", "rp3beta"]


@pytest.mark.parametrize("name", SEARCHED)
def test_the_chosen_are_no_worse_than_the_rule(name: str, heldout_users: Dataset) -> None:
    search = found(name, heldout_users)
    assert 2 <= search["fits"] <= MOST_FITS
    assert search["value"] >= search["value_by_rule"]
    assert (search["value"] > search["value_by_rule"]) == bool(search["settings"])
    again = found(name, heldout_users, config_class(name)(**search["settings"]))
    assert again.get("value_by_rule", search["value"]) == search["value"], "of these settings"


def test_the_run_has_what_was_chosen_and_is_equal_again(
    run: Run, heldout_users: Dataset, tmp_path: Path
) -> None:
    one, two = run, trained(run.config.model, heldout_users, tmp_path / "two")
    assert numbers_of(one) == numbers_of(two)
    assert weights_of(one) == weights_of(two)
    assert one.config.digest() == two.config.digest()
    search = Run.open(one.path).config.search
    assert one.config.model_config.items() >= search["settings"].items()
    assert one.config.resolved.items() >= search["settings"].items()
    assert all(one.config.asked[setting] == "auto" for setting in search["settings"])
    assert vars(load_model(one).config).items() >= search["settings"].items()
    assert one.log.summary is not None
    assert one.log.summary["search_s"] > 0


def test_the_settings_are_repeated_without_a_search(
    run: Run, heldout_users: Dataset, tmp_path: Path
) -> None:
    again = trained_again(rerun_request(run), heldout_users, tmp_path / "two")
    assert again.config.search == {}
    assert again.config.model_config == run.config.model_config
    if run.config.model != "ials":  # it keeps the epochs of the best trial
        assert weights_of(again) == weights_of(run)


@pytest.mark.parametrize("name", SEARCHED)
def test_without_a_search_the_rule_holds(
    name: str, heldout_users: Dataset, everything: Dataset, tmp_path: Path
) -> None:
    asked = config_class(name)()
    assert found(name, heldout_users, search=False) == found(name, everything) == {}
    run = trained(name, heldout_users, tmp_path / "run", search=False)
    assert run.config.search == {}
    by_rule = resolve_sizes(replace(asked, factors=4) if name == "ials" else asked, heldout_users)
    assert run.config.model_config == vars(by_rule)


@pytest.mark.parametrize(
    ("name", "setting", "value"),
    [
        ("ials", "regularization", 0.5),
        ("ease", "l2", 3.0),
        ("ease", "neighbors", 7),
        ("itemknn", "shrinkage", 77.0),
        ("rp3beta", "cut", "target"),
    ],
)
def test_given_settings_are_kept_in_a_search(
    name: str, setting: str, value: Any, heldout_users: Dataset, tmp_path: Path
) -> None:
    run = trained(name, heldout_users, tmp_path / "run", **{setting: value})
    assert run.config.model_config[setting] == value
    assert setting not in run.config.search["settings"]
    others = {"unobserved_weight": 0.1} if name == "ials" else {}
    others |= dict.fromkeys(("dropout", "user_power", "alpha", "beta"), 0.5)
    others |= {"l2": 9.0, "shrinkage": 9.0, "neighbors": 9, "cut": "source"}
    kind = config_class(name)
    names = kind.__dataclass_fields__
    whole = kind(**{one: others[one] for one in others if one in names} | {setting: value})
    assert found(name, heldout_users, whole) == {}, "nothing is left to choose"


def test_known_users_choose_too(dataset: Dataset) -> None:
    assert found("ials", dataset)["select_by"] == "ndcg@10"


@pytest.fixture
def half(heldout_users: Dataset, monkeypatch: pytest.MonkeyPatch) -> int:
    """Limit a search to half of the interactions; return that number."""
    half = heldout_users.manifest.num_interactions // 2
    monkeypatch.setattr(search_module, "MOST_INTERACTIONS", half)
    return half


def searching(dataset: Dataset, name: str) -> Search:
    return Search(TrainRequest.of(name, dataset), dataset, CPU, lambda *_: None)


@pytest.mark.parametrize("name", ["slist", "itemknn"])
def test_large_data_are_sampled(dataset: Dataset, half: int, name: str) -> None:
    """Users outside the sample have no row, and choose as new users."""
    search = searching(dataset, name)
    sample, whole = search.sample, search.all_data
    assert abs(sample.histories.item_index.numel() - half) < half / 4
    assert sample.share == sample.histories.item_index.numel() / dataset.manifest.num_interactions
    assert (whole.share, len(whole.histories)) == (1.0, dataset.manifest.num_train_users)
    assert sample.heldout.num_users == whole.heldout.num_users
    for part, num_known in ((sample, len(sample.histories)), (whole, whole.heldout.num_users)):
        assert part.heldout.num_train_users == len(part.histories)
        assert (np.diff(part.heldout.user_index) > 0).all()
        known = part.heldout.user_index[part.heldout.user_index < len(part.histories)]
        assert len(known) == num_known < len(part.heldout.user_index) or part is whole
        for row, user in enumerate(known):
            history = part.heldout.history[row : row + 1].item_index
            assert part.histories[user : user + 1].item_index.tolist() == history.tolist()


def test_a_sample_has_its_weights(table: pa.Table, half: int, tmp_path: Path) -> None:
    data = prepare(table, tmp_path / "data", protocol="leave-one-out", half_life="4w")
    sample = searching(data, "ease").sample.histories
    train, weight = data.train, data.train_weights(range(data.manifest.num_train_users))
    assert weight is not None
    rows = {}
    for user in range(len(train)):
        entries = slice(train.offsets[user], train.offsets[user + 1])
        rows[tuple(train.item_index[entries].tolist())] = weight[entries].tolist()
    assert sample.weight is not None
    for row in range(len(sample)):
        one = sample[row : row + 1]
        assert one.weight is not None
        assert rows[tuple(one.item_index.tolist())] == one.weight.tolist()
    assert 0 < len(sample) < len(train)


def test_settings_in_users_are_scaled_to_the_sample(dataset: Dataset, half: int) -> None:
    search = searching(dataset, "ease")
    config = resolve_sizes(search.asked, dataset)
    for part in (search.sample, search.all_data):
        (model,) = search._fit(config, part)
        assert model.config.l2 == 200.0 * part.share
        assert (model.config.dropout, model.num_users) == (0.5, len(part.histories))

    search.value_of({"l2": 30.0})
    assert search.values["l2"] == 30.0, "as it is in all data"


@pytest.mark.parametrize(
    ("name", "chosen", "is_better"),
    [
        ("ease", {"dropout": 0.2}, True),
        ("ease", {"l2": 5.0}, False),
        ("ease", {"l2": 200.0, "dropout": 0.5}, None),  # the rule's settings
        ("ials", {"regularization": 3.0}, True),
    ],
)
def test_all_data_have_the_last_word(
    name: str,
    chosen: dict[str, float],
    is_better: bool | None,
    heldout_users: Dataset,
    half: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kept settings are those whose model is better on the validation part, and the model is
    the one that a training with these settings gives."""

    def climb(search: Search) -> None:
        assert search.value_of(chosen) is not None
        search.best = chosen

    monkeypatch.setattr(Search, "climb", climb)
    run = trained(name, heldout_users, tmp_path / "run")
    search, sample = run.config.search, run.config.search["sample"]
    if is_better is None:
        assert sample.keys() == {"interactions"}
        return
    assert (sample["settings"], sample["value"] > sample["value_by_rule"]) == (chosen, is_better)
    assert search["settings"] == (chosen if is_better else {})
    kept = trained(name, heldout_users, tmp_path / "kept", **search["settings"], search=False)
    assert weights_of(run) == weights_of(kept)
    if name == "ease":
        heldout = heldout_users.heldout("validation")
        value = evaluate(load_model(kept), heldout, k=(100,))["ndcg@100"]
        assert value == max(sample["value"], sample["value_by_rule"])


def test_the_rule_is_kept_if_memory_has_no_room_for_two(
    heldout_users: Dataset, half: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = Search.measure

    def only_one(search: Search, config: ModelConfig, part: Part) -> Fit | None:
        refused = part.share == 1.0 and config != resolve_sizes(search.asked, heldout_users)
        return None if refused else measured(search, config, part)

    monkeypatch.setattr(Search, "measure", only_one)
    search = found("itemknn", heldout_users)
    assert search["settings"] == {}
    assert search["sample"]["settings"]
    assert search["sample"]["value"] is None


def test_one_metric_chooses(heldout_users: Dataset) -> None:
    assert found("itemknn", heldout_users)["select_by"] == "ndcg@100"
    assert found("itemknn", heldout_users, select_by="recall@5")["select_by"] == "recall@5"
