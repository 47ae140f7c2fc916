"""Models compete on one dataset: the table, its advice, and resuming after an interruption."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from socket import gethostname
from typing import Any

import pyarrow as pa
import pytest

from foretaste.data import Dataset, prepare
from foretaste.errors import (
    DatasetError,
    Interrupted,
    RunError,
    SettingError,
    UnsupportedError,
)
from foretaste.evaluation.result import Difference, Evaluation, Metric
from foretaste.measure import compare_runs
from foretaste.models import MODEL_NAMES, registry
from foretaste.models.linear.ease import Ease
from foretaste.runs import Run
from foretaste.runs.places import training_lock
from foretaste.training import Callback
from foretaste.training.callbacks import EpochReport, TrainingStart
from foretaste.tune import Entry, Leaderboard, compete
from tests.messages import raises, says

MODELS = ["popularity", "ease", "gmf"]


class Trained(Callback):
    """Remembers the trained models; sends a signal after the first epoch if asked."""

    def __init__(self, number: int | None = None) -> None:
        self.models: list[str] = []
        self.resumed: list[str] = []
        self.number = number

    def started(self, start: TrainingStart) -> None:
        self.models.append(start.model)
        if start.is_resumed:
            self.resumed.append(start.model)

    def epoch_done(self, report: EpochReport) -> None:
        if self.number is not None:
            signal.raise_signal(self.number)


@pytest.fixture(scope="module")
def board(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    place = tmp_path_factory.mktemp("competition") / "small"
    return compete(dataset, models=MODELS, output=place, epochs=3, callback=Callback())


def test_the_best_model_comes_first(board: Leaderboard) -> None:
    values = [entry.evaluation["ndcg@10"] for entry in board.entries if entry.evaluation]
    assert len(values) == 3
    assert values == sorted(values, reverse=True)
    assert board.best.to_best is None
    assert {entry.model for entry in board.entries} == set(MODELS)


def test_numbers_equal_the_runs(board: Leaderboard) -> None:
    paths = [entry.run for entry in board.entries if entry.run]
    compared = compare_runs(paths)
    for entry, label in zip(board.entries, compared.evaluations, strict=True):
        expected = compared.evaluations[label]
        assert entry.evaluation is not None
        assert entry.evaluation["hr@10"] == expected["hr@10"]
        if entry is not board.best:
            assert entry.to_best == compared.differences[label]["ndcg@10"]
        assert entry.run is not None
        log = Run.open(entry.run).log.read()
        evaluated_s = sum(e["evaluation"]["elapsed_s"] for e in log if e["event"] == "evaluation")
        assert evaluated_s > 0
        spent_s = sum(log[-1][name] for name in ("search_s", "compile_s", "train_s"))
        assert entry.elapsed_s == evaluated_s + spent_s
        assert entry.memory_mib == log[-1]["memory_mib"]


def test_the_table_is_written_in_three_formats(board: Leaderboard) -> None:
    markdown = (board.path / "table.md").read_text()
    assert markdown.startswith("|  | ndcg@10 | hr@10 | recall@20 | ndcg@100 | ndcg@10 to best |")
    assert f"every run is kept in {board.path}" in markdown
    assert board.advice() in markdown
    with (board.path / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    document = json.loads((board.path / "table.json").read_text())
    assert document["rows"] == board.rows()
    assert document["notes"][-1] == board.advice()
    assert [row["model"] for row in rows] == [entry.model for entry in board.entries]
    assert float(rows[0]["ndcg@10_low"]) == board.rows()[0]["ndcg@10_low"]


def note_of(board: Leaderboard, value: str) -> str:
    (note,) = (one for one in board.notes() if value in one)
    return note


def test_the_last_row_is_a_blend_of_the_others(dataset: Dataset, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"output": tmp_path / "it", "search": False, "callback": Callback()}
    board = compete(dataset, models=["blend", "ease", "popularity", "itemknn"], **arguments)
    blended = board.entries[-1]
    assert (blended.model, blended.run) == ("blend", tmp_path / "it" / "blend")
    assert board.best.model != "blend"
    assert board.best.run is not None
    assert blended.run is not None
    compared = compare_runs([board.best.run, blended.run])
    assert blended.to_best == list(compared.differences.values())[-1]["ndcg@10"]
    members = Run.open(blended.run).config.model_config["members"].values()
    assert blended.members == tuple((one["model"], one["weight"]) for one in members)
    assert f"blend is {blended.recipe()}" in board.notes()
    again = compete(dataset, models=["ease", "popularity", "itemknn", "blend"], **arguments)
    assert again.entries[-1].members == blended.members
    alone = compete(dataset, models=["ease", "blend"], **arguments)
    says(alone.entries[-1].reason)
    with raises(SettingError, "models", ("blend",)):
        compete(dataset, models=["blend"], **arguments)


def test_slist_wins_if_the_order_says_what_comes_next(tmp_path: Path) -> None:
    # Everybody walks the same circle of items from another start.
    rows = [
        {"user_id": user, "item_id": (user + time) % 30, "timestamp": time}
        for user in range(90)
        for time in range(8)
    ]
    trained = Trained()
    board = compete(
        prepare(pa.Table.from_pylist(rows), tmp_path / "data"),
        models=["vae", "slist", "ease", "popularity"],
        output=tmp_path / "it",
        search=False,
        epochs=1,
        callback=trained,
    )
    assert trained.models == ["popularity", "ease", "slist", "vae"]
    assert board.advice().startswith("take slist: ")


@pytest.mark.parametrize("tune", [0, 1])
def test_slist_is_left_out_without_an_order(tmp_path: Path, tune: int) -> None:
    rows = [{"user_id": n % 90, "item_id": n * 7 % 31} for n in range(720)]
    data = prepare(pa.Table.from_pylist(rows), tmp_path / "data")
    board = compete(
        data,
        models=["slist", "popularity"],
        tune=tune,
        output=tmp_path / "it",
        callback=Callback(),
    )
    says(
        note_of(board, "--order rows"),
        "slist",
        data.path,
        "slist",
        "--time-column",
        "--layout lists",
        "--order rows",
    )
    assert board.best.model == "popularity"
    with raises(
        UnsupportedError, data.path, "slist", "--time-column", "--layout lists", "--order rows"
    ):
        compete(data, models=["slist"], tune=tune, output=tmp_path / "alone", callback=Callback())


def test_the_gain_of_weights_is_reported(table_file: Path, tmp_path: Path) -> None:
    weighted = prepare(table_file, tmp_path / "data", protocol="leave-one-out", half_life="4w")
    arguments: dict[str, Any] = {"output": tmp_path / "it", "search": False, "callback": Callback()}
    board = compete(weighted, models=["ease", "popularity"], **arguments)
    assert board.gains.keys() == {"ease"}
    paths = [tmp_path / "it" / name for name in ("ease-without-weights", "ease")]
    assert [Run.open(path).config.model_config["ignore_weights"] for path in paths] == [True, False]
    (expected,) = compare_runs(paths).differences.values()
    assert board.gains["ease"] == expected["ndcg@10"]
    gain = f"{expected['ndcg@10'].value:+.4f}"
    says(note_of(board, gain), "ndcg@10", "ease", gain)
    assert len(board.rows()) == 2


def test_a_blend_without_a_gain_is_not_made(
    dataset: Dataset, table_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: dict[str, Any] = {"models": ["ease", "popularity", "blend"], "callback": Callback()}
    monkeypatch.setattr("foretaste.tune.competition.blend_weights", lambda *_, **__: (1.0, 0.0))
    board = compete(dataset, output=tmp_path / "it", **arguments)
    says(board.entries[-1].reason)
    data = prepare(table_file, tmp_path / "data", protocol="leave-one-out", validation="none")
    board = compete(data, output=tmp_path / "other", **arguments)
    says(board.entries[-1].reason)

    def refuse(*_: object, **__: object) -> None:
        raise UnsupportedError("no memory for two models")

    monkeypatch.setattr("foretaste.tune.competition.blend_weights", refuse)
    board = compete(dataset, output=tmp_path / "it", **arguments)
    assert board.entries[-1].reason == "no memory for two models"


def test_finished_trainings_are_not_repeated(dataset: Dataset, board: Leaderboard) -> None:
    trained = Trained()
    more = [*MODELS, "vae"]
    again = compete(dataset, models=more, output=board.path, epochs=3, callback=trained)
    assert trained.models == ["vae"]
    assert len(again.entries) == 4


def test_the_quick_ones_are_first_and_the_rest_is_forecast(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["gmf", "mlp", "ease", "popularity"]
    board = compete(dataset, models=models, output=tmp_path / "it", epochs=1)
    said = [line for line in capsys.readouterr().err.splitlines() if " of 4: " in line]
    assert said[:3] == ["1 of 4: popularity", "2 of 4: ease", "3 of 4: gmf"]
    assert re.fullmatch(r"4 of 4: mlp; about \d:\d\d:\d\d for the last 1", said[3])
    assert sorted(entry.model for entry in board.entries) == sorted(models)


def test_a_closed_form_of_another_package_is_quick(
    dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = EntryPoint("other-ease", f"{Ease.__module__}:Ease", "foretaste.models")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "other_models", lambda: {other.name: other})
        models = ["gmf", other.name, "ease"]
        compete(dataset, models=models, output=tmp_path / "it", epochs=1, search=False)
    said = [line for line in capsys.readouterr().err.splitlines() if " of 3: " in line]
    assert said == ["1 of 3: ease", "2 of 3: other-ease", "3 of 3: gmf"]


def test_an_interrupted_competition_resumes(
    dataset: Dataset, board: Leaderboard, tmp_path: Path
) -> None:
    arguments: dict[str, Any] = {"models": MODELS[::-1], "output": tmp_path / "it", "epochs": 3}
    with raises(Interrupted, tmp_path / "it"):
        compete(dataset, callback=Trained(signal.SIGTERM), **arguments)
    trained = Trained()
    again = compete(dataset, callback=trained, **arguments)
    assert trained.models == ["gmf"]  # the quick ones were trained before
    assert trained.resumed == ["gmf"]
    values = [[e.evaluation and e.evaluation.metrics for e in b.entries] for b in (again, board)]
    assert values[0] == values[1]


def test_a_model_that_cannot_be_trained_is_a_row_with_its_reason(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (UnsupportedError("ease takes too much"), RuntimeError("out of memory, 9 GiB")):

        def refuse(*_: object, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(Ease, "fit", refuse)
        board = compete(
            dataset, models=["ease", "popularity"], output=tmp_path / "it", callback=Callback()
        )
        assert [entry.model for entry in board.entries] == ["popularity", "ease"]
        assert board.entries[1].reason == str(error)
        assert f"ease has no numbers: {error}" in board.notes()
        assert board.rows()[0].keys() == board.rows()[1].keys()
        assert board.grid().rows[1][1][0].value == "-"
    with pytest.raises(RuntimeError, match="9 GiB"):
        compete(dataset, models=["ease"], output=tmp_path / "it", callback=Callback())


def test_the_table_says_which_epochs_the_test_part_chose(table_file: Path, tmp_path: Path) -> None:
    data = prepare(table_file, tmp_path / "data", protocol="leave-one-out", validation="none")
    arguments: dict[str, Any] = {"models": ["popularity", "ials"], "callback": Callback()}
    board = compete(data, epochs=2, output=tmp_path / "it", **arguments)
    says(note_of(board, "the best epoch"), "ials")
    says(note_of(board, "--epochs"), "--epochs 2")
    board = compete(data, epochs=2, eval_every=2, output=tmp_path / "once", **arguments)
    assert not any("flatter" in line for line in board.notes())
    with raises(SettingError, data.path, "--validation hold-out"):
        compete(data, tune=2, output=tmp_path / "tuned", **arguments)
    assert not (tmp_path / "tuned").exists()


def test_a_directory_keeps_its_settings(
    dataset: Dataset, board: Leaderboard, table_file: Path, tmp_path: Path
) -> None:
    with raises(SettingError, board.path, "seed", 1, 2, "--output"):
        compete(dataset, models=MODELS, output=board.path, epochs=3, seed=2)
    with raises(SettingError, board.path, "tune", False, True, "--output"):
        compete(dataset, models=MODELS, output=board.path, epochs=3, tune=2)
    other = prepare(table_file, tmp_path / "other", protocol="held-out-users", num_heldout_users=9)
    digests = (one.manifest.digest for one in (dataset, other))
    with raises(SettingError, board.path, "dataset", *digests, "--output"):
        compete(other, models=MODELS, output=board.path, epochs=3)
    with raises(SettingError, dataset.path, "--output"):
        compete(dataset, output=dataset.path)
    with training_lock(board.path), raises(RunError, board.path, os.getpid(), gethostname()):
        compete(dataset, models=MODELS, output=board.path, epochs=3)
    settings = board.path / "settings.json"
    content = settings.read_text()
    settings.write_text(content.replace("full", "none"))
    with raises(RunError, settings, "sha256"):
        compete(dataset, models=MODELS, output=board.path, epochs=3)
    settings.write_text(content)


def test_mistakes_are_found_before_anything_is_trained(
    dataset: Dataset, table_file: Path, tmp_path: Path
) -> None:
    with raises(SettingError, "model", "easy", *MODEL_NAMES, "ease"):
        compete(dataset, models=["ease", "easy"], output=tmp_path / "it")
    with raises(SettingError, "models", ()):
        compete(dataset, models=[], output=tmp_path / "it")
    with raises(SettingError, "luck@10", "ndcg@10"):
        compete(dataset, metrics=["luck@10"], output=tmp_path / "it")
    everything = prepare(table_file, tmp_path / "all", protocol="none")
    with raises(DatasetError, everything.path, "none"):
        compete(everything, output=tmp_path / "it")
    assert not (tmp_path / "it").exists()


def entry(model: str, value: float, elapsed_s: float, to_best: Difference | None) -> Entry:
    metric = Metric(name="ndcg@10", value=value, low=value - 0.01, high=value + 0.01)
    evaluation = Evaluation(
        split="test",
        protocol="leave-one-out",
        candidates="full",
        metrics={"ndcg@10": metric},
        num_users=100,
        num_users_without_target=0,
        num_unseen_targets=0,
        num_short_candidate_lists=0,
        num_samples=1000,
        elapsed_s=0.5,
    )
    return Entry(model=model, evaluation=evaluation, elapsed_s=elapsed_s, to_best=to_best)


def test_a_star_counts_every_comparison() -> None:
    def difference(z: float) -> Difference:
        return Difference(
            name="ndcg@10", value=-0.01 * z, low=0.01 * (-1.96 - z), high=0.01 * (1.96 - z)
        )

    # p-values .32, .036, .0088 and .0027, and ten pairs of five models: the level is .005
    entries = (
        entry("vae", 0.3, 9.0, None),
        entry("gmf", 0.29, 9.0, difference(1.0)),
        entry("mlp", 0.28, 9.0, difference(2.1)),
        entry("ease", 0.27, 9.0, difference(2.62)),
        entry("popularity", 0.1, 9.0, difference(3.0)),
    )
    assert entries[3].to_best is not None
    assert entries[3].to_best.p_value == pytest.approx(0.00879, abs=1e-5)
    assert entries[2].to_best is not None
    assert entries[2].to_best.is_clear, "its own interval leaves out 0"
    board = Leaderboard(path=Path(), select_by="ndcg@10", metrics=("ndcg@10",), entries=entries)
    assert board.clearly_worse() == {"popularity"}
    says(board.advice(), "vae", "ndcg@10", "0.3000", "gmf, mlp, ease")
    assert [row["is_clearly_worse"] for row in board.rows()] == [False] * 4 + [True]
    assert [" *" in str(cells[1]) for _, cells in board.grid().rows] == [False] * 4 + [True]
    two = replace(board, entries=(entries[0], entries[2]))
    assert two.clearly_worse() == {"mlp"}, "of one pair the level is .05"


def test_the_advice_names_the_models_that_list_new_items() -> None:
    def listing(share: float, model: str, value: float) -> Entry:
        one = entry(model, value, 1.0, None)
        assert one.evaluation is not None
        found = Metric(name="new_items@20", value=share, low=None, high=None)
        metrics = one.evaluation.metrics | {found.name: found}
        return replace(one, evaluation=replace(one.evaluation, metrics=metrics))

    entries = listing(0.0, "ials", 0.3), listing(0.2, "ease", 0.2), listing(0.4, "slist", 0.1)
    board = Leaderboard(path=Path(), select_by="ndcg@10", metrics=("ndcg@10",), entries=entries)
    says(board.advice(), "ials", "ndcg@10", "0.3000", 3, "ease, slist")
    of_ease = replace(board, entries=entries[1:])
    assert "new items" not in of_ease.advice()


def test_a_clearly_better_blend_is_reported_and_the_best_single_model_taken() -> None:
    better = Difference(name="ndcg@10", value=0.01, low=0.006, high=0.014)
    entries = (
        entry("ease", 0.3, 9.0, None),
        replace(
            entry(
                "blend", 0.31, 9.0, Difference(name="ndcg@10", value=0.01, low=0.006, high=0.014)
            ),
            members=(("ease", 0.7), ("rp3beta", 0.3)),
        ),
    )
    board = Leaderboard(path=Path(), select_by="ndcg@10", metrics=("ndcg@10",), entries=entries)
    assert (board.clear(), board.clearly_worse()) == ({"blend"}, set())
    interval = ("0.0100", "+0.0060", "+0.0140")
    single = ("ease", "ndcg@10", "0.3000", "0.2900–0.3100", 1)
    says(board.advice(), *single, "0.7 ease", "0.3 rp3beta", *interval)
    little = replace(entries[1], to_best=replace(better, low=-0.004, high=0.024))
    assert "blend" not in replace(board, entries=(entries[0], little)).advice()


def test_advice_is_by_quality() -> None:
    worse = Difference(name="ndcg@10", value=-0.02, low=-0.03, high=-0.01)
    alike = Difference(name="ndcg@10", value=-0.001, low=-0.01, high=0.008)
    entries = (
        entry("vae", 0.3, 300.0, None),
        entry("gmf", 0.299, 240.0, alike),
        entry("ease", 0.288, 2.0, worse),
        entry("popularity", 0.1, 0.01, worse),
    )
    board = Leaderboard(path=Path(), select_by="ndcg@10", metrics=("ndcg@10",), entries=entries)
    says(board.advice(), "vae", "ndcg@10", "0.3000", "0.2900–0.3100", 4, "gmf")
    assert f"\n{board.advice()}" in str(board)
    assert entries[0].users_per_s == 200
    board = replace(board, entries=(entries[0], replace(entries[3], to_best=alike)))
    says(board.advice(), "vae", "ndcg@10", "0.3000", 2)
    assert entries[0].evaluation is not None
    unknown = replace(entries[0].evaluation, num_users_unknown=180, num_users=200)
    new = replace(board, entries=(replace(entries[0], evaluation=unknown), *board.entries[1:]))
    split = "--protocol leave-one-out or held-out-users"
    says(new.advice(), "vae", "ndcg@10", "0.3000", 2, split, "90%")
