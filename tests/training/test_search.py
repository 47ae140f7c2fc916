"""Settings that are ``auto`` and chosen by fits on the validation part."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from foretaste.data import Dataset
from foretaste.models.config import ModelConfig
from foretaste.models.registry import MODEL_NAMES, config_class
from foretaste.runs import Run, load_model
from foretaste.training import Callback, TrainingConfig, train
from foretaste.training import search as search_module
from foretaste.training.auto import sized
from foretaste.training.request import rerun_request
from foretaste.training.search import MOST_FITS, chosen_settings

from .trainings import numbers_of, trained_again, weights_of

SEARCHED = [name for name in MODEL_NAMES if config_class(name).has_candidates]
CPU = torch.device("cpu")


def found(
    name: str, dataset: Dataset, given: ModelConfig | None = None, **settings: Any
) -> dict[str, Any]:
    asked, config = given or config_class(name)(), TrainingConfig(**settings)
    return chosen_settings(dataset, name, asked, config, CPU, lambda *_: None)


def trained(name: str, dataset: Dataset, run: Path, **settings: Any) -> Run:
    if name == "ials":
        settings |= {"factors": 4, "epochs": 2}
    return train(name, dataset, device="cpu", run=run, callback=Callback(), **settings)


@pytest.fixture(scope="module", params=SEARCHED)
def run(
    request: pytest.FixtureRequest, heldout_users: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    return trained(request.param, heldout_users, tmp_path_factory.mktemp("searched") / "one")


def test_these_models_choose() -> None:
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
    if run.config.model != "ials":  # its epochs are those of the best one
        assert weights_of(again) == weights_of(run)


@pytest.mark.parametrize("name", SEARCHED)
def test_without_a_search_the_rule_holds(
    name: str, heldout_users: Dataset, everything: Dataset, tmp_path: Path
) -> None:
    asked = config_class(name)()
    assert found(name, heldout_users, search=False) == found(name, everything) == {}
    run = trained(name, heldout_users, tmp_path / "run", search=False)
    assert run.config.search == {}
    by_rule = sized(replace(asked, factors=4) if name == "ials" else asked, heldout_users)
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
def test_what_is_given_is_kept(
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


def test_large_data_are_sampled(
    dataset: Dataset, heldout_users: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known users who are not fitted do not choose; new users do."""
    for data, num_choosing in ((dataset, 30), (heldout_users, 10)):
        whole = found("itemknn", data)
        half = data.manifest.num_interactions // 2
        with monkeypatch.context() as patch:
            patch.setattr(search_module, "_MOST_INTERACTIONS", half)
            asked = config_class("itemknn")()
            search = search_module.Search(
                data, "itemknn", asked, TrainingConfig(), CPU, lambda *_: None
            )
            assert abs(search.histories.item_index.numel() - half) < half / 4
            assert len(search.histories) == data.manifest.num_train_users
            assert search.heldout.num_users == num_choosing
            assert found("itemknn", data)["value_by_rule"] != whole["value_by_rule"]


def test_one_metric_chooses(heldout_users: Dataset) -> None:
    assert found("itemknn", heldout_users)["select_by"] == "ndcg@100"
    assert found("itemknn", heldout_users, select_by="recall@5")["select_by"] == "recall@5"
