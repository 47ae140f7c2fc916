"""Command lines of the reference scripts in our words, and contradictory lines."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from foretaste.cli.app import app
from foretaste.cli.nvidia import translate
from foretaste.cli.nvidia_rules import FLAGS, NCF_MODELS, VAE_MODELS
from foretaste.data import open_dataset
from foretaste.data.manifest import Manifest
from foretaste.errors import ForetasteError
from foretaste.runs import Run
from tests.cli.conftest import Foretaste, call, refused
from tests.cli.test_nvidia_options import EVALUATIONS, TRAININGS
from tests.docs.pages import page
from tests.docs.test_settings import commands_of
from tests.messages import Named, raises, says

CONSTANT = "--learning-rate-schedule constant"


def ours(line: str) -> str:
    """The line in our words; without notes."""
    tokens, notes = translated(line)
    assert notes == []
    return tokens


def translated(line: str) -> tuple[str, list[str]]:
    """The line in our words, without the schedule of trainings, and the notes on it."""
    tokens, notes, _ = translate(line.split())
    return " ".join(tokens).replace(f" {CONSTANT}", ""), [*notes]


@pytest.mark.parametrize("model", ["neumf", "vae"])
def test_the_learning_rate_is_constant_as_theirs_was(model: str) -> None:
    line = f"train {model} data --amp --device cpu"
    tokens = translate(line.split()).line
    assert " ".join(tokens).endswith(CONSTANT)
    tokens = translate(f"{line} --learning-rate-schedule cosine".split()).line
    assert CONSTANT not in " ".join(tokens)


def test_a_loss_scale_wins_over_amp() -> None:
    found = ours("train vae data --amp --loss-scale 128 --device cpu")
    assert "--precision fp16" in found
    assert "bf16" not in found


def test_amp_is_fp16_if_the_device_has_no_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    found = ours("train neumf data --amp --device cuda:0")
    assert found == "train neumf data --device cuda:0 --precision fp16"


def test_the_inference_benchmark_runs(foretaste: Foretaste, tmp_path: Path) -> None:
    """One user at a time is measured at the sizes of a dataset, and the rows go to the named
    file."""
    line = "train vae data --inference_benchmark --amp --checkpoint_dir runs/vae --device cpu"
    done = foretaste(f"{line} --calls 2 --repeats 1 --log_path {tmp_path}/rows.jsonl")
    assert done.status == 0, done.err
    says(done.err.splitlines()[0], "--amp, --checkpoint_dir", "fp32")
    (row,) = map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines())
    assert row["case"]["batch_size"] == 1
    assert row["shape"]["num_users"] < 1000, "those of the dataset, not of MovieLens 20M"
    assert "| foretaste | fp32 | 1 | new users |" in done.out


def test_a_benchmark_names_idle_options() -> None:
    line = "train vae --inference_benchmark --lr 0.1 --epochs 3 --shape ml-1m"
    _, (note,) = translated(line)
    says(note, "--lr, --epochs", "fp32")


def test_the_vae_prepares_movielens_20m(tmp_path: Path) -> None:
    raw = tmp_path / "ml-20m" / "extracted" / "ml-20m"
    asked = f"prepare --data_dir {tmp_path}"
    start = "prepare ml-20m --protocol held-out-users"
    assert ours(asked) == f"{start} --output {tmp_path}/ml-20m"
    raw.mkdir(parents=True)
    assert ours(asked) == f"{start} --source-dir {raw} --output {tmp_path}/ml-20m/prepared"


NCF = "--protocol leave-one-out --filters reference"
VAE = "--protocol held-out-users --filters reference"


@pytest.mark.parametrize(
    ("line", "found", "added"),
    [
        ("prepare --path ratings.csv --output out", "prepare ratings.csv --output out", NCF),
        (
            "prepare --data_dir d --path ratings.csv --protocol none --filters none",
            "prepare ratings.csv --protocol none --filters none --output d/ratings",
            "",
        ),
        ("train neumf --data ratings.csv --run x", "train neumf ratings.csv --run x", NCF),
        ("train vae ratings.csv --train --run x", "train vae ratings.csv --run x", VAE),
        ("train vae ml-20m --train --run x", "train vae ml-20m --run x", VAE),
        ("train vae data --train --run x", "train vae data --run x", ""),
        ("prepare --path x.train.rating --output out", "prepare x.train.rating --output out", ""),
        ("train neumf --data x.train.rating --run x", "train neumf x.train.rating --run x", ""),
    ],
)
def test_raw_data_are_split_as_their_scripts_did(
    line: str, found: str, added: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop)
    tokens, notes = translated(line)
    assert sorted(tokens.split()) == sorted(f"{found} {added}".split())
    assert len(notes) == bool(added)
    for note in notes:
        says(note, added)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        (
            "train neumf data --negative-samples 3 --negatives 4",
            ("--negatives and --negative-samples", "--negatives"),
        ),
        ("train neumf data --topk 5 -k 7", ("--topk and -k", "--select-by")),
        ("train neumf data --data ratings.csv", ("--data ratings.csv and data",)),
        ("train neumf data --mode try", ("--mode", "try", "train or test")),
        ("train neumf data --topk --amp", ("--topk",)),
        (
            "train vae data --train --inference_benchmark",
            ("foretaste train vae", "--train and --inference_benchmark"),
        ),
        (
            "train dae data --inference_benchmark",
            ("foretaste train dae", "--inference_benchmark", "train vae --inference_benchmark"),
        ),
        (
            "train vae --data_dir runs",
            ("--data-dir runs", "prepare ml-20m --protocol held-out-users --data-dir runs"),
        ),
        (
            "train vae --test --top_results 5",
            ("test", "--checkpoint_dir or --load-checkpoint-path"),
        ),
        (
            "train neumf data --mode test",
            ("test", "--checkpoint-dir or --load-checkpoint-path"),
        ),
        ("train vae shoes --data_dir .", ("shoes", "foretaste prepare shoes --data-dir .")),
    ],
)
def test_a_wrong_line_gives_one_clear_error(
    foretaste: Foretaste, tmp_path: Path, line: str, named: Named
) -> None:
    place = f" --run {tmp_path}/run" if line.startswith("train") and "--mode" not in line else ""
    refused(foretaste(line + place), *named)
    assert not (tmp_path / "run").exists()


def test_every_other_line_stays_unchanged() -> None:
    for line in (
        "train --resume runs/x --verbose",
        "train popularity data --run runs/popularity --train",
        "bench recommend neumf --topk 5",
        "prepare --train a.csv --test b.csv",
        "train neumf data --learning_rate=0.1 -k5",
    ):
        assert translate(line.split()) == (line.split(), (), None)


def test_both_names_of_half_precision_are_one() -> None:
    found = ours("train neumf data --amp --fp16 --device cpu")
    assert found == "train neumf data --device cpu --precision bf16"


PROTOCOLS = ("leave-one-out", "held-out-users", "temporal")


@pytest.fixture
def three(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dataset of each of three protocols, in place of the scripts' own folder."""
    root = shop / "three"
    for protocol in PROTOCOLS:
        done = call("prepare", shop / "ratings.csv", "--protocol", protocol, "--data-dir", root)
        assert done.status == 0, done.err
        (root / "ratings").rename(root / protocol)
    monkeypatch.setattr("foretaste.cli.nvidia_rules.DATA", root)
    monkeypatch.chdir(shop)
    return root


def test_the_dataset_with_the_scripts_protocol_is_taken_among_several(three: Path) -> None:
    assert ours(f"train vae --data_dir {three}") == f"train vae {three}/held-out-users"
    assert ours(f"evaluate runs/vae --data-dir {three}").endswith(
        f"--dataset {three}/leave-one-out"
    )
    shutil.copytree(three / "leave-one-out", three / "again")
    assert ours(f"train vae --data_dir {three}") == f"train vae {three}/held-out-users"
    with raises(ForetasteError, three, f"{three}/again, {three}/leave-one-out"):
        translate(f"evaluate runs/vae --data-dir {three}".split())
    (three / "held-out-users").rename(three / ".hidden")
    all_three = f"{three}/again, {three}/leave-one-out, {three}/temporal"
    with raises(ForetasteError, three, all_three):
        translate(f"train vae --data_dir {three}".split())


def test_the_scripts_folder_is_searched_if_no_dataset_is_named(three: Path) -> None:
    def check_taken(dataset: str) -> None:
        tokens, notes = translated("train dae --batch_size_train 64")
        assert tokens.split()[2] == dataset
        (note,) = notes
        says(note, dataset)

    check_taken(f"{three}/held-out-users")
    three.rename("datasets")
    check_taken("datasets/held-out-users")
    refused(call("train", "vae", "--epochs", "1"), "DATASET")  # our own words name it


def test_without_any_dataset_the_error_says_how_to_make_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretaste.cli.nvidia_rules.DATA", tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    with raises(ForetasteError, tmp_path / "data", "datasets", "foretaste prepare ml-20m"):
        translate(["train", "vae", "--train"])


def test_a_dataset_is_found_among_options() -> None:
    for line in ("--train --hidden 8 16 data", "--train --verbose data --epochs=3"):
        assert ours(f"train vae {line}").split().count("data") == 1


def test_old_words_replace_what_an_earlier_training_wrote(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    """The second of two equal trainings says that it replaces the first."""
    Path("checkpoints").mkdir()
    line = (
        "train vae data --hidden 8 --latent 4 --epochs 1 --batch_size_train 64 --checkpoint_dir "
        "checkpoints --log_path log.jsonl --results_dir results"
    )
    first = foretaste(line)
    assert (first.status, first.err) == (0, "")
    again = foretaste(f"{line} --seed 2")
    assert again.status == 0
    says(again.err, "checkpoints", "log.jsonl, results", "--overwrite")
    assert "Run: checkpoints" in again.out
    assert Run.open("checkpoints").config.asked["seed"] == 2
    assert json.loads(Path("results", "args.json").read_text())["seed"] == 2
    assert Path("log.jsonl").read_bytes() == Path("checkpoints", "metrics.jsonl").read_bytes()


def test_old_words_replace_neither_a_run_of_another_model_nor_what_is_none(
    foretaste: Foretaste,
) -> None:
    for place in ("runs/gmf", "data"):
        line = f"train vae data --batch_size_train 64 --epochs 1 --checkpoint_dir {place}"
        refused(foretaste(line), place, "--overwrite")
    assert "--overwrite" not in ours("train vae data --epochs 1 --run runs/vae")


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("train vae data --lam 1.0", ["--lam 1.0"]),
        (
            "train neumf data --topk 5 --dropout 0.5 --target 0.9",
            ["--dropout 0.5", "--target 0.9"],
        ),
        ("train neumf data --loss-scale 8192", ["--loss-scale 8192"]),
        ("train neumf data --loss-scale 8192 --precision fp16", []),
    ],
)
def test_options_that_act_here_alone_are_noted(line: str, named: list[str]) -> None:
    _, notes = translated(line)
    for note, option in zip(notes, named, strict=True):
        says(note, option)


def test_checkpoints_of_tensorflow_are_refused_as_such(foretaste: Foretaste) -> None:
    Path("old").mkdir()
    Path("old", "model.ckpt.index").touch()
    for line in (
        "train neumf data --load-checkpoint-path old/model.ckpt",
        "train vae --test --checkpoint_dir old",
        "recommend old --user 1",
        "train vae data --checkpoint_dir old",
    ):
        refused(foretaste(line), "old")
    assert [path.name for path in Path("old").iterdir()] == ["model.ckpt.index"]


def test_a_dataset_of_a_test_may_stand_behind_its_options() -> None:
    run = "--checkpoint_dir runs/vae"
    found = ours(f"train vae {run} --test --quiet data")
    assert found == "evaluate runs/vae --quiet --dataset data"
    _, notes = translated(f"train vae data {run} --test --results_dir results")
    says(notes[0], "--results_dir")


def test_a_checkpoint_in_a_run_is_the_run() -> None:
    assert ours("evaluate runs/gmf/model.ckpt -k 5") == "evaluate runs/gmf -k 5"
    assert ours("evaluate runs/gmf/model.ckpt-1600") == "evaluate runs/gmf"
    assert ours("evaluate --more runs/gmf/model.ckpt") == "evaluate runs/gmf --more"


def test_every_option_without_a_value_is_known_as_one() -> None:
    """The word after the option is no value, so it may be the dataset or run."""
    commands = commands_of(app)
    for model in (*NCF_MODELS, *VAE_MODELS):
        for command in ("evaluate", "prepare", f"train {model}"):
            for argument in commands[f"foretaste {command}"].assemble_argument_collection():
                if argument.hint in (bool, bool | None):
                    assert argument.names[0] in FLAGS


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ("", "--batch-sizes 1 --history-length 10 --shape ml-20m"),
        ("--data_dir .", "--shape SHAPE --batch-sizes 1 --history-length 10"),
        (
            "--top_results 50 -b 8 --data_dir .",
            "--k 50 --batch-sizes 8 --shape SHAPE --history-length 10",
        ),
    ],
)
def test_the_inference_benchmark_asks_what_theirs_asked(
    line: str, options: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One user has ten random items among as many items as the reference has."""
    monkeypatch.chdir(shop)
    manifest = open_dataset("data").manifest
    sizes = f"{manifest.num_train_users}x{manifest.num_items}"
    options = options.replace("SHAPE", f"{sizes}x{manifest.num_interactions}")
    assert ours(f"train vae --inference_benchmark {line}") == f"bench recommend vae {options}"


NCF_OPTIONS = """
    --data -e --epochs -b --batch-size --valid-users-per-batch -f --factors --layers -n
    --negative-samples -l --learning-rate -k --topk -s --seed -t --target --amp --fp16 --xla
    --valid-negative -b1 --beta1 -b2 --beta2 --eps --dropout --loss-scale --checkpoint-dir
    --load-checkpoint-path --mode --eval-after --log-path --no-neg-trick --verbose
"""
VAE_OPTIONS = """
    --train --test --inference_benchmark --amp --epochs --batch_size_train
    --batch_size_validation --validation_step --warm_up_epochs --total_anneal_steps --anneal_cap
    --lam --lr --beta1 --beta2 --top_results --xla --trace --activation --log_path --seed
    --data_dir --checkpoint_dir --results_dir
"""


@pytest.mark.parametrize(("heading", "options"), [("NCF", NCF_OPTIONS), ("VAE-CF", VAE_OPTIONS)])
def test_the_page_maps_every_option(heading: str, options: str) -> None:
    text = page("coming-from-nvidia.md").text.partition("## Every option")[2]
    table = text.partition(f"### {heading}\n")[2].partition("\n#")[0]
    missing = [name for name in options.split() if f"`{name}`" not in table]
    assert not missing


def test_every_option_is_tried() -> None:
    """Every option of the scripts is part of a training in test_nvidia_options.py."""
    lines = " ".join(line for line, _ in TRAININGS.values())
    lines += " ".join(line for line, _ in EVALUATIONS.values()) + " --inference_benchmark"
    tried = {part.partition("=")[0] for part in lines.split()}
    assert set((NCF_OPTIONS + VAE_OPTIONS).split()) <= tried


def test_a_note_below_the_table_explains_its_lower_numbers(foretaste: Foretaste) -> None:
    line = "train gmf --data data -e 1 -f 4 -b 500 --checkpoint-dir run"
    done = foretaste(line)
    assert done.status == 0
    says(done.err, 100, "--valid-negative 100")
    test = "train gmf --data data --mode test --load-checkpoint-path run/model.ckpt"
    assert foretaste(test).err == done.err
    assert "whole catalogue" not in foretaste(f"{test} --valid-negative 10").err
    assert foretaste("evaluate run").err == ""


def test_the_three_files_of_the_ncf_paper_are_read_behind_old_names(foretaste: Foretaste) -> None:
    rows = [
        f"{user}\t{(user * step) % 23}\t4\t{step}\n" for user in range(1, 21) for step in range(9)
    ]
    Path("x.train.rating").write_text("".join(rows))
    Path("x.test.rating").write_text(
        "".join(f"{user}\t{user + 1}\t4\t9\n" for user in range(1, 21))
    )
    assert foretaste("prepare x.train.rating --output new").status == 0
    assert foretaste("prepare --path x.train.rating --output old").status == 0
    assert Manifest.read(Path("new")).digest == Manifest.read(Path("old")).digest
    assert foretaste("train gmf --data x.train.rating -e 1 -f 4 -b 500 --run run").status == 0
    assert Run.open("run").config.dataset.digest == Manifest.read(Path("new")).digest
