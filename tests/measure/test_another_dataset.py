"""A run is measured on other data by id, without the pairs of its own training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretaste.data import Dataset, prepare
from foretaste.errors import DatasetError, NothingLeftError, SettingError, UnsupportedError
from foretaste.evaluation import Evaluation
from foretaste.evaluation.evaluator import evaluate
from foretaste.measure import compare_runs, evaluate_run
from foretaste.measure.another_dataset import match
from foretaste.runs import Run, load_model
from foretaste.training import Callback, train
from tests.messages import raises, says
from tests.runs.tiny import make_dataset, make_run

SETTINGS: dict[str, dict[str, Any]] = {
    "popularity": {},
    "ease": {},
    "vae": {"hidden": (16,), "latent": 8},
    "gmf": {"factors": 8},
}
PAIRS = [(user, (user * 3 + step * step) % 17) for user in range(40) for step in range(6)]


def shop(path: Path, pairs: list[tuple[Any, Any]], protocol: str = "leave-one-out") -> Dataset:
    """Interactions in order of time; users and items with these ids."""
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": range(len(pairs))})
    return prepare(table, path, protocol=protocol, seed=2)


@pytest.fixture(scope="module", params=["leave-one-out", "temporal", "held-out-users"])
def own(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    root = tmp_path_factory.mktemp("own")
    if request.param == "held-out-users":
        return make_dataset(root)
    return shop(root / "data", PAIRS, request.param)


@pytest.mark.parametrize("model", SETTINGS)
def test_matching_a_run_with_its_own_dataset_changes_no_bit(
    own: Dataset, model: str, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", own, model, **SETTINGS[model])
    of_parts: list[tuple[str, Any]] = [("full", "test"), ("sampled-5", "validation")]
    for candidates, split in of_parts:
        expected = evaluate_run(run, own, candidates=candidates, split=split, device="cpu")
        (matched,) = match([run], own, split)
        found = evaluate(
            load_model(run, "cpu"), matched.heldout, candidates=candidates, k=(10, 20, 50, 100)
        )
        assert found.metrics == expected.metrics
        assert found.num_unseen_targets == expected.num_unseen_targets
        for name, values in expected.per_user.items():
            assert values.tobytes() == found.per_user[name].tobytes()
        assert matched.matching.num_pairs_left_out == 0
        assert matched.matching.is_own_dataset
        assert expected.matching is None


def week(path: Path, spell: str = "{}") -> Dataset:
    """Last week's interactions and more, with ids in another spelling.

    Users 20 to 29 lack their last two, so their held-out items were in training before.
    """
    gone = {(user, (user * 3 + step * step) % 17) for user in range(20, 30) for step in (4, 5)}
    pairs = [pair for pair in [*PAIRS, *MORE] if pair not in gone]
    return shop(path, [(spell.format(user), spell.format(item)) for user, item in pairs])


MORE = [
    *((user, (user * 5 + 2) % 17) for user in range(10)),
    *((user, 100 + user % 3) for user in range(5, 12)),
    *((user, item) for user in (200, 201) for item in (3, 4, 5, 6)),
    *((300, item) for item in (100, 101, 102)),
]


def hits(run: Run, dataset: Dataset, trained: set[tuple[int, int]], k: int) -> dict[int, float]:
    """Hits of popularity by user, worked out from ids by the definition."""
    heldout = dataset.heldout("test")
    users = [int(value) for value in dataset.users.ids(heldout.user_index)]
    names = [int(value) for value in dataset.items.ids()]
    catalogue = [int(value) for value in run.items.ids(np.arange(run.num_items))]
    counts = load_model(run, "cpu").item_count_I.tolist()
    scores = dict(zip(catalogue, counts, strict=True))

    def items_of(rows: Any, row: int) -> set[int]:
        return {names[item] for item in rows.item_index[rows.offsets[row] : rows.offsets[row + 1]]}

    found = {}
    for row, user in enumerate(users):
        held = items_of(heldout.target, row)
        targets = {item for item in held if (user, item) not in trained}
        if not targets:
            continue
        known = items_of(heldout.known, row) | (held - targets)
        known |= {item for item in catalogue if (user, item) in trained}
        (target,) = targets
        rivals = [scores[item] for item in catalogue if item not in known and item != target]
        if target not in scores:
            found[user] = 0.0
            continue
        above = sum(score > scores[target] for score in rivals)
        tied = sum(score == scores[target] for score in rivals)
        found[user] = min(max(k - above, 0) / (1 + tied), 1.0)
    return found


def trained_pairs(run: Run) -> set[tuple[int, int]]:
    pairs = run.trained_pairs
    users = run.users.ids(pairs.row_index())
    return {(int(u), int(i)) for u, i in zip(users, run.items.ids(pairs.item_index), strict=True)}


def by_user(found: Evaluation, dataset: Dataset, name: str) -> dict[int, float]:
    users = [int(value) for value in dataset.users.ids(found.user_index)]
    return dict(zip(users, found.per_user[name].tolist(), strict=True))


@pytest.mark.parametrize("spell", ["{}", "0{}"])
def test_metrics_on_other_data_equal_their_definition(spell: str, tmp_path: Path) -> None:
    old = shop(tmp_path / "old", [(spell.format(u), spell.format(i)) for u, i in PAIRS])
    run = make_run(tmp_path / "run", old)
    new = week(tmp_path / "new", spell)
    found = evaluate_run(run, new, k=[3])
    expected = hits(run, new, trained_pairs(run), 3)
    assert by_user(found, new, "hr@3") == pytest.approx(expected)
    matching = found.matching
    assert matching is not None
    assert matching.num_users_trained + matching.num_users_folded_in == found.num_users
    assert matching.num_users_folded_in == 3
    assert matching.num_users_without_history == 1
    heldout = new.heldout("test")
    assert found.num_users == heldout.num_users - matching.num_pairs_left_out
    assert matching.num_pairs_left_out > 0
    assert found.num_unseen_targets > 0
    users, catalogue, left_out = (one for one in found.definitions() if one in matching.lines())
    says(users, run.path, matching.num_users_trained, 3, 1)
    says(catalogue, run.path, run.config.dataset.num_items)
    says(left_out, matching.num_pairs_left_out)
    assert Evaluation.from_dict(found.as_dict()) == found


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return shop(tmp_path_factory.mktemp("old") / "data", PAIRS)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return week(tmp_path_factory.mktemp("new") / "data")


@pytest.mark.parametrize("model", SETTINGS)
def test_every_model_is_measured_on_other_data(
    model: str, old: Dataset, new: Dataset, tmp_path: Path
) -> None:
    run = make_run(tmp_path / "run", old, model, **SETTINGS[model])
    for candidates in ("full", "sampled-5", "nvidia-5"):
        found = evaluate_run(run, new, candidates=candidates, device="cpu")
        assert 0 < found["hr@10"] <= 1
        again = evaluate_run(run, new, candidates=candidates, device="cpu", evaluation_batch=3)
        assert again["hr@10"] == pytest.approx(found["hr@10"])


def test_runs_of_different_data_are_compared_on_pairs_new_to_all(
    old: Dataset, new: Dataset, tmp_path: Path
) -> None:
    runs = [make_run(tmp_path / "old run", old), make_run(tmp_path / "new run", new, "ease")]
    comparison = compare_runs(runs, dataset=new)
    first, second = comparison.evaluations.values()
    assert first.user_index.tolist() == second.user_index.tolist()
    assert first.matching is not None
    assert second.matching is not None
    assert (first.matching.is_own_dataset, second.matching.is_own_dataset) == (False, True)
    assert first.matching.num_pairs_left_out == second.matching.num_pairs_left_out > 0
    alone = evaluate_run(runs[0], new)
    assert alone.metrics == first.metrics
    difference = comparison.differences["new run"]["ndcg@10"]
    assert difference.value == pytest.approx(second["ndcg@10"] - first["ndcg@10"])
    with raises(SettingError, "old run", "new run", old.path, new.path, "--dataset"):
        compare_runs(runs)


def test_data_without_measurable_pairs_are_refused(old: Dataset, tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", shop(tmp_path / "everything", PAIRS, "none"))
    with raises(DatasetError, 40, old.path):
        evaluate_run(run, old)
    foreign = [(user, 1000 + item) for user, item in PAIRS]
    with raises(DatasetError, 17, "foreign", run.path):
        evaluate_run(run, shop(tmp_path / "foreign", foreign))


def test_a_model_of_the_order_needs_data_with_one(old: Dataset, tmp_path: Path) -> None:
    run = train("slist", old, run=tmp_path / "run", search=False, callback=Callback())
    table = pa.table(
        {"user_id": [user for user, _ in PAIRS], "item_id": [item for _, item in PAIRS]}
    )
    data = prepare(table, tmp_path / "untimed", protocol="leave-one-out")
    with raises(
        UnsupportedError, data.path, "slist", "--time-column", "--layout lists", "--order rows"
    ):
        evaluate_run(run, data)


@pytest.mark.parametrize("model", ["ease", "slist", "gmf"])
def test_a_nightly_trial_and_the_served_run_read_one_history(model: str, tmp_path: Path) -> None:
    """Both read one history also if the served run still holds a withdrawn pair."""
    withdrawn = {(user, (user * 3 + 1) % 17) for user in range(0, 40, 3)}
    pairs = [pair for pair in dict.fromkeys([*PAIRS, *MORE]) if pair not in withdrawn]
    settings = SETTINGS.get(model, {})
    served = train(
        model, shop(tmp_path / "before", PAIRS, "none"), run=tmp_path / "served",
        callback=Callback(), device="cpu", **settings,
    )  # fmt: skip
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": range(len(pairs))})
    data = prepare(table, tmp_path / "unseen", protocol="unseen", like=served.path)
    trial = train(model, data, run=tmp_path / "trial", callback=Callback(), device="cpu",
                  **settings)  # fmt: skip
    first, second = match([served, trial], data, "test")
    histories = []
    for run, matched in ((served, first), (trial, second)):
        heldout = matched.heldout
        assert heldout.num_trained is not None
        assert heldout.is_grown is not None
        assert not heldout.is_grown.any(), "a trained row answers"
        order = heldout.history.oldest_first()
        users = np.array(run.users.ids(heldout.user_index))[heldout.history.row_index()[order]]
        items = run.items.ids(heldout.history.item_index[order])
        histories.append(list(zip(users.tolist(), items, strict=True)))
        assert heldout.known.item_index.tolist() == heldout.history.item_index.tolist()
    assert histories[0] == histories[1]
    assert set(histories[0]) == {pair for pair in PAIRS if pair not in withdrawn
                                 and pair[0] in dict(histories[0])}  # fmt: skip
    assert {pair for pair in withdrawn if pair[0] in dict(histories[0])}, "some had one"
    compared = compare_runs([served, trial], dataset=data, device="cpu").evaluations
    held = {user for user, _ in histories[0]}
    assert {found.num_users for found in compared.values()} == {len(held)}


def test_a_quiet_night_has_nothing_to_compare(tmp_path: Path) -> None:
    """Nobody known did anything new: a stranger came, with an item that nobody had."""
    served = make_run(tmp_path / "served", shop(tmp_path / "before", PAIRS, "none"))
    users, items = zip(*dict.fromkeys([*PAIRS, (900, 3), (900, 901)]), strict=True)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": range(len(users))})
    data = prepare(table, tmp_path / "quiet", protocol="unseen", like=served.path)
    trial = train("popularity", data, run=tmp_path / "trial", callback=Callback(), device="cpu")
    found = compare_runs([served, trial], dataset=data, device="cpu")
    sentence = found.check_not_worse("ndcg@100")
    says(sentence, data.path, 0, served.path)
    assert found._repr_html_() == sentence
    assert (found.rows(), found.differences) == ([], {})
    assert found.notes() == [
        f"served: popularity, {served.path}",
        f"trial: popularity, {trial.path}",
    ]
    with raises(NothingLeftError, data.path, 0, served.path):
        evaluate_run(served, data, device="cpu")
