"""``foretaste train``: its output and its files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretaste.cli.train_options import train_on_everything
from foretaste.data import IdTable
from foretaste.data.request import PrepareRequest
from foretaste.runs import Run
from tests.cli.conftest import Done, Foretaste, refused


def test_the_output_of_a_training(foretaste: Foretaste, tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = "--hidden 16 --latent 4 --epochs 3 --target 0.000001"
    done = foretaste(f"train vae data {options} --eval-every 1 --run {run}")
    assert done.status == 0
    assert done.err == ""
    assert "Training vae on data (leave-one-out)\n" in done.out
    assert "  data        120 users, " in done.out
    assert re.search(r"  auto chose  --batch-size \d+ --learning-rate ", done.out)
    chosen = done.out.partition("auto chose")[2].partition("\n")[0]
    assert "--epochs" not in chosen
    assert "--kernels" not in chosen
    assert "  best epoch  chosen by ndcg@10 on the validation part\n" in done.out
    assert re.search(r"^epoch +loss +ndcg@10 +hr@10 +time +samples/s$", done.out, re.MULTILINE)
    assert re.search(
        r"^    1 +\d+\.\d{5} +0\.\d{4} \* +0\.\d{4} +\d+\.\d\d s +\S", done.out, re.MULTILINE
    )
    assert re.search(r"  best epoch  1 of 1, ndcg@10 0\.\d{4}\n", done.out)
    assert re.search(
        r"  target      ndcg@10 1e-06 first reached in epoch 1, after \S+ s\n", done.out
    )
    assert re.search(r"  epoch time  min \S+ s, mean \S+ s, all \S+ s\n", done.out)
    assert re.search(r"  throughput  .* samples/s\n", done.out)
    assert re.search(r"  evaluation  min \S+ s, mean \S+ s, .* users/s, .* samples/s\n", done.out)
    assert re.search(r"^ metric +@10 +@20 +@50 +@100 *$", done.out, re.MULTILINE)
    assert "\ntest part, protocol leave-one-out, candidates full, 120 users\n" in done.out
    assert "@k: " not in done.out
    assert f"\nRun: {run}\nNext:\n  foretaste recommend {run} --user 1\n" in done.out
    assert Run.open(run).has_weights


def test_half_a_pretraining_is_refused(foretaste: Foretaste) -> None:
    done = foretaste("train neumf data --pretrained-gmf runs/gmf")
    refused(done, "--pretrained-gmf RUN", "--pretrained-mlp RUN", "pretrained_mlp is not given")


def test_a_fitted_model_has_no_epochs(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste(
        f"train ease data --l2 20 --no-search --candidates sampled-9 --run {tmp_path}/ease"
    )
    assert done.status == 0, done.err
    assert re.search(r"  fitted in   \S+ s\n", done.out)
    assert "epoch" not in done.out
    assert "protocol leave-one-out, candidates sampled-9, 120 users" in done.out
    config = Run.open(tmp_path / "ease").config
    assert config.model_config == {
        "l2": 20.0,
        "dropout": 0.5,
        "user_power": 0.0,
        "neighbors": "all",
        "ignore_weights": False,
        "feature_weight": 0.0,
        "feature_power": 0.5,
        "new_item_factor": 1.0,
    }
    assert config.resolved["candidates"] == "sampled-9"


def test_without_validation_the_choice_is_labelled(foretaste: Foretaste, tmp_path: Path) -> None:
    foretaste(f"prepare ratings.csv --validation none -o {tmp_path}/data")
    done = foretaste(f"train mlp {tmp_path}/data --layers 8 4 --epochs 2 --run {tmp_path}/run")
    assert done.status == 0, done.err
    assert (
        "  best epoch  chosen by ndcg@10 on the test part itself, so its numbers flatter"
        in done.out
    )


@pytest.mark.parametrize("verb", ["prepare", "train"])
def test_ids_of_another_type_than_the_run_s_are_refused(
    foretaste: Foretaste, tmp_path: Path, verb: str
) -> None:
    (tmp_path / "more.csv").write_text("user_id,item_id\n1,1\n2,zzz\n")
    line = f"train --like runs/popularity {tmp_path}/more.csv --run {tmp_path}/run"
    if verb == "prepare":
        line = f"prepare {tmp_path}/more.csv --like runs/popularity --output {tmp_path}/data"
    refused(foretaste(line), "more.csv", 3, "item_id", "zzz")
    (tmp_path / "more.csv").write_text("user_id,item_id\n1,1\n2,2\n2,3\n")
    if verb == "prepare":
        assert foretaste(f"{line} --item-id-type text --protocol none").status == 0
        assert IdTable.read(tmp_path / "data" / "items.parquet").ids() == ["1", "2", "3"]


def test_like_repeats_a_run_on_everything(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste(f"train --like runs/vae ratings.csv --run {tmp_path}/shop")
    assert done.status == 0, done.err
    assert "(nothing is held out)\n" in done.out
    assert "  best epoch  the last: nothing is held out" in done.out
    assert "metric" not in done.out
    original, repeated = Run.open("runs/vae").config, Run.open(tmp_path / "shop").config
    assert repeated.model_config == original.model_config
    assert repeated.resolved["epochs"] <= original.resolved["epochs"]
    assert repeated.dataset.protocol == "none"


def test_like_says_what_it_repeats(foretaste: Foretaste, tmp_path: Path) -> None:
    line = f"prepare ratings.csv --protocol none --min-item-users 2 --output {tmp_path}/data"
    assert foretaste(line).status == 0
    assert foretaste(f"train popularity {tmp_path}/data --run {tmp_path}/first").status == 0
    line = f"train --like {tmp_path}/first ratings.csv --run {tmp_path}/again"
    done = foretaste(line)
    assert f"like: --min-item-users 2 as {tmp_path}/first\n" in done.out
    assert foretaste(f"{line}2 --quiet").out == f"{tmp_path}/again2\n"


def test_like_takes_the_features_of_a_run(foretaste: Foretaste, tmp_path: Path) -> None:
    """Raw files are prepared with the columns that are given, or that the run had."""
    train = "ratings.csv --items items.csv"
    done = foretaste(f"train popularity {train} --features genre --run {tmp_path}/first")
    assert done.status == 0, done.err
    data = PrepareRequest.of("ratings.csv", items="items.csv", features=("genre", "tags,"))
    (words,) = train_on_everything(tmp_path / "first", data)
    assert words[4:] == ("ratings.csv", "--items", "items.csv", "--features", "genre", "tags,")
    done = foretaste(f"train --like {tmp_path}/first {train} --run {tmp_path}/again")
    assert done.status == 0, done.err
    for name in ("first", "again"):
        assert Run.open(tmp_path / name).config.dataset.feature_columns == ("genre",)
    done = foretaste(f"train --like {tmp_path}/first ratings.csv --run {tmp_path}/without")
    assert done.status == 0, done.err
    assert Run.open(tmp_path / "without").config.dataset.feature_columns == ()
    assert foretaste(f"train ease {train} --features genre --run {tmp_path}/ease").status == 0
    done = foretaste(f"train --like {tmp_path}/ease ratings.csv --run {tmp_path}/refused")
    refused(done, "features", "genre")


def test_like_keeps_the_protocol_of_a_dataset(foretaste: Foretaste, tmp_path: Path) -> None:
    line = "train --like runs/gmf data"
    done = foretaste(f"{line} --run {tmp_path}/again")
    assert done.status == 0, done.err
    assert Run.open(tmp_path / "again").config.dataset.protocol == "leave-one-out"


def test_verbose_shows_settings_and_all_that_a_validation_found(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    options = "--hidden 8 --latent 4 --epochs 2 --eval-every 2 --verbose --warm-up-epochs 1"
    done = foretaste(f"train vae data {options} --run {tmp_path}/run")
    assert done.status == 0, done.err
    assert "  settings    epochs=2 batch_size=" in done.out
    before, _, _ = done.out.partition("\n\n  ended ")
    first, second = re.split(r"\n    [12] ", before)[1:]
    assert re.search(r"^ +kl weight 0\.005, learning rate 0\.003", first, re.MULTILINE)
    assert "users in" not in first
    assert re.search(
        r"^ +120 users in \S+ s: hr@10 0\.\d{4} \(0\.\d{4}–0\.\d{4}\), ndcg@10 .* "
        r"mrr@10 0\.\d{4} \(\S+\)$",
        second,
        re.MULTILINE,
    )
    assert re.search(r"mean \S+ s \(1 of 2 left out\), all \S+ s\n", done.out)


def test_a_quiet_training_prints_the_run_alone(foretaste: Foretaste, tmp_path: Path) -> None:
    line = "train mlp --layers 8 4 -e 1 --no-neg-trick --quiet data"
    done = foretaste(f"{line} --run {tmp_path}/run")
    assert done == Done(0, f"{tmp_path}/run\n", "")
    assert Run.open(tmp_path / "run").has_weights
