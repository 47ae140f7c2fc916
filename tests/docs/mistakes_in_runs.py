"""Mistakes in training, runs, questions and command lines, by the entry's heading."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import foretaste
from foretaste.ops.ranks import Ranks
from foretaste.runs import Run, saved_tensors
from foretaste.runs.saved_tensors import OwnRows
from tests.docs.mistakes import (
    HEADER,
    PAIRS,
    Mistake,
    cut,
    damage,
    edit_json,
    make_folder,
    parquet,
    python,
    remove,
    run,
)
from tests.ranks import run_ranks

_VAE = "train vae data --epochs 1 --run runs/new"
_NEUMF = "train neumf data --factors 2 --layers 4 2 --epochs 2 --run runs/new"
_GMF = "train gmf data --factors 2 --epochs 1 --run runs/new"


@contextmanager
def no_compiler() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("CXX", raising=False)
        yield


@contextmanager
def no_memory() -> Iterator[None]:
    def refuse(*_: object, **__: object) -> None:
        bytearray(1 << 60)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.training.train", refuse)
        yield


@contextmanager
def no_tensorboard() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.runs.log_copies.find_spec", lambda name: None)
        yield


@contextmanager
def no_altair() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.report.contents.find_spec", lambda name: None)
        yield


@contextmanager
def no_onnxscript() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "onnxscript", None)
        yield


@contextmanager
def few_steps() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.models.baselines.ials_scorer._MOST_STEPS", 3)
        yield


@contextmanager
def other_lists() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.export.program.ABSENT", 0.0)
        yield


def make_pipe(name: str) -> None:
    Path(name).unlink()
    os.mkfifo(name)


def edit_text(name: str, old: str, new: str) -> None:
    """Replace the first place of a text in a file."""
    text = Path(name).read_text()
    assert old in text
    Path(name).write_text(text.replace(old, new, 1))


def train_another(path: str, other: str) -> None:
    """Put the weights of a second training, by another seed, into the run of the first."""
    settings = foretaste.VAEConfig(hidden=(8,), latent=4)
    config = foretaste.TrainingConfig(epochs=1, seed=2)
    foretaste.train("vae", "data", model_config=settings, config=config, run_path=other)
    shutil.copy(f"{other}/best.safetensors", path)


def save_by_ranks(ranks: Ranks, path: str, epoch: int) -> None:
    """Save a run's weights again, its users' in shards."""
    run = Run.open(path)
    weights = {name: tensor + epoch for name, tensor in run.load_weights().items()}
    rows = ranks.part_of(run.num_train_users)
    weights["user_factors"] = weights["user_factors"][rows.start : rows.stop]
    ranks.on_each(lambda: None)  # all have read them
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(saved_tensors, "MOST_OF_FREE_MEMORY", 0.0)
        own = OwnRows(ranks, lambda name: rows if name == "user_factors" else None)
        run.save_weights(weights, epoch, own)


def shared_out(path: str, epoch: int) -> list[Path]:
    """Save a run's weights by two ranks; returns the shards."""
    run_ranks(save_by_ranks, 2, str(Path(path).absolute()), epoch)
    return sorted(Path(path).glob("best-*"))


def mix_shards(path: str) -> None:
    """Put a shard of earlier weights in the place of the present one."""
    earlier = shared_out(path, 1)[0].read_bytes()
    shared_out(path, 2)[0].write_bytes(earlier)


@contextmanager
def no_data_of_the_scripts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.cli.nvidia_paths.DATA", Path("nowhere"))
        yield


def many_items() -> str:
    """Half a million items, of which a weight for every pair would take a terabyte."""
    return HEADER + "".join(f"{item % 1000},{item},5,{item}\n" for item in range(500_000))


TRAINING_SETTINGS = {
    "A number out of range": run(f"{_VAE} --learning-rate 0"),
    "A number that is not whole": python("foretaste.TrainingConfig(batch_size=0.5)"),
    "Neither True nor False": python("foretaste.TrainingConfig(cuda_graphs='no')"),
    "A choice that is none": python("foretaste.TrainingConfig(precision='fp64')"),
    "A schedule without its epochs": python(
        "foretaste.TrainingConfig(learning_rate_schedule='cosine')"
    ),
    "A schedule that would be stopped": python(
        "foretaste.TrainingConfig(learning_rate_schedule='cosine', epochs=9, patience=5)"
    ),
    "A schedule that is none": python("foretaste.TrainingConfig(schedule_epochs=9)"),
    "A schedule that ends before": python(
        "foretaste.TrainingConfig(learning_rate_schedule='cosine', epochs=9, schedule_epochs=8)"
    ),
    "A model that is none": python("foretaste.train('bpr', 'data')"),
    "Settings of another model": python(
        "foretaste.train('vae', 'data', model_config=foretaste.NeuMFConfig())"
    ),
    "A setting by name that belongs elsewhere": python("foretaste.train('vae', 'data', factors=8)"),
    "A setting by name that is none": python("foretaste.train('vae', 'data', epoch=20)"),
    "A setting that does nothing": python("foretaste.train('ease', 'data', epochs=20)"),
    "Validation where nothing is held out": python(
        "foretaste.fit('gmf', 'data', epochs=3, patience=2)"
    ),
    "A split to learn all of": python("foretaste.fit('ease', 'ratings.csv', protocol='temporal')"),
    "No epochs to find": Mistake(
        python="foretaste.fit('gmf', 'few.csv')", files={"few.csv": f"{PAIRS}1,1\n2,2\n"}
    ),
    "Negatives for a model that draws none": python(
        "foretaste.train('vae', 'data', sampling=foretaste.SamplingConfig())"
    ),
    "A tower that cannot be": run("train neumf data --layers 15 8"),
    "A loss of cosines for a tower": python("foretaste.train('neumf', 'data', loss='ccl')"),
    "A margin without ccl": run(f"{_GMF} --loss bce --margin 0.2"),
    "A logit adjustment without softmax": run(f"{_GMF} --loss bce --logit-adjustment 0.3"),
    "A temperature of no cosines": run(f"{_GMF} --loss bce --temperature 0.1"),
    "A dot product of cosines": run(f"{_GMF} --loss ccl --dot-product"),
    "A ccl without cosines": run(f"{_GMF} --loss ccl --no-cosine"),
    "Biases of cosines": run(f"{_GMF} --loss ccl --biases"),
    "A KL term weighed twice": run(f"{_VAE} --kl-weight 0.01 --anneal-cap 0.2"),
    "An interaction without its negatives": run(f"{_GMF} --loss softmax --batch-layout shuffled"),
    "Shared negatives of samples on their own": run(
        f"{_GMF} --shared-negatives --batch-layout shuffled"
    ),
    "More shared negatives than items": run(f"{_GMF} --shared-negatives --negatives 5000"),
    "Hidden layers that cannot be": run(f"{_VAE} --hidden 0"),
    "A device that is none": run(f"{_VAE} --device gpu"),
    "No GPU is found": run(f"{_VAE} --device cuda"),
    "tf32 on a CPU": run(f"{_VAE} --precision tf32 --device cpu"),
    "A loss scale without fp16": python(
        "foretaste.train('vae', 'data', config=foretaste.TrainingConfig(loss_scale=1024.0))"
    ),
    "A precision without products": run(f"{_GMF} --precision bf16"),
    "A loss scale without products": python(
        "foretaste.train('gmf', 'data', config=foretaste.TrainingConfig(loss_scale=1024.0))"
    ),
    "No compiler": Mistake(command=f"{_VAE} --compile --device cpu", within=no_compiler),
    "Candidates that are none": run(f"{_VAE} --candidates 99"),
    "Fixed candidates that did not come": run(f"{_VAE} --candidates fixed"),
    "A metric that is none": run(f"{_VAE} --select-by auc"),
    "Coverage of sampled candidates": run(
        f"{_VAE} --select-by coverage@10 --candidates sampled-99"
    ),
    "A metric of lists to select by": run(f"{_VAE} --select-by novelty@10"),
    "A target that nothing measures": run(f"{_VAE.replace('data', 'everything')} --target 0.3"),
    "A log that is a directory": run(f"{_VAE} --log-path runs"),
    "Results where there is a file": run(f"{_VAE} --results-dir ratings.csv"),
    "A log that is there already": run(f"{_VAE} --log-path notes.jsonl", notes__jsonl="mine\n"),
    "Results that are there already": Mistake(
        command=f"{_VAE} --results-dir results",
        files={"results/args.json": "{}", "results/metrics.json": "{}"},
    ),
    "TensorBoard is not installed": Mistake(command=f"{_VAE} --tensorboard", within=no_tensorboard),
    "A trace of what has no steps": python(
        "foretaste.train('ease', 'data', logs=foretaste.LogConfig(trace=True))"
    ),
}

TRAINING = {
    "The loss became nan": run(f"{_NEUMF} --batch-size 64 --learning-rate 1e30"),
    "Scores that are not finite": run(f"{_NEUMF} --learning-rate 1e30"),
    "EASE does not fit": run("train ease many.csv", many__csv=many_items()),
    "A model that does not fit": run("train gmf data --factors 1000000000"),
    "Memory that the system refuses": Mistake(command=_VAE, within=no_memory),
    "A run that is there already": run("train popularity data --run runs/vae"),
    "A run that is finished": run("train --resume runs/vae"),
    "A run that is being trained": Mistake(
        command="train --resume runs/stopped", within=lambda: Run.open("runs/stopped").in_training()
    ),
    "A saved state that was changed": run(
        "train --resume runs/stopped", damage("runs/stopped/resume.safetensors", share=1.0)
    ),
    "A log that was cut": run("train --resume runs/stopped", cut("runs/stopped/metrics.jsonl")),
    "A lock that is none": run(
        "train --resume runs/stopped",
        lambda: Path("runs/stopped/training.lock").symlink_to("ratings.csv"),
    ),
    "A run that was never finished": run("train --like runs/stopped ratings.csv"),
    "The dataset of a run is gone": run(
        "evaluate runs/vae",
        edit_json("runs/vae/config.json", "dataset", "path", value="/mnt/films", signed=True),
    ),
    "The dataset of a run is another": run("train --resume runs/stopped --dataset heldout"),
    "A start from another model": run("train vae data --from runs/gmf"),
    "A start from other scores": run(f"{_GMF} --loss bce --from runs/gmf"),
    "A start from other sizes": run("train vae data --hidden 9 --latent 3 --from runs/vae"),
    "A start without a common item": run(
        "train vae other.csv --hidden 8 --latent 4 --from runs/vae",
        other__csv=HEADER + "".join(f"1,{item},1,{item}\n" for item in range(900, 910)),
    ),
    "A start for what has no weights": python(
        "foretaste.train('ease', 'data', start_from='runs/vae')"
    ),
    "Two starts": python(
        "foretaste.train('neumf', 'data', start_from='runs/vae', pretraining="
        "foretaste.PretrainingConfig(pretrained_gmf='runs/gmf', pretrained_mlp='runs/gmf'))"
    ),
    "One half of two": run(f"{_NEUMF} --pretrained-gmf runs/gmf"),
    "Halves for what has none": python(
        "foretaste.train('vae', 'data', pretraining="
        "foretaste.PretrainingConfig(pretrained_gmf='runs/gmf', pretrained_mlp='runs/gmf'))"
    ),
}

RUNS = {
    "Not a run": run("recommend runs/absent --user 1"),
    "Neither a dataset nor a run": run("verify runs"),
    "A check that fails": run("verify runs/vae", damage("runs/vae/histories.parquet")),
    "Not a run directory": run("recommend data --user 1"),
    "A run that is not whole": run("recommend runs/vae --user 1", remove("runs/vae/users.parquet")),
    "A file of a run that was changed": run(
        "recommend runs/vae --user 1", damage("runs/vae/items.parquet")
    ),
    "A pipe in the place of a file": run(
        "recommend runs/vae --user 1", lambda: make_pipe("runs/vae/items.parquet")
    ),
    "A config that is torn": run("recommend runs/vae --user 1", cut("runs/vae/config.json")),
    "A config of something else": run(
        "recommend runs/vae --user 1", edit_json("runs/vae/config.json", "format", value="other")
    ),
    "A config of another version": run(
        "recommend runs/vae --user 1",
        edit_json("runs/vae/config.json", "format_version", value=99),
    ),
    "A config that was changed": run(
        "recommend runs/vae --user 1",
        lambda: edit_text("runs/vae/config.json", '"epochs": 2', '"epochs": 3'),
    ),
    "A config that is damaged": run(
        "recommend runs/vae --user 1",
        edit_json("runs/vae/config.json", "seed", value="one", signed=True),
    ),
    "Weights that were changed": run(
        "recommend runs/vae --user 1", damage("runs/vae/best.safetensors")
    ),
    "Weights that are torn": run("recommend runs/vae --user 1", cut("runs/vae/best.safetensors")),
    "A shard that is missing": run(
        "recommend runs/gmf --user 1", lambda: shared_out("runs/gmf", 1)[1].unlink()
    ),
    "A shard of another saving": run("recommend runs/gmf --user 1", lambda: mix_shards("runs/gmf")),
    "Weights of another run": run(
        "recommend runs/vae --user 1",
        lambda: Path("runs/vae/best.safetensors").write_bytes(
            Path("runs/gmf/best.safetensors").read_bytes()
        ),
    ),
    "Weights of another training": run(
        "recommend runs/vae --user 1", lambda: train_another("runs/vae", "runs/other")
    ),
    "A log that was changed": run(
        "verify runs/vae",
        lambda: edit_text("runs/vae/metrics.jsonl", '"event": "start"', '"event": "stop"'),
    ),
    "No weights yet": run(
        "recommend runs/stopped --user 1", lambda: Run.open("runs/stopped").begin_anew()
    ),
}

QUESTIONS = {
    "An unknown user": run("recommend runs/vae --user 7000"),
    "Unknown users where there can be none": run(
        "recommend runs/vae --all --unknown skip --output lists.csv"
    ),
    "An item that training never saw": run("similar runs/heldout --item 9017"),
    "An unknown item": run("similar runs/vae --item 7000"),
    "A model that compares no items": run("similar runs/popularity --item 100"),
    "A length that cannot be": run("recommend runs/vae --user 1 -k 0"),
    "Whom to recommend to": run("recommend runs/vae"),
    "Similar to which items": run("similar runs/vae"),
    "A file for everybody": run("recommend runs/vae --all"),
    "Metrics and lengths": run("evaluate runs/vae -k 5 --metric ndcg@10"),
    "A format beside a file": run("recommend runs/vae --user 1 --format csv --output lists.csv"),
    "How to read a file that is not there": run("recommend runs/vae --user 1 --delimiter ;"),
    "An output of no known format": run("recommend runs/vae --all --output lists.xlsx"),
    "An output without a folder": run("recommend runs/vae --all --output out/lists.csv"),
    "An output that is a folder": run(
        "recommend runs/vae --all --output lists.csv", make_folder("lists.csv")
    ),
    "An output folder that is a file": run(
        "recommend runs/vae --all --output lists/", lists="mine\n"
    ),
    "An output folder with other files": run(
        "recommend runs/vae --all --output lists/ --overwrite", **{"lists/notes__txt": "mine"}
    ),
    "An output that is there already": run(
        "recommend runs/vae --all --output lists.csv", lists__csv="mine\n"
    ),
    "A file of ids that is not there": run("recommend runs/vae --users-file who.txt"),
    "A file without ids": run("recommend runs/vae --users-file who.txt", who__txt="\n"),
    "A file of ids without a header": run(
        "recommend runs/vae --users-file who.csv", who__csv="1\n2\n"
    ),
    "An empty id in a file": run(
        "recommend runs/vae --users-file who.csv", who__csv="user,name\n1,Ana\n,Ben\n"
    ),
    "A file of ids that is not UTF-8": run(
        "recommend runs/vae --users-file who.txt", who__txt=b"caf\xe9\n"
    ),
    "A column of no ids": run(
        "recommend runs/vae --users-file who.parquet", who__parquet=parquet({"user": [1.5]})
    ),
    "A missing id in a column": run(
        "recommend runs/vae --users-file who.parquet", who__parquet=parquet({"user": [1, None]})
    ),
    "No ids where ids belong": python("foretaste.load('runs/vae').recommend(4.5)"),
    "A score of an item that training never saw": python(
        "foretaste.load('runs/heldout').score_for([100], 9017)"
    ),
    "Vectors of a model that has none": python("foretaste.load('runs/popularity').user_vectors()"),
    "Item vectors of EASE": python(
        "foretaste.load(foretaste.train('ease', 'data')).item_vectors()"
    ),
    "No part to measure on": run("evaluate runs/everything"),
    "Fixed candidates to measure on": run("evaluate runs/vae --candidates fixed"),
    "Lengths that cannot be": run("evaluate runs/vae -k 0"),
    "History lengths of known users": run("evaluate runs/vae --history-lengths 1 5"),
    "One run to compare": run("compare runs/vae"),
    "Runs of different datasets": run("compare runs/vae runs/heldout"),
    "A report of no known format": run("report runs/vae --output report.pdf"),
    "A report, and no Altair": Mistake(command="report runs/vae", within=no_altair),
    "A report on what holds nothing out": run("train ease everything --report report.html"),
    "One run to blend": run("blend runs/vae"),
    "Runs of different datasets to blend": run("blend runs/vae runs/heldout"),
    "Weights of other runs": run("blend runs/vae runs/gmf --weights 1"),
    "A blend without a validation part": python(
        "foretaste.blend(['runs/everything', foretaste.train('ease', 'everything')])"
    ),
    "A blend of nothing": run("blend runs/vae runs/gmf --weights 0 0"),
    "An unfinished run to blend": run("blend runs/vae runs/stopped"),
    "Vectors of a blend": python(
        "foretaste.load(foretaste.blend(['runs/vae', 'runs/gmf'], weights=[1, 1])).item_vectors()"
    ),
    "Other data that a run was trained on": run("evaluate runs/everything --dataset data"),
    "Other data without a common item": run(
        "evaluate runs/vae --dataset other",
        lambda: foretaste.prepare(
            pa.table({"user_id": [1] * 4, "item_id": [1, 2, 3, 4], "timestamp": [1, 2, 3, 4]}),
            "other",
        ),
    ),
}

EXPORTS = {
    "An export in the place of something": run("export runs/vae --output data"),
    "An export that would replace something else": run("export runs/vae --output data --overwrite"),
    "Exporting, and no onnxscript": Mistake(
        command="export runs/vae --output exported", within=no_onnxscript
    ),
    "Too many steps for a program": Mistake(
        command="export runs/ials --output exported --format torch",
        change=lambda: foretaste.train("ials", "data", run_path="runs/ials", factors=2, epochs=1),
        within=few_steps,
    ),
    "A program with other lists": Mistake(
        command="export runs/vae --output exported --format torch", within=other_lists
    ),
}

MANY_TRAININGS = {
    "A competition begun with other settings": run(
        "compete data --models popularity --seed 2",
        lambda: foretaste.compete("data", models=["popularity"]) and None,
    ),
    "A competition in a directory of something else": run("compete data --output runs"),
    "Nothing to search": run("tune ease data --l2 100 --dropout 0.1"),
    "No part to choose settings by": run(
        "tune ease whole", lambda: foretaste.prepare("ratings.csv", "whole", validation="none")
    ),
    "A publication that is not known": run("reproduce bert4rec"),
    "A dataset that is split in another way": run("reproduce ncf-paper --dataset data"),
}

COMMAND_LINES = {
    "An unknown command": run("trian vae data"),
    "An unknown option": run("train vae data --epoch-count 3"),
    "Weights of interactions": run("prepare ratings.csv --weight-column rating"),
    "An option without its value": run("train vae data --epochs"),
    "An option of another command": run("train vae data --factors 8"),
    "A command among options": run("train vae data --resume runs/vae"),
    "Other settings for a training that goes on": run("train --resume runs/vae --epochs 50"),
    "Other settings for a run that is repeated": run("train --like runs/vae data --epochs 50"),
    "An option that is needed": run("similar --item 1"),
    "A word that is one too many": run("recommend runs/vae data"),
    "A fraction of an epoch": run("train vae data --epochs 3.5"),
    "A choice that is not on the list": run("prepare ratings.csv --protocol random"),
}

OLD_NAMES = {
    "Two names for one option": run(f"{_NEUMF} --negatives 4 --negative-samples 5"),
    "Two datasets": run("train neumf data --data heldout"),
    "Several datasets in a folder": run(
        "train vae --train --data_dir .", lambda: shutil.copytree("heldout", "again")
    ),
    "No dataset named, and none to be found": Mistake(
        command="train vae --train", within=no_data_of_the_scripts
    ),
    "No dataset in a folder": run("train vae --train --data_dir runs"),
    "A test without a run": run("train neumf --mode test --data data"),
    "A test of other sizes": run(
        "train gmf --mode test --load-checkpoint-path runs/gmf --factors 8"
    ),
    "A checkpoint of TensorFlow": run(
        "train neumf --mode test --load-checkpoint-path checkpoints/model.ckpt.index"
    ),
    "A mode that is none": run("train neumf data --mode predict"),
    "Two commands in one": run("evaluate runs/vae --train"),
}
