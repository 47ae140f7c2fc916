"""The reference scripts' options by command and model, and what each comes to in our words.

NCF is the script of ``neumf``, ``gmf`` and ``mlp``, VAE that of ``vae`` and ``dae``. Options that
have the same name and meaning here are not listed.
"""

from __future__ import annotations

from collections.abc import Mapping

from foretaste.cli.legacy_line import Meaning
from foretaste.cli.legacy_meanings import (
    dataset_in,
    fixed_loss_scale,
    half_precision,
    left_aside,
    measured_epochs,
    other_dataset,
    other_dataset_in,
    prepared_in,
    run_has,
    says,
    shape_of,
    shape_of_only_dataset,
    sizes_of,
    start_from,
    the_dataset,
    the_run,
    the_source,
    turns_on,
)
from foretaste.cli.legacy_tokens import NCF_MODELS, VAE_MODELS, Command

FIRST = ("--loss-scale", "--warm-up-epochs")
"""Options that others depend on."""

LAST = ("--checkpoint-dir", "--load-checkpoint-path")
"""Options that say what others have not said."""


_PRECISION: dict[str, Meaning] = dict.fromkeys(("--amp", "--fp16"), half_precision)
_NCF_OPTIMIZER = ("--learning-rate", "-l", "--beta1", "--beta2", "-b1", "-b2", "--eps")
_VAE_OPTIMIZER = ("--lr", "--beta1", "--beta2")

_TRAIN: dict[str, Meaning] = {
    **_PRECISION,
    "--loss-scale": fixed_loss_scale,
    "--xla": turns_on("--compile"),
    "--checkpoint-dir": says("--run"),
}
_TRAIN_NCF: dict[str, Meaning] = {
    **_TRAIN,
    "--data": the_dataset,
    "--negative-samples": says("--negatives"),
    "--topk": says("--select-by", "hr@{}"),
    "-k": says("--select-by", "hr@{}"),
    "-b1": says("--beta1"),
    "-b2": says("--beta2"),
    "--no-neg-trick": turns_on("--verified-negatives"),
    "--valid-negative": says("--candidates", "nvidia-{}"),
    "--valid-users-per-batch": says("--evaluation-batch"),
    "--load-checkpoint-path": start_from,
}
_TRAIN_VAE: dict[str, Meaning] = {
    **_TRAIN,
    "--data-dir": dataset_in,
    "--batch-size-train": says("--batch-size"),
    "--batch-size-validation": says("--evaluation-batch"),
    "--validation-step": says("--eval-every"),
    "--total-anneal-steps": says("--anneal-steps"),
    "--lam": says("--l2"),
    "--lr": says("--learning-rate"),
    "--top-results": says("--select-by", "ndcg@{}"),
}

_EVALUATE: dict[str, Meaning] = {
    "--data": other_dataset,
    "--data-dir": other_dataset_in,
    "--load-checkpoint-path": the_run,
    "--checkpoint-dir": the_run,
    "--topk": says("--k"),
    "--top-results": says("--k"),
    "--valid-negative": says("--candidates", "nvidia-{}"),
    "--valid-users-per-batch": says("--evaluation-batch"),
    "--batch-size-validation": says("--evaluation-batch"),
}
_OF_TRAINING: dict[str, Meaning] = {
    **dict.fromkeys(
        (
            *("--epochs", "-e", "--batch-size", "-b", "--negative-samples", "-n"),
            *("--seed", "-s", "--target", "-t", "--dropout", "--amp", "--fp16", "--xla"),
            *("--loss-scale", "--no-neg-trick", "--eval-after", "--verbose", "--trace"),
            *("--batch-size-train", "--validation-step", "--warm-up-epochs"),
            *("--total-anneal-steps", "--anneal-cap", "--lam", *_NCF_OPTIMIZER, *_VAE_OPTIMIZER),
        ),
        left_aside,
    ),
    "--factors": run_has("factors"),
    "-f": run_has("factors"),
    "--layers": run_has("layers"),
    "--activation": run_has("activation"),
}
"""What a script's command line may say of training when it evaluates."""

_BENCH: dict[str, Meaning] = {
    "--data": shape_of,
    "--data-dir": shape_of_only_dataset,
    "--log-path": says("--output"),
}
_UNTIMED = dict.fromkeys(
    (
        *(*_NCF_OPTIMIZER, *_VAE_OPTIMIZER, "--eval-after", "--validation-step", "--verbose"),
        *("--valid-users-per-batch", "--batch-size-validation"),
    ),
    left_aside,
)
_BENCH_TRAIN: dict[str, Meaning] = {
    **_PRECISION,
    **_BENCH,
    **_UNTIMED,
    "--checkpoint-dir": left_aside,
    "--loss-scale": says("--precision", "fp16"),
    "--xla": turns_on("--compile"),
    "--epochs": measured_epochs,
    "-e": measured_epochs,
    "--warm-up-epochs": says("--warmup"),
}
_BENCH_TRAIN_NCF: dict[str, Meaning] = {
    **_BENCH_TRAIN,
    "--negative-samples": says("--negatives"),
    "--topk": says("--select-by", "hr@{}"),
    "-k": says("--select-by", "hr@{}"),
    "--no-neg-trick": turns_on("--verified-negatives"),
    "--valid-negative": says("--candidates", "nvidia-{}"),
}
_BENCH_TRAIN_VAE: dict[str, Meaning] = {
    **_BENCH_TRAIN,
    "--batch-size-train": says("--batch-size"),
    "--total-anneal-steps": says("--anneal-steps"),
    "--lam": says("--l2"),
    "--top-results": left_aside,
}
_BENCH_ANSWERS: dict[str, Meaning] = {
    **_BENCH,
    **_UNTIMED,
    **dict.fromkeys(
        (
            *("--amp", "--fp16", "--xla", "--loss-scale", "--epochs", "-e", "--warm-up-epochs"),
            *("--negative-samples", "-n", "--no-neg-trick", "--valid-negative", "--target", "-t"),
            *("--batch-size-train", "--total-anneal-steps", "--anneal-cap", "--lam"),
        ),
        left_aside,
    ),
    "--batch-size": says("--batch-sizes"),
    "-b": says("--batch-sizes"),
    "--checkpoint-dir": sizes_of,
    "--load-checkpoint-path": sizes_of,
}
_ASIDE_LENGTHS: dict[str, Meaning] = dict.fromkeys(("--topk", "-k", "--top-results"), left_aside)
_ASKED_LENGTHS: dict[str, Meaning] = dict.fromkeys(("--topk", "--top-results"), says("--k"))

_BY_COMMAND: Mapping[tuple[str, str | None], Mapping[str, Meaning]] = {
    **{("train", model): _TRAIN_NCF for model in NCF_MODELS},
    **{("train", model): _TRAIN_VAE for model in VAE_MODELS},
    ("evaluate", None): _EVALUATE,
    ("bench train", "neumf"): _BENCH_TRAIN_NCF,
    ("bench train", "vae"): _BENCH_TRAIN_VAE,
    ("bench inference", "neumf"): {**_BENCH_ANSWERS, **_ASIDE_LENGTHS, **_PRECISION},
    ("bench inference", "vae"): {**_BENCH_ANSWERS, **_ASIDE_LENGTHS},
    **{
        ("bench recommend", model): {**_BENCH_ANSWERS, **_ASKED_LENGTHS}
        for model in ("neumf", "vae")
    },
    ("prepare", None): {"--data-dir": prepared_in, "--path": the_source},
}


def meanings(command: Command) -> Mapping[str, Meaning]:
    """The options of the scripts that a command takes, by name; none for other commands."""
    return _BY_COMMAND.get((command.verb, command.model), {})


def meanings_when_testing() -> Mapping[str, Meaning]:
    """The same where a script's command line evaluates: it may say how training went, too."""
    return {**_OF_TRAINING, **_EVALUATE}
