"""Translation of the command lines of NVIDIA's scripts, NCF and VAE-CF, by one table.

The options of ``python ncf.py`` become options of ``foretaste train neumf``, and the options of
``python main.py`` options of ``foretaste train vae``. ``--mode test``, ``--test`` and
``--inference_benchmark`` choose another command of foretaste.
"""

from __future__ import annotations

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

Converter = Callable[[Line, str], str]
"""Function from the line and the value of their option to the value of ours."""

Action = Callable[[Line, str, str], None]
"""Function that adds any number of options to the line; the value is "" for a flag."""

Rule = str | tuple[str, Converter] | Action
"""Our option or place with a value, in which ``{}`` is their value, perhaps after a converter; or
an action."""


def ignored(line: Line, written: str, value: str) -> None:
    """Ignore an option that means nothing to the command; a note says so."""
    line.idle.append(written)


def half_precision(line: Line, written: str, value: str) -> None:
    """Use bf16 if the device computes it, otherwise fp16; fp16 with a fixed loss scale."""
    # --loss-scale is in _FIRST, so it has been handled. Any option that wins over --amp must be
    # named in both places.
    if canonical(line.written_for("--precision") or "") == "--loss-scale":
        return
    from foretaste.ops.device import resolve_device
    from foretaste.training.precision import half_precision as computed_on

    device = resolve_device(line.value_of("--device") or "auto")
    line.add(written, "--precision", computed_on(device))


def fixed_loss_scale(line: Line, written: str, value: str) -> None:
    """Use fp16 with this loss scale."""
    line.add(written, "--loss-scale", value)
    if not line.has("--precision"):
        line.add(written, "--precision", "fp16")


def source_of_ncf(line: Line, written: str, value: str) -> None:
    """Prepare the source file of NCF's script, with the script's split."""
    line.add(written, "SOURCES", value)
    paths.split_as_theirs(line, "neumf")


class Row(NamedTuple):
    """The rules of an option by command; None if the command has the same option."""

    train: Rule | None = None
    evaluate: Rule | None = ignored
    bench_recommend: Rule | None = ignored
    """Rule for ``--inference_benchmark``."""


_EVALUATION_BATCH = Row("--evaluation-batch {}", "--evaluation-batch {}")
_CANDIDATES = "--candidates nvidia-{}"
_HITS = "--select-by hr@{}"

_TABLE: Mapping[tuple[str, ...], Mapping[str, Row]] = {
    (*NCF_MODELS, *VAE_MODELS): {
        "--epochs -e": Row(),
        "--batch-size -b": Row(None, ignored, "--batch-sizes {}"),
        "--seed -s --dropout --factors -f --layers --activation": Row(None, ignored, None),
        "--learning-rate -l --beta1 --beta2 --eps --eval-after --verbose --trace": Row(),
        "--target -t": Row(),
        "--warm-up-epochs": Row(),
        "--loss-scale": Row(fixed_loss_scale),
        "--xla": Row(ignored),
        "--checkpoint-dir": Row("--run {}", ("RUN {}", paths.run)),
        "--load-checkpoint-path": Row(None, ("RUN {}", paths.run)),
        "--data": Row(None, "--dataset {}", ("--shape {}", paths.shape)),
        "--data-dir": Row(None, ("--dataset {}", paths.dataset_in), ("--shape {}", paths.shape_in)),
        "--topk --top-results": Row(None, "--k {}", "--k {}"),
        "--log-path": Row(None, None, "--output {}"),
    },
    NCF_MODELS: {
        "--data": Row("DATASET {}", None, None),
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
"""The options of the scripts, by the models of the script; commands without a model take both."""

_FIRST = ("--loss-scale", "--warm-up-epochs", "--path")
"""Options that are handled first, because the rules of others look for them."""

_MODES = {
    "--mode train": "train",
    "--mode test": "evaluate",
    "--train": "train",
    "--test": "evaluate",
    "--inference-benchmark": "bench",
}
"""The scripts' modes, with the first word of our command."""


class Modern(NamedTuple):
    """The translation of a command line of the scripts."""

    line: list[str]
    """Our command line."""
    notes: Sequence[str] = ()
    """Notes for the user."""
    last: str | None = None
    """A note below the table of metrics."""


_WHOLE_CATALOGUE = (
    "the table ranks in the whole catalogue, so its numbers are far lower than those of NCF's "
    "guide, which ranked among 100 sampled items; --valid-negative 100 measures as NCF did"
)


def translate(tokens: Sequence[str]) -> Modern:
    """The command line to run, with our options in place of the scripts', and notes.

    Raises SettingError if two options contradict each other, or name a missing file.
    """
    typed = Command.of(tokens)
    rest = list(tokens[len(typed.words) :]) if typed else []
    if typed is None or not rest:
        return Modern([*tokens])
    command, is_theirs = _choose(typed, rest)
    is_test = command != typed and command.verb == "evaluate"
    rules = _rules(command, is_test=is_test)
    options = take_options(rules, rest)
    # In an evaluation the run may be given as a checkpoint, so the line is translated too.
    if not (is_theirs or options or command.verb == "evaluate"):
        return Modern([*tokens])
    has_dataset = command != typed and rest and not rest[0].startswith("-")
    path = rest.pop(0) if has_dataset else None
    line = Line(command, typed.model, kept=rest)
    if path is not None:
        named: Rule = "--dataset {}" if is_test else ("--shape {}", paths.shape)
        _apply(named, line, "DATASET", path)
    if typed.verb == "evaluate" and (checkpoint := line.take_place()):
        _apply(("RUN {}", paths.run), line, "RUN", checkpoint)
    # With --precision, --loss-scale is foretaste's own option, and no sign of a script.
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
        return Modern(line.tokens())
    ranks = command.verb in ("train", "evaluate") and typed.model in NCF_MODELS
    last = _WHOLE_CATALOGUE if ranks and not line.has("--candidates") else None
    return Modern(line.tokens(), [*line.notes, *_general_notes(line)], last)


def _rules(command: Command, *, is_test: bool) -> dict[str, Rule]:
    """The rules of a command's options: its script's rules, and idle ones of the other script.

    With ``is_test``, options of training are idle too: a script's command line for a test may have
    them.
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
            is_foreign = model is not None and model not in models and rule is not ignored
            is_of_training = command.verb == "evaluate" and rule is ignored
            if rule is not None and not is_foreign and (is_test or not is_of_training):
                rules.update(dict.fromkeys(names.split(), rule))
    return rules


def _apply(rule: Rule, line: Line, written: str, value: str) -> None:
    """Apply the rule of an option to the line."""
    if callable(rule):
        rule(line, written, value)
        return
    template, converter = (rule, None) if isinstance(rule, str) else rule
    if converter is not None:
        value = converter(line, value)
    line.add(written, *template.format(value).split(" ", 1))


def _choose(typed: Command, rest: list[str]) -> tuple[Command, bool]:
    """The command for the modes in ``rest``, and True if there were any; they are removed.

    SettingError if no single command covers all modes.
    """
    if typed.verb not in ("train", "evaluate"):
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
    is_training = typed.verb == "train"
    # A training ends with the test part.
    if asked.keys() <= {typed.verb} or (is_training and asked.keys() == {"train", "evaluate"}):
        return typed, bool(asked)
    if is_training and len(asked) == 1:
        is_test = "evaluate" in asked
        return Command("evaluate") if is_test else Command("bench recommend", typed.model), True
    raise SettingError(
        f"foretaste {' '.join(typed.words)} cannot do {' and '.join(asked.values())}; give one "
        "command for each"
    )


def _ask_for_one_user(line: Line) -> None:
    """Benchmark one user of ten random items at a time."""
    written = "--inference_benchmark"
    for option, value in (
        ("--batch-sizes", "1"),
        ("--history-length", "10"),
        ("--shape", "ml-20m"),
    ):
        if not line.has(option):
            line.add(written, option, value)


def _train_as_theirs(line: Line) -> None:
    """Add the scripts' defaults: data, directories, and the learning rate schedule."""
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
    "--l2": "acts here, as --l2; the script never applied it, which is the same as 0",
    "--dropout": "acts here; the script switched it off even in training, which is the same as 0",
    "--loss-scale": "acts here, in fp16; the script ignored it",
    "--target": "ends the training here once it is reached; the script went on to the last epoch",
}
"""Notes on our options that act, in place of the scripts' options, which did not."""

_IDLE = {
    "train": "changes nothing here: the loss has one form, which is not compiled",
    "evaluate": "is for training and changes nothing here; ranking is always computed in fp32",
    "bench recommend": "changes nothing about what is measured; answers are computed in fp32",
}
"""The reason why options are ignored, by our command."""


def _general_notes(line: Line) -> Iterator[str]:
    """Notes on options that act here only, and on ignored options."""
    for option, text in _ACTS_HERE.items() if line.command.verb == "train" else ():
        written, value = line.written_for(option), line.value_of(option)
        is_theirs = written == "--lam" if option == "--l2" else line.script_model in NCF_MODELS
        if written is not None and is_theirs:
            yield f"{written} {value}: {text}"
    if line.idle:
        yield f"{', '.join(dict.fromkeys(line.idle))}: {_IDLE[line.command.verb]}"
