"""``foretaste tune`` and ``compete``."""

from __future__ import annotations

import csv
import re

import pytest

from foretaste import training
from foretaste.runs import Run
from tests.cli.conftest import Foretaste, refused


def test_compete_prints_its_table_and_advice(foretaste: Foretaste) -> None:
    done = foretaste("compete data --models popularity ease --metrics hr@10 --candidates sampled-9")
    assert done.status == 0, done.err
    assert "Training popularity on data" in done.err
    assert "candidates sampled-9" in done.out
    assert "every run is kept in competitions/data" in done.out
    assert "\ntake " in done.out
    assert Run.open("competitions/data/ease").config.asked["candidates"] == "sampled-9"
    listed = foretaste("runs competitions/data --quiet").out.split()
    assert set(listed) == {"competitions/data/popularity", "competitions/data/ease"}
    assert "foretaste compare competitions/data/" in done.out
    assert "--like" not in done.out, "it would train the same once more"
    done = foretaste(
        "compete data --models popularity,ease --candidates sampled-9 -q --format csv -m hr@10"
    )
    assert done.err == ""
    rows = list(csv.DictReader(done.out.splitlines()))
    assert {row["model"] for row in rows} == {"popularity", "ease"}
    assert float(rows[0]["hr@10"]) >= float(rows[1]["hr@10"])


def test_one_model_is_not_compared(foretaste: Foretaste) -> None:
    done = foretaste("compete data --models popularity --metrics hr@10 --output alone")
    assert done.status == 0, done.err
    assert "the best of 1 model\n" in done.out
    assert done.out.endswith("Next:\n  foretaste evaluate alone/popularity\n")


def test_the_best_model_is_then_trained_on_everything(foretaste: Foretaste) -> None:
    given = "ratings.csv --items items.csv --protocol leave-one-out"
    done = foretaste(f"compete {given} --models popularity --output it")
    assert done.status == 0, done.err
    *_, line = done.out.splitlines()
    assert line == ("  foretaste train --like it/popularity ratings.csv --items items.csv")
    done = foretaste(f"{line.removeprefix('  foretaste ')} --run everything")
    assert done.status == 0, done.err
    run = Run.open("everything")
    assert (run.config.dataset.protocol, run.items.titles() is not None) == ("none", True)


def test_a_blend_says_which_runs_gain_nothing(
    foretaste: Foretaste, monkeypatch: pytest.MonkeyPatch
) -> None:
    for l2 in (100, 101):
        done = foretaste(f"train ease data --l2 {l2} --run ease-{l2} -q")
        assert done.status == 0, done.err
    monkeypatch.setattr(training, "blend_weights", lambda *_, **__: (1.0, 0.0))
    done = foretaste("blend ease-100 ease-101 --run blended")
    assert done.status == 0, done.err
    assert [line for line in done.out.splitlines() if line.startswith("weight ")] == [
        "weight 1  ease-100 (ease)",
        "weight 0  ease-101 (ease): validation gains nothing by it",
    ]
    refused(foretaste("blend ease-100 ease-101 --run blended"), "blended", "--overwrite")
    refused(foretaste("blend ease-100 ease-101 --run other --weights 0.7"), 1, 2)


def test_tune_prints_its_trials(foretaste: Foretaste) -> None:
    pytest.importorskip("optuna", reason="the extra tune is not installed")
    done = foretaste("tune gmf data --trials 2 --epochs 1 --negatives 4 --factors 4 --output it")
    assert done.status == 0, done.err
    header = done.out.strip().splitlines()[0].split()
    assert {"trial", "learning_rate", "temperature", "ndcg@10"} <= {*header}
    assert not {"negatives", "epochs", "factors"} & {*header}, "what is given is not searched"
    assert "the same again: foretaste train gmf" in done.out
    chosen = [line for line in done.err.splitlines() if line.startswith("  auto chose")]
    assert len(chosen) == 2
    assert "--learning-rate " not in chosen[1]
    assert "--batch-size" in chosen[1]
    searched = [line for line in done.err.splitlines() if line.startswith("  searched")]
    assert len(searched) == 2
    assert "--learning-rate 0." in searched[1]
    for number in range(2):
        config = Run.open(f"it/trial-00{number}").config
        assert (config.model_config["negatives"], config.asked["epochs"]) == (4, 1)
    done = foretaste("tune ease data --trials 2 --output pass")
    searched = [line for line in done.err.splitlines() if line.startswith("  searched")]
    assert len(searched) == 2, "fitted in one pass"
    assert all("--l2 " in line for line in searched)
    assert re.search(r" and: foretaste train --like pass/trial-00[01] DATASET\n$", done.out)
    done = foretaste("tune ease data --trials 3 --output pass --time 10")
    refused(done, "--time", 10, "90s, 10m or 2h")
    assert foretaste("tune ease data --trials 3 --output pass --time 10m").status == 0
    assert Run.open("pass/trial-002").is_finished
    assert foretaste("tune popularity data").status == 2
    refused(foretaste("tune ease data --trials 0"), "trials", 0, 1)
