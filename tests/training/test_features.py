"""Features of items in a training: models that list new items, and the choice of weight and
power."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

import foretaste
from foretaste.data import Dataset, prepare
from foretaste.errors import RunError, SettingError, UnsupportedError
from foretaste.models.base import ClosedFormModel, RecommenderModel
from foretaste.models.registry import build_model, config_class
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import Run, load_model, verify
from foretaste.training import Callback, TrainingConfig, TrainingStart, blend_weights, train
from foretaste.training.auto import resolve_sizes
from foretaste.training.features import hand_features
from foretaste.training.request import TrainRequest, rerun_request
from foretaste.training.search import Search, chosen_settings
from tests.messages import raises
from tests.runs.tiny import flip_byte
from tests.training.trainings import NEW, items_of, trained_again, weights_of

MODELS = ["ease", "slist", "ials"]


@pytest.fixture(scope="module")
def old_items(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    place = tmp_path_factory.mktemp("data") / "old"
    return prepare(table, place, protocol="leave-one-out", items=items_of(table), features=["kind"])


def trained(name: str, dataset: Dataset, place: Path, **settings: object) -> Run:
    return train(name, dataset, run=place, device="cpu", callback=Callback(), **settings)


def found(name: str, dataset: Dataset, config: TrainingConfig | None = None) -> dict[str, object]:
    request = TrainRequest.of(name, dataset, config=config)
    return chosen_settings(request, dataset, torch.device("cpu"), lambda *_: None).record


@pytest.mark.parametrize("name", ["ease", "slist", "rp3beta"])
@pytest.mark.parametrize("neighbors", [10, "all"])
def test_twice_the_users_and_twice_their_numbers_give_equal_scores(
    name: str, neighbors: int | str, old_items: Dataset
) -> None:
    """A sample of the users therefore stands for all of them if these numbers are scaled."""
    kind, num_items = config_class(name), old_items.manifest.num_items
    device = torch.device("cpu")
    if neighbors == "all" and name == "rp3beta":
        pytest.skip("it has neighbours alone")
    config = resolve_sizes(kind(neighbors=neighbors), old_items)
    request = TrainRequest.of(name, old_items)
    once = Search(request, old_items, device, lambda *_: None).all_data.histories
    twice = HistoryTensors(
        torch.cat((once.offsets, once.offsets[1:] + once.offsets[-1])),
        once.item_index.repeat(2),
        num_items,
        position=None if once.position is None else once.position.repeat(2),
    )
    scores = []
    for factor, histories in ((1, once), (2, twice)):
        settings = {each: factor * getattr(config, each) for each in kind.counted_in_users}
        model = build_model(name, replace(config, **settings), len(histories), num_items)
        hand_features(old_items, model, device)
        assert isinstance(model, ClosedFormModel)
        model.fit(histories, lambda *_: None)
        scores.append(model.score_catalogue(model.fold_in(once)).clamp(min=0))
    first, second = scores
    torch.testing.assert_close(first / first.max(), second / second.max(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_features_lists_new_items(name: str, shop: Dataset, tmp_path: Path) -> None:
    run = trained(name, shop, tmp_path / "run", search=False)
    manifest = shop.manifest
    assert run.num_items == manifest.num_listed_items == manifest.num_items + len(NEW)
    assert run.config.model_config["feature_weight"] == (100.0 if name == "ials" else 30.0)
    assert run.items.table["id"].to_pylist()[-len(NEW) :] == [item for item, _ in NEW]
    kinds = shop.items.table["kind"].to_pylist()
    history = [item for item in range(manifest.num_items) if kinds[item] == "a"][:5]
    positions = range(len(history))
    histories = HistoryTensors(
        torch.tensor([0, len(history)]),
        torch.tensor(history, dtype=torch.int32),
        run.num_items,
        position=torch.tensor(positions, dtype=torch.int32),
    )
    model = load_model(run)
    (scores,) = model.score_catalogue(model.fold_in(histories))
    of_kind_a, of_kind_c = scores[-len(NEW) :].tolist()
    assert of_kind_a > max(of_kind_c, 0.0)
    without = trained(name, shop, tmp_path / "without", search=False, feature_weight=0.0)
    assert without.num_items == manifest.num_items
    assert load_model(without).num_items == manifest.num_items
    other = trained("itemknn", shop, tmp_path / "itemknn", search=False)
    assert other.num_items == manifest.num_items


@pytest.mark.parametrize("name", MODELS)
def test_new_items_are_listed_for_any_validation_part(name: str, shop: Dataset) -> None:
    search = found(name, shop)
    settings, features = search["settings"], search["features"]
    assert settings["feature_weight"] > 0  # type: ignore[index]
    assert features.keys() == {"gain", "low", "high", "lists"}  # type: ignore[attr-defined]
    assert 0.0 <= features["lists"] <= 1.0  # type: ignore[index]


def test_lists_are_counted_among_the_whole_catalogue_alone(shop: Dataset) -> None:
    search = found("ease", shop, TrainingConfig(candidates="sampled-5"))
    assert search["features"].keys() == {"gain", "low", "high"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODELS)
def test_features_are_chosen_last_and_left_out_if_they_do_not_help(
    name: str, old_items: Dataset, dataset: Dataset
) -> None:
    search, plain = found(name, old_items), found(name, dataset)
    chosen = dict(search["settings"])  # type: ignore[call-overload]
    weight, power = chosen.pop("feature_weight"), chosen.pop("feature_power")
    assert chosen == plain["settings"]
    num_fits = 4 if name == "ials" else 8
    assert search["fits"] == plain["fits"] + num_fits  # type: ignore[operator]
    assert (weight > 0) == (search["value"] > plain["value"])  # type: ignore[operator]
    assert power in (0.0, 0.5)
    gain = search["features"]["gain"]  # type: ignore[index]
    assert gain == pytest.approx(search["value"] - plain["value"])  # type: ignore[operator]


def test_without_a_validation_part_the_rule_holds(shop: Dataset, dataset: Dataset) -> None:
    kind = config_class("slist")
    rule = resolve_sizes(kind(), shop)
    assert (rule.feature_weight, rule.feature_power) == (30.0, 0.5)  # type: ignore[attr-defined]
    assert resolve_sizes(kind(), dataset).uses_features is False
    assert resolve_sizes(kind(neighbors="all"), dataset) == resolve_sizes(  # type: ignore[call-arg]
        kind(neighbors="all", feature_weight=0.0),  # type: ignore[call-arg]
        dataset,
    )


def test_a_run_is_repeated_on_data_with_its_columns_alone(
    shop: Dataset, old_items: Dataset, dataset: Dataset, tmp_path: Path
) -> None:
    run = trained("ease", shop, tmp_path / "run", feature_weight=7.0, search=False)
    request = rerun_request(run)
    again = trained_again(request, shop, tmp_path / "two", Callback())
    assert weights_of(again) == weights_of(run)
    other = trained_again(request, old_items, tmp_path / "three", Callback())
    assert other.config.model_config["feature_weight"] == 7.0
    with raises(UnsupportedError, dataset.path, "kind", "kind", "--features kind"):
        trained_again(request, dataset, tmp_path / "four", Callback())
    with raises(
        UnsupportedError,
        dataset.path,
        "feature_weight",
        7,
        "--items FILE --features COLUMN",
        "--feature-weight",
    ):
        trained("ease", dataset, tmp_path / "five", feature_weight=7.0)


def test_a_model_in_memory_takes_features(table: pa.Table, shop: Dataset) -> None:
    items = items_of(table, *NEW)
    fitted = foretaste.fit("ease", table, items=items, features=["kind"], callback=Callback())
    from_parts = foretaste.fit("ease", shop, callback=Callback())
    for one in (fitted, from_parts):
        assert one.model.num_items == shop.manifest.num_listed_items


def test_weights_are_found_for_runs_that_list_different_items(
    shop: Dataset, tmp_path: Path
) -> None:
    runs = [trained(name, shop, tmp_path / name, search=False) for name in ("ease", "itemknn")]
    assert [run.num_items - shop.manifest.num_items for run in runs] == [len(NEW), 0]
    weights = blend_weights(runs, device="cpu")
    assert sum(weights) == pytest.approx(1.0)
    run = foretaste.blend(runs, weights=weights, run=tmp_path / "blend", callback=Callback())
    assert run.num_items == max(
        one.num_items for one, weight in zip(runs, weights, strict=True) if weight
    )


SASREC = {"factors": 8, "max_length": 6, "epochs": 2, "batch_size": 100}


@pytest.fixture(scope="module")
def sasrec(shop: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained("sasrec", shop, tmp_path_factory.mktemp("sasrec") / "run", **SASREC)


def test_sasrec_keeps_the_features_that_its_answers_read(
    sasrec: Run, shop: Dataset, dataset: Dataset, tmp_path: Path
) -> None:
    assert sasrec.config.model_config["feature_weight"] == 1.0
    assert sasrec.num_items == shop.manifest.num_listed_items
    assert sasrec.features is not None
    assert shop.features is not None
    assert sasrec.features.names == shop.features.names
    assert np.array_equal(sasrec.features.histories.offsets, shop.features.histories.offsets)
    assert np.array_equal(sasrec.features.histories.item_index, shop.features.histories.item_index)
    assert verify(sasrec.path) == []
    plain = trained("sasrec", dataset, tmp_path / "plain", **SASREC)
    assert plain.features is None
    assert plain.config.model_config["feature_weight"] == 0.0


def test_a_changed_file_of_features_is_named(sasrec: Run, tmp_path: Path) -> None:
    shutil.copytree(sasrec.path, tmp_path / "run")
    flip_byte(tmp_path / "run" / "features.parquet", 60)
    with raises(RunError, tmp_path / "run" / "features.parquet", "config.json"):
        Run.open(tmp_path / "run")
    assert any("features.parquet" in one for one in verify(tmp_path / "run"))


def test_a_blend_reads_the_features_of_its_models(
    sasrec: Run, shop: Dataset, tmp_path: Path
) -> None:
    """Known and new items score in the blend as in its only model with a weight."""
    other = trained("itemknn", shop, tmp_path / "itemknn", search=False)
    assert sum(blend_weights([sasrec, other], device="cpu")) == pytest.approx(1.0)
    made = {"run": tmp_path / "blend", "callback": Callback()}
    run = foretaste.blend([sasrec, other], weights=[1.0, 0.5], **made)
    assert run.num_items == shop.manifest.num_listed_items
    assert verify(run.path) == []
    blend, model = load_model(run), load_model(sasrec)
    (member, _) = blend.members  # type: ignore[misc]
    assert isinstance(member, RecommenderModel)
    assert torch.equal(member.item_vectors(), model.item_vectors())


def test_a_model_in_memory_is_saved_with_its_features(
    table: pa.Table, sasrec: Run, tmp_path: Path
) -> None:
    items = items_of(table, *NEW)
    given = {"items": items, "features": ["kind"], "order": "rows", "callback": Callback()}
    fitted = foretaste.fit("sasrec", table, **given, **SASREC)
    run = fitted.save(tmp_path / "run")
    assert torch.equal(load_model(run).item_vectors(), fitted.model.item_vectors())


def test_values_are_matched_by_column_and_value(
    sasrec: Run, table: pa.Table, tmp_path: Path
) -> None:
    """Vectors move with their values, and a value that came has the first weights of its seed."""
    items = items_of(table, (9_003, "d"), (9_004, "d"))
    kinds = ["0" if kind == "a" else kind for kind in items["kind"].to_pylist()]  # "a" is gone
    items = items.set_column(1, "kind", pa.array(kinds))
    config = {"protocol": "leave-one-out", "features": ["kind"]}
    later = prepare(table, tmp_path / "later", items=items, **config)  # type: ignore[arg-type]
    stepless = {"epochs": 1, "learning_rate": 1e-12, "batch_size": 100}
    started: list[TrainingStart] = []
    told = Callback()
    told.started = started.append  # type: ignore[method-assign]
    run = train("sasrec", later, start_from=sasrec, run=tmp_path / "run", callback=told, **stepless)
    ((_, counts),) = started[0].started_from.items()
    assert counts["values"] == {"num_found": 2, "num_new": 2, "num_gone": 1}
    assert later.features is not None
    assert sasrec.features is not None
    before = sasrec.load_weights()["values.value_table"]
    after = run.load_weights()["values.value_table"]
    for row, name in enumerate(later.features.names):
        if name in sasrec.features.names:
            torch.testing.assert_close(after[row], before[sasrec.features.names.index(name)])
    with raises(SettingError, sasrec.path, "feature_weight", 1.0, 0.0, "--from"):
        train("sasrec", later, start_from=sasrec, feature_weight=0.0, run=tmp_path / "plain")
