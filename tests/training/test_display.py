"""A training on a terminal, from the command line and from Python."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from foretaste._util.formatting import option_words
from foretaste.data import Dataset
from foretaste.evaluation import Evaluation
from foretaste.models.config import TrainingSize
from foretaste.models.linear.ease import Ease
from foretaste.models.neumf.config import GMFConfig
from foretaste.models.neumf.model import GMF
from foretaste.training import Callback, TrainingConfig, resume, train
from foretaste.training.auto import resolve
from foretaste.training.callbacks import EpochReport, TrainingStart
from foretaste.training.display import TrainingDisplay
from tests.measure.test_tables import evaluation
from tests.training.test_interruption import Killing
from tests.training.trainings import events, run_of

ASKED = TrainingConfig(epochs=3, device="cpu")


def started(**asked: Any) -> TrainingStart:
    size = TrainingSize(
        num_interactions=1000, num_users=100, num_items=50, protocol="leave-one-out"
    )
    return TrainingStart(
        model="gmf",
        dataset="data",
        protocol="leave-one-out",
        plan=resolve(
            replace(ASKED, **asked), GMF, size, model_config=GMFConfig(negatives=4), device="cpu"
        ),
        model_settings={"temperature": 0.15},
        num_users=100,
        num_items=50,
        num_interactions=1000,
        num_parameters=2400,
        num_samples=5000,
        num_steps_per_epoch=10,
        selection_split="validation",
        started_from={},
        resumed_at=None,
    )


def epoch_report(epoch: int, loss: float = 0.25, found: Evaluation | None = None) -> EpochReport:
    return EpochReport(
        epoch=epoch,
        step=10 * epoch,
        loss=loss,
        train_s=0.5,
        samples_per_s=10_000.0,
        settings={},
        evaluation=found,
        is_best=found is not None,
    )


def watched(
    *, terminal: bool, loss: float = 0.25, found: Evaluation | None = None, **asked: Any
) -> str:
    """The output of two steps and the end of an epoch."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with TrainingDisplay(console, ASKED) as display:
        display.started(started(**asked))
        display.stepped(2, 1, 10)
        display.stepped(2, 10, 10)
        display.evaluating("validation", 40, 100)
        display.bars.refresh()
        display.epoch_done(epoch_report(2, loss, found))
    return out.getvalue()


def test_a_terminal_shows_a_bar() -> None:
    text = watched(terminal=True)
    assert "ranking validation" in text
    assert " 40 %" in text
    assert "\x1b[2K" in text


def test_a_fit_shows_its_steps_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 10.0, 15.0])
    monkeypatch.setattr("foretaste.training.display.time.perf_counter", lambda: next(clock))
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with TrainingDisplay(console, ASKED) as display:
        monkeypatch.setattr(display.bars, "refresh", lambda: None)
        bar = display.bars.tasks[0]
        display.fitting("counting", 1, 4)
        display.fitting("counting", 3, 4)
        assert (bar.description, bar.completed, bar.total) == ("counting", 3, 4)
        assert bar.fields["detail"] == "0:00:05 left"
        display.fitting("inverting", 10, 100)
        assert (bar.description, bar.completed, bar.total) == ("inverting", 10, 100)


def test_after_the_first_epoch_a_terminal_shows_how_long_all_of_them_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Validation counts: each of three epochs takes ten seconds of steps and ten of ranking."""
    clock = iter([0.0, 0.0, 9.0, 20.0, 30.0])
    monkeypatch.setattr("foretaste.training.display.time.perf_counter", lambda: next(clock))
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with TrainingDisplay(console, ASKED) as display:
        monkeypatch.setattr(display.bars, "refresh", lambda: None)
        display.started(started())
        display.stepped(1, 1, 10)
        display.stepped(1, 10, 10)
        epoch_bar, training_bar = display.bars.tasks
        assert epoch_bar.fields["detail"] == "500 samples/s, 0:00:00 left"
        assert not training_bar.visible
        display.epoch_done(epoch_report(1))
        assert training_bar.visible
        assert training_bar.description == "all 3 epochs"
        assert training_bar.fields["detail"] == "0:00:44 left"
        display.stepped(2, 5, 10)
        assert (training_bar.completed, training_bar.total) == (1.5, 3)
        assert training_bar.fields["detail"] == "0:00:32 left"


def test_the_last_epoch_leaves_no_time() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100)
    with TrainingDisplay(console, ASKED) as display:
        display.started(started())
        display.epoch_done(epoch_report(3))
        assert not display.bars.tasks[1].visible


@pytest.mark.parametrize(
    ("select_by", "headings", "values"),
    [
        ("hr@10", "hr@10 ndcg@10", "0.6000 * 0.3000"),
        ("ndcg@5", "ndcg@5 hr@5", "0.2500 * 0.5000"),
        ("recall@5", "recall@5 hr@5 ndcg@5", "0.4000 * 0.5000 0.2500"),
    ],
)
def test_the_line_of_an_epoch_has_hr_and_ndcg(select_by: str, headings: str, values: str) -> None:
    found = evaluation(hr_5=0.5, ndcg_5=0.25, recall_5=0.4, hr_10=0.6, ndcg_10=0.3)
    *_, heading, line = watched(terminal=False, found=found, select_by=select_by).splitlines()
    assert heading.split() == ["epoch", "loss", *headings.split(), "time", "samples/s"]
    assert line.split() == ["2", "0.25000", *values.split(), "0.50", "s", "10", "k"]


def test_the_end_says_how_long_evaluation_and_the_target_took(
    dataset: Dataset, tmp_path: Path
) -> None:
    out = io.StringIO()
    asked = TrainingConfig(epochs=3, device="cpu", target=1e-6)
    with TrainingDisplay(Console(file=out, width=200), asked) as display:
        run = run_of("gmf", dataset, tmp_path / "run", callback=display, target=1e-6)
    (summary,) = events(run, "summary")
    assert summary["target_epoch"] == summary["num_epochs"] == 1
    assert summary["stopped_because"] == "ndcg@10 reached 1e-06"
    (epoch,), (validation, test) = events(run, "epoch"), events(run, "evaluation")
    validation_s = validation["evaluation"]["elapsed_s"]
    assert summary["min_evaluation_s"] == summary["avg_evaluation_s"] == validation_s
    assert summary["target_s"] == epoch["train_s"] + validation_s
    num_samples = sum(part["evaluation"]["num_samples"] for part in (validation, test))
    elapsed_s = validation_s + test["evaluation"]["elapsed_s"]
    assert summary["evaluated_samples_per_s"] == pytest.approx(num_samples / elapsed_s)
    text = " ".join(out.getvalue().split())
    assert f"first reached in epoch 1, after {summary['target_s']:.3g} s" in text
    assert f"evaluation min {validation_s:.3g} s, mean {validation_s:.3g} s, " in text


def test_a_training_that_learns_nothing_warns(dataset: Dataset, tmp_path: Path) -> None:
    out = io.StringIO()
    asked = TrainingConfig(epochs=1, device="cpu", batch_size=100_000)
    with TrainingDisplay(Console(file=out, width=200), asked) as display:
        run_of("gmf", dataset, tmp_path / "run", callback=display, epochs=1, batch_size=100_000)
    text = " ".join(out.getvalue().split())
    assert re.search(
        r"popularity ndcg@10 0\.\d{4} on the same users; gmf has [+-]0\.\d{4} \(", text
    )
    note = (
        r"gmf is not clearly better than popularity: 1 update an epoch, in batches of 100,000; auto"
    )
    assert re.search(note + r" takes \d", text)


def test_the_bar_is_gone_when_a_training_fails() -> None:
    out = io.StringIO()
    with (
        pytest.raises(RuntimeError, match="diverged"),
        TrainingDisplay(Console(file=out, force_terminal=True), ASKED) as display,
    ):
        raise RuntimeError("diverged")
    assert not display.bars.live.is_started
    assert out.getvalue().rstrip().endswith("\x1b[2K")


def test_a_huge_loss_keeps_to_its_column() -> None:
    assert "    2  1.0224e+15" in watched(terminal=False, loss=1.0224e15)


class Stream(io.StringIO):
    """A stream for stderr that is a terminal or not."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def shown_on(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Stream:
    """The stream after it has replaced stderr."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_training_from_python_is_shown_on_a_terminal(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed training is shown too."""
    with pytest.raises(KeyboardInterrupt):
        run_of("gmf", dataset, tmp_path / "run", callback=Killing("epoch 2"))
    first = shown_on(Stream(terminal=True), monkeypatch)
    run_of("gmf", dataset, tmp_path / "other")
    second = shown_on(Stream(terminal=True), monkeypatch)
    resume(tmp_path / "run")
    for stream, verb in ((first, "Training"), (second, "Resuming")):
        said = stream.getvalue()
        assert f"{verb} gmf on {dataset.path}" in said
        assert "epoch 3 of 3" in said
        assert "ended       all 3 epochs are done" in said
    assert "    1   " in first.getvalue()
    assert "    1   " not in second.getvalue()


def test_a_fit_announces_its_work_before_it_starts(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=True), monkeypatch)
    monkeypatch.setattr(Ease, "fit", lambda *_: pytest.fail(stream.getvalue()))
    size = dataset.manifest.num_items
    with pytest.raises(pytest.fail.Exception, match=f"fitting     inverting a {size} × {size} "):
        run_of("ease", dataset, tmp_path / "run", search=False)


def test_a_search_says_what_it_chose_and_what_that_gains(
    heldout_users: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    run = train("rp3beta", heldout_users, device="cpu", run=tmp_path / "run")
    search = run.config.search
    assert search["settings"]
    words = " ".join(option_words(search["settings"]))
    fits = f"by {search['fits']} fits on the validation part"
    values = f"ndcg@100 {search['value']:.4f}, by the rule {search['value_by_rule']:.4f}"
    assert f"  searched    {words}, {fits}: {values}\n" in stream.getvalue()
    assert "  search      " in stream.getvalue()
    train("rp3beta", heldout_users, device="cpu", search=False, run=tmp_path / "no")
    assert stream.getvalue().count("  search") == 2


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.6, "--l2 5.0: ndcg@100 0.6000, by the rule 0.5000\n"),
        (0.5, "--l2 5.0: ndcg@100 0.5000, by the rule 0.5000, which is kept\n"),
        (None, "--l2 5.0 could not be fitted beside the rule, which is kept\n"),
    ],
)
def test_a_search_on_a_sample_says_what_all_data_say(value: float | None, said: str) -> None:
    out = io.StringIO()
    settings = {"l2": 5.0}
    sample = {"interactions": 1234, "settings": settings, "value": value, "value_by_rule": 0.5}
    kept = settings if value == 0.6 else {}
    search = {"settings": kept, "fits": 7, "select_by": "ndcg@100", "value": 0.4}
    with TrainingDisplay(Console(file=out, width=200), ASKED) as display:
        display._say_search(search | {"value_by_rule": 0.3, "sample": sample})
    assert out.getvalue() == (
        "  searched    --l2 5.0, by 7 fits to 1,234 interactions on the validation part: "
        f"ndcg@100 0.4000, by the rule 0.3000\n  on all data {said}"
    )


def test_settings_that_a_fit_ignores_are_named(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    shared = TrainingConfig(device="cpu", epochs=3, candidates="sampled-9", beta1=0.8)
    train("popularity", dataset, config=shared, run=tmp_path / "run")
    note = "note        popularity ignores epochs, beta1\n"
    assert note in stream.getvalue()
    train("popularity", dataset, device="cpu", run=tmp_path / "other")
    assert stream.getvalue().count("note  ") == 1


def test_sweeps_show_the_settings_that_act(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    shared = TrainingConfig(device="cpu", epochs=1, batch_size=9, search=False)
    train("ials", dataset, config=shared, run=tmp_path / "run")
    said = stream.getvalue()
    assert "note        ials ignores batch_size\n" in said
    assert (
        "auto chose  --eval-every 1 --patience 3 --select-by ndcg@10 --unobserved-weight " in said
    )


def test_no_average_is_no_choice_to_show(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    for path, settings in (("one", {}), ("two", {"learning_rate_schedule": "constant"})):
        train("recvae", dataset, device="cpu", epochs=1, run=tmp_path / path, **settings)
    chosen = [line for line in stream.getvalue().splitlines() if "auto chose" in line]
    assert ["--ema" in line for line in chosen] == [False, True]


def test_a_training_from_python_prints_plain_lines_if_stderr_is_no_terminal(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=False), monkeypatch)
    run_of("gmf", dataset, tmp_path / "piped")
    said = stream.getvalue()
    assert f"Training gmf on {dataset.path}" in said
    assert [line.split()[0] for line in said.splitlines() if line.startswith("    ")] == list("123")
    assert "\x1b" not in said
    assert "left" not in said
    assert "ranking" not in said


def test_nothing_is_shown_with_an_empty_callback(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = shown_on(Stream(terminal=True), monkeypatch)
    run_of("gmf", dataset, tmp_path / "quiet", callback=Callback())
    assert stream.getvalue() == ""


@pytest.mark.parametrize(("num_gone", "is_told"), [(3, False), (1_681, True)])
def test_a_start_that_loses_most_items_is_reported(num_gone: int, is_told: bool) -> None:
    matches = {"items": {"num_found": 3, "num_new": 0, "num_gone": num_gone}}
    out = io.StringIO()
    with TrainingDisplay(Console(file=out, width=200), ASKED) as display:
        display.started(replace(started(), started_from={"runs/first": matches}))
    assert ("most items of runs/first are not in these data" in out.getvalue()) == is_told


def test_without_a_terminal_a_line_every_half_minute_says_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    console = Console(file=io.StringIO(), width=200)
    with TrainingDisplay(console, ASKED) as display:
        display.started(started())
        for step in range(1, 11):
            now += 10.0
            display.stepped(1, step, 10)
        display.evaluating("validation", 0, 4)
        now += 40.0
        display.evaluating("validation", 1, 4)
        display.fitting("inverting", 0, 100)
        now += 50.0
        display.fitting("inverting", 25, 100)
    assert isinstance(console.file, io.StringIO)
    lines = [line.strip() for line in console.file.getvalue().splitlines() if " left" in line]
    assert lines == [
        "all 3 epochs: 10%, 0:04:30 left",
        "all 3 epochs: 20%, 0:04:00 left",
        "all 3 epochs: 30%, 0:03:30 left",
        "ranking validation: 25%, 0:02:00 left",
        "inverting: 25%, 0:02:30 left",
    ]
