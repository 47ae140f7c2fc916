"""Command lines of NVIDIA's scripts, NCF and VAE-CF, put into our options by one table.

What followed ``python ncf.py`` goes behind ``foretaste train neumf``, what followed ``python
main.py`` behind ``foretaste train vae``; ``--mode test``, ``--test`` and ``--inference_benchmark``
choose the command that does it here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from foretaste.cli import nvidia_paths as paths
from foretaste.cli.nvidia_line import (
    NCF_MODELS,
    VAE_MODELS,
    Command,
    Line,
    canonical,
    take_options,
)
from foretaste.errors import SettingError

Converter = Callable[[Line, str, str], str]
"""Our value, from the line, the option as written and its value."""

Action = Callable[[Line, str, str], None]
"""More than one option may come of these; the value is "" for a flag."""

Rule = str | tuple[str, Converter] | Action
"""Our option or place with its value (``{}`` is theirs), perhaps after a converter."""


def idle(line: Line, written: str, value: str) -> None:
    """Nothing but a note: the command has no part for the option."""
    line.idle.append(written)


def half_precision(line: Line, written: str, value: str) -> None:
    """bf16 where the device computes it, else fp16; a fixed loss scale asks for fp16."""
    if canonical(line.written_for("--precision") or "") == "--loss-scale":
        return
    from foretaste.ops.device import resolve_device
    from foretaste.training.precision import half_precision as computed_on

    device = resolve_device(line.value_of("--device") or "auto")
    line.add(written, "--precision", computed_on(device))


def fixed_loss_scale(line: Line, written: str, value: str) -> None:
    """fp16 with that scale."""
    line.add(written, "--loss-scale", value)
    if not line.has("--precision"):
        line.add(written, "--precision", "fp16")


def source_of_ncf(line: Line, written: str, value: str) -> None:
    """The file that NCF's preparation was given, which is split as that does it."""
    line.add(written, "SOURCES", value)
    paths.split_as_theirs(line, "neumf")


class Row(NamedTuple):
    """The rules of an option, by command; None where the command has the option itself."""

    train: Rule | None = None
    evaluate: Rule | None = idle
    bench_recommend: Rule | None = idle
    """Of ``--inference_benchmark``."""


_EVALUATION_BATCH = Row("--evaluation-batch {}", "--evaluation-batch {}")
_CANDIDATES = "--candidates nvidia-{}"
_HITS = "--select-by hr@{}"

_TABLE: Mapping[tuple[str, ...], Mapping[str, Row]] = {
    (*NCF_MODELS, *VAE_MODELS): {
        "--epochs -e": Row(),
        "--batch-size -b": Row(None, idle, "--batch-sizes {}"),
        "--seed -s --dropout --factors -f --layers --activation": Row(None, idle, None),
        "--learning-rate -l --beta1 --beta2 --eps --eval-after --verbose --trace": Row(),
        "--target -t": Row(),
        "--warm-up-epochs": Row(),
        "--loss-scale": Row(fixed_loss_scale),
        "--xla": Row(idle),
        "--checkpoint-dir": Row("--run {}", ("RUN {}", paths.run)),
        "--load-checkpoint-path": Row(None, ("RUN {}", paths.run)),
        "--data": Row(None, ("--dataset {}", paths.dataset), ("--shape {}", paths.shape)),
        "--data-dir": Row(None, ("--dataset {}", paths.dataset_in), ("--shape {}", paths.shape_in)),
        "--topk --top-results": Row(None, "--k {}", "--k {}"),
        "--log-path": Row(None, None, "--output {}"),
    },
    NCF_MODELS: {
        "--data": Row(("DATASET {}", paths.dataset), None, None),
        "--load-checkpoint-path": Row(("--from {}", paths.run), None, None),
        "--amp --fp16": Row(half_precision),
        "--valid-users-per-batch": _EVALUATION_BATCH,
        "--valid-negative": Row(_CANDIDATES, _CANDIDATES),
        "--negative-samples": Row("--negatives {}"),
        "-n": Row(),
        "--no-neg-trick": Row("--verified-negatives"),
        "--topk": Row(_HITS, None, None),
        "-k": Row(_HITS, None, None),
        "-b1": Row("--beta1 {}"),
        "-b2": Row("--beta2 {}"),
    },
    VAE_MODELS: {
        "--data-dir": Row(("DATASET {}", paths.dataset_in), None, None),
        "--amp --fp16": Row(half_precision),
        "--batch-size-train": Row("--batch-size {}"),
        "--batch-size-validation": _EVALUATION_BATCH,
        "--validation-step": Row("--eval-every {}"),
        "--total-anneal-steps": Row("--anneal-steps {}"),
        "--anneal-cap": Row(),
        "--lam": Row("--l2 {}"),
        "--lr": Row("--learning-rate {}"),
        "--top-results": Row("--select-by ndcg@{}", None, None),
    },
}
"""The scripts' options, by the models of their script; other commands take those of either."""

_FIRST = ("--loss-scale", "--warm-up-epochs", "--path")
"""Options that the converters of others look for."""

_MODES = {
    "--mode train": "train",
    "--mode test": "evaluate",
    "--train": "train",
    "--test": "evaluate",
    "--inference-benchmark": "bench",
}
"""The scripts' choices of what to do, and the first word of ours."""

_DOES = {"train": {"train"}, "evaluate": {"evaluate"}}
"""The choices that each command of ours fulfils."""


class Modern(NamedTuple):
    """Our command lines in the place of one of the scripts'."""

    lines: list[list[str]]
    """One, but for a mere ``prepare``: each guide has its own."""
    notes: Sequence[str] = ()
    """Sentences for the user."""


def modern(tokens: Sequence[str]) -> Modern:
    """The command lines to run, our options in the place of the scripts', and notes for the user.

    Raises SettingError where two options contradict each other, or name something that is not
    there.
    """
    typed = Command.of(tokens)
    rest = list(tokens[len(typed.words) :]) if typed else []
    if typed == Command("prepare") and not rest:
        return Modern(*paths.prepared_as_in_the_guides())
    if typed is None or not rest:
        return Modern([[*tokens]])
    command, is_theirs = _choose(typed, rest)
    is_test = command != typed and command.verb == "evaluate"
    rules = _rules(command, is_test=is_test)
    options = take_options(rules, rest)
    # The run of an evaluation may be a checkpoint of theirs.
    if not (is_theirs or options or command.verb == "evaluate"):
        return Modern([[*tokens]])
    has_dataset = command != typed and rest and not rest[0].startswith("-")
    path = rest.pop(0) if has_dataset else None
    line = Line(command, typed.model, kept=rest)
    if path is not None:
        named: Rule = ("--dataset {}", paths.dataset) if is_test else ("--shape {}", paths.shape)
        _apply(named, line, "DATASET", path)
    if typed.verb == "evaluate" and (checkpoint := line.take_place()):
        _apply(("RUN {}", paths.run), line, "RUN", checkpoint)
    # With a precision, --loss-scale is our own option of that name.
    own = "--loss-scale" if line.has("--precision") else None
    is_theirs |= any(option.name != own for option in options)
    for option in sorted(options, key=lambda option: option.name not in _FIRST):
        _apply(rules[option.name], line, option.written, option.value)
    if is_test:
        paths.replace_as_theirs(line)
    elif command != typed:
        _ask_for_one_user(line)
    elif is_theirs:
        _train_as_theirs(line)
    if not is_theirs or line.has("--quiet"):
        return Modern([line.tokens()])
    return Modern([line.tokens()], [*line.notes, *_general_notes(line)])


def _rules(command: Command, *, is_test: bool) -> dict[str, Rule]:
    """The rules of the options that a command has from its script, and idle ones of the other.

    A script's command line may name options of training where it tests.
    """
    if command.verb == "prepare":
        return {"--data-dir": paths.prepared_in, "--path": source_of_ncf}
    column = command.verb.replace(" ", "_")
    if column not in Row._fields:
        return {}
    model = command.model
    rules: dict[str, Rule] = {}
    # The rows of the model's own script come last, so that they win.
    for models, rows in sorted(_TABLE.items(), key=lambda entry: model in entry[0]):
        for names, row in rows.items():
            rule: Rule | None = getattr(row, column)
            is_foreign = model is not None and model not in models and rule is not idle
            is_of_training = command.verb == "evaluate" and rule is idle
            if rule is not None and not is_foreign and (is_test or not is_of_training):
                rules.update(dict.fromkeys(names.split(), rule))
    return rules


def _apply(rule: Rule, line: Line, written: str, value: str) -> None:
    """Put what a rule makes of an option into the line."""
    if callable(rule):
        rule(line, written, value)
        return
    template, converter = (rule, None) if isinstance(rule, str) else rule
    if converter is not None:
        value = converter(line, written, value)
    line.add(written, *template.format(value).split(" ", 1))


def _choose(typed: Command, rest: list[str]) -> tuple[Command, bool]:
    """The command that does what a script is asked for, and whether options asked for it.

    These are removed from ``rest``. SettingError where no single command does it all.
    """
    if typed.verb not in _DOES:
        return typed, False
    names = {mode.split()[0] for mode in _MODES}
    if typed.model in NCF_MODELS:
        names = {"--mode"}
    elif typed.model in VAE_MODELS:
        names -= {"--mode"}
    asked = {}
    for option in take_options(names, rest):
        mode = f"{option.name} {option.value}".strip()
        if mode not in _MODES:
            raise SettingError(f"--mode is {option.value!r}; use train or test")
        asked[_MODES[mode]] = mode if option.value else option.written
    # A training ends with the test part.
    is_whole = typed.verb == "train" and asked.keys() == {"train", "evaluate"}
    if is_whole or asked.keys() <= _DOES[typed.verb]:
        return typed, bool(asked)
    if typed.verb == "train" and len(asked) == 1:
        is_test = "evaluate" in asked
        return Command("evaluate") if is_test else Command("bench recommend", typed.model), True
    raise SettingError(
        f"foretaste {' '.join(typed.words)} does not do what {' and '.join(asked.values())} "
        f"{'says' if len(asked) == 1 else 'say'}; give a command for each"
    )


def _ask_for_one_user(line: Line) -> None:
    """Ask for one user at a time, of ten random items where no data are named."""
    written = "--inference_benchmark"
    if not line.has("--batch-sizes"):
        line.add(written, "--batch-sizes", "1")
    if not line.has("--shape"):
        if not line.has("--history-length"):
            line.add(written, "--history-length", "10")
        line.add(written, "--shape", "ml-20m")


def _train_as_theirs(line: Line) -> None:
    """Take the data and the directories that the scripts took by default."""
    command = line.command
    if command.verb == "train" and line.place is None and line.kept_place() is None:
        line.place = paths.default_dataset(command.model)
        line.notes.append(f"no DATASET: {line.place} is taken")
    if command.verb == "train":
        if not line.has("--learning-rate-schedule"):
            line.add("the default", "--learning-rate-schedule", "constant")
        if paths.is_raw(line.place or line.kept_place()):
            paths.split_as_theirs(line, command.model)
        paths.replace_as_theirs(line)


_ACTS_HERE = {
    "--l2": "acts here, as --l2: theirs was never applied, so 0 is what it amounted to",
    "--dropout": "acts here: theirs was switched off even in training, so 0 is what it amounted to",
    "--loss-scale": "acts here, in fp16: theirs was ignored",
    "--target": "ends the training here once it is reached: theirs went on to the last epoch",
}
"""Our options that do what the scripts' of the same meaning did not."""

_IDLE = {
    "train": "changes nothing here: the loss has one form, which is not compiled",
    "evaluate": "said of training, which is over; ranking is always computed in fp32",
    "bench recommend": "changes nothing about what is measured; answers are computed in fp32",
}
"""Reasons why options are idle, by our command."""

_LOSS_SCALING = "TF_ENABLE_AUTO_MIXED_PRECISION_LOSS_SCALING"


def _general_notes(line: Line) -> Iterator[str]:
    """Notes on options that act here only, on TensorFlow's loss scaling, and on idle ones."""
    for option, text in _ACTS_HERE.items() if line.command.verb == "train" else ():
        written, value = line.written_for(option), line.value_of(option)
        is_theirs = written == "--lam" if option == "--l2" else line.script_model in NCF_MODELS
        if written is not None and is_theirs:
            yield f"{written} {value}: {text}"
    if line.command.verb != "prepare" and _LOSS_SCALING in os.environ:
        yield (
            f"{_LOSS_SCALING}={os.environ[_LOSS_SCALING]} is TensorFlow's: here bf16 has no loss "
            "scale, and that of fp16 adapts, or is --loss-scale"
        )
    if line.idle:
        yield f"{', '.join(dict.fromkeys(line.idle))}: {_IDLE[line.command.verb]}"
