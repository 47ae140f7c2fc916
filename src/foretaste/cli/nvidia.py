"""Translation of the command lines of NVIDIA's scripts, NCF and VAE-CF, by two tables.

The options of ``python ncf.py`` become options of ``foretaste train neumf``, and the options of
``python main.py`` options of ``foretaste train vae``. ``--mode test``, ``--test`` and
``--inference_benchmark`` choose another command of foretaste. docs/coming-from-nvidia.md shows the
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from foretaste.cli import nvidia_rules as rules
from foretaste.cli.nvidia_rules import NCF_MODELS, VAE_MODELS, Line, Word, take_options, words_of
from foretaste.errors import SettingError

Rule = str | Callable[[Line, Word], None] | None
"""Our option or place, with ``{}`` for the value; None if the name is the same here; or a function,
whose docstring the documentation shows."""


class Old(NamedTuple):
    """One option of a script, under each of its names, and what it is here."""

    names: str
    train: Rule = None
    test: Rule = rules.ignore
    """Rule in a test (``--mode test``, ``--test``) and behind ``foretaste evaluate``."""
    benchmark: Rule = rules.ignore
    """Rule behind ``--inference_benchmark``."""
    convert: Callable[[Line, str], str] | None = None
    """Function from the value of the option to the value of ours."""
    note: str = ""
    """Note on an option that acts here and did not act there."""


_DROPOUT = "acts here; the script switched it off even in training, which is the same as 0"
_TARGET = "ends the training here once it is reached; the script went on to the last epoch"
_LOSS_SCALE = "acts here, in fp16; the script ignored it"
_LAM = "acts here, as --l2; the script never applied it, which is the same as 0"

_EVALUATION_BATCH = "--evaluation-batch {}"
_CANDIDATES = "--candidates nvidia-{}"
_RUN = "RUN {}"

NCF = (
    Old("--data", "DATASET {}", "--dataset {}", rules.sizes),
    Old("-e --epochs"),
    Old("-b --batch-size", benchmark="--batch-sizes {}"),
    Old("--valid-users-per-batch", _EVALUATION_BATCH, _EVALUATION_BATCH),
    Old("-f --factors", benchmark=None),
    Old("--layers", benchmark=None),
    Old("--dropout", note=_DROPOUT),
    Old("-n"),
    Old("--negative-samples", "--negatives {}"),
    Old("-l --learning-rate"),
    Old("-k", "--select-by hr@{}", None, None),
    Old("--topk", "--select-by hr@{}", "--k {}", "--k {}"),
    Old("-s --seed", benchmark=None),
    Old("--amp --fp16", rules.half_precision),
    Old("--loss-scale", rules.fixed_loss_scale, note=_LOSS_SCALE),
    Old("-t --target", note=_TARGET),
    Old("--xla", rules.ignore),
    Old("--valid-negative", _CANDIDATES, _CANDIDATES),
    Old("-b1", "--beta1 {}"),
    Old("-b2", "--beta2 {}"),
    Old("--beta1"),
    Old("--beta2"),
    Old("--eps"),
    Old("--checkpoint-dir", "--run {}", _RUN, convert=rules.run_of),
    Old("--load-checkpoint-path", "--from {}", _RUN, convert=rules.run_of),
    Old("--eval-after"),
    Old("--log-path", None, None, "--output {}"),
    Old("--verbose"),
    Old("--no-neg-trick", "--verified-negatives"),
)
"""The options of ``python ncf.py``."""

VAE = (
    Old("--data_dir", "DATASET {}", "--dataset {}", rules.sizes, rules.dataset_in),
    Old("--amp", rules.half_precision),
    Old("--loss-scale", rules.fixed_loss_scale),
    Old("--xla", rules.ignore),
    Old("--epochs"),
    Old("--batch_size_train", "--batch-size {}"),
    Old("--batch_size_validation", _EVALUATION_BATCH, _EVALUATION_BATCH),
    Old("--validation_step", "--eval-every {}"),
    Old("--warm_up_epochs"),
    Old("--total_anneal_steps", "--anneal-steps {}"),
    Old("--anneal_cap"),
    Old("--lam", "--l2 {}", note=_LAM),
    Old("--lr", "--learning-rate {}"),
    Old("--beta1"),
    Old("--beta2"),
    Old("--top_results", "--select-by ndcg@{}", "--k {}", "--k {}"),
    Old("--trace"),
    Old("--activation", benchmark=None),
    Old("--seed", benchmark=None),
    Old("--log_path", None, None, "--output {}"),
    Old("--checkpoint_dir", "--run {}", _RUN, convert=rules.run_of),
    Old("--results_dir"),
)
"""The options of ``python main.py``."""

PREPARE = (Old("--path", rules.source), Old("--data_dir", rules.prepared_in))
"""The options of the scripts that prepare data."""

_MODES = {
    "train": "train",
    "test": "evaluate",
    "--train": "train",
    "--test": "evaluate",
    "--inference-benchmark": "bench recommend",
}
"""The scripts' modes (values of ``--mode``, and flags), with our commands."""


class Translation(NamedTuple):
    """A command line in our words."""

    line: list[str]
    notes: Sequence[str] = ()
    """Notes for the user."""
    last: str | None = None
    """A note below the table of metrics."""


_WHOLE_CATALOGUE = (
    "the table ranks in the whole catalogue, so its numbers are far lower than those of NCF's "
    "guide, which ranked among 100 sampled items; --valid-negative 100 measures as NCF did"
)


def translate(tokens: Sequence[str]) -> Translation:
    """Return the command line to run, with our options in place of the scripts', and notes.

    Raises SettingError if two options contradict each other, or name a missing file.
    """
    typed, model = next(iter(tokens), ""), next(iter(tokens[1:]), "")
    if typed in ("evaluate", "prepare"):
        model = ""
    elif typed != "train" or model not in (*NCF_MODELS, *VAE_MODELS):
        return Translation([*tokens])
    rest = words_of(tokens[2 if model else 1 :])
    verb, has_mode = _choose_verb(typed, model, rest)
    options = _options(verb, model, is_test=verb != typed)
    if any(word.name == "--precision" for word in rest):
        options.pop("--loss-scale", None)  # foretaste's own option then, and no sign of a script
    given = take_options(options, rest)
    # In an evaluation the run may be given as a checkpoint, so the line is translated too.
    if not (has_mode or given or verb == "evaluate"):
        return Translation([*tokens])
    line = Line(verb, model, kept=rest)
    if verb not in ("train", "prepare") and line.place:
        run, dataset = ("RUN", "--checkpoint-dir"), ("DATASET", "--data")
        given.insert(0, Word(*(run if typed == "evaluate" else dataset), line.place))
        line.place = None
    # The rules of other options look for these two.
    for word in sorted(given, key=lambda word: word.name not in ("--loss-scale", "--path")):
        _apply(*options[word.name], line, word)
    if typed == "train" and verb == "evaluate" and line.place is None:
        names = [old.names for old, rule in options.values() if rule == _RUN]
        raise SettingError(f"a test needs a trained model: name its run with {' or '.join(names)}")
    if verb == "bench recommend":  # one user of ten random items at a time, as theirs
        theirs = {"batch_sizes": "1", "history_length": "10", "shape": "ml-20m"}
        line.add_missing("--inference_benchmark", **theirs)
    elif verb != typed:
        rules.replace_as_theirs(line)
    elif verb == "train":
        rules.train_as_theirs(line)
    if line.has("--quiet"):
        return Translation(line.tokens())
    ranks = verb in ("train", "evaluate") and model in NCF_MODELS
    last = _WHOLE_CATALOGUE if ranks and not line.has("--candidates") else None
    return Translation(line.tokens(), [*line.notes, *_notes(line)], last)


def _choose_verb(typed: str, model: str, rest: list[Word]) -> tuple[str, bool]:
    """Return the command for the modes in ``rest``, and whether there were any; they are removed.

    SettingError if no single command covers all modes.
    """
    names = set() if typed == "prepare" or model in VAE_MODELS else {"--mode"}
    if typed != "prepare" and model not in NCF_MODELS:
        names |= {"--train", "--test", "--inference-benchmark"}
    asked = {}
    for word in take_options(names, rest):
        mode = word.value if word.name == "--mode" else word.name
        if mode not in _MODES:
            raise SettingError(f"--mode is {mode!r}; use train or test")
        asked[_MODES[mode]] = " ".join(word.tokens)
    # A training ends with the test part.
    if asked.keys() <= {typed} or (typed == "train" and asked.keys() == {"train", "evaluate"}):
        return typed, bool(asked)
    command = f"foretaste {typed} {model}".strip()
    if model == "dae" and "bench recommend" in asked:
        raise SettingError(
            f"{command} cannot do {asked['bench recommend']}, which measures vae: foretaste train "
            "vae --inference_benchmark"
        )
    if typed == "train" and len(asked) == 1:
        return next(iter(asked)), True
    raise SettingError(
        f"{command} cannot do {' and '.join(asked.values())}; give one command for each"
    )


def _options(verb: str, model: str, *, is_test: bool) -> dict[str, tuple[Old, Rule]]:
    """Return the options that a command takes, by name, each with its row and rule.

    A training takes its script's options. A test and a benchmark take those of both scripts, and
    with ``is_test`` the options of training, which are ignored.
    """
    column = {"evaluate": "test", "bench recommend": "benchmark"}.get(verb, "train")
    tables = [NCF, VAE] if model in VAE_MODELS else [VAE, NCF]  # the later wins
    tables = [PREPARE] if verb == "prepare" else tables[1:] if verb == "train" else tables
    found: dict[str, tuple[Old, Rule]] = {}
    for old in chain.from_iterable(tables):
        rule: Rule = getattr(old, column)
        if rule is not None and (verb != "evaluate" or is_test or rule is not rules.ignore):
            found |= dict.fromkeys(old.names.replace("_", "-").split(), (old, rule))
    return found


def _apply(old: Old, rule: Rule, line: Line, word: Word) -> None:
    """Apply the rule of an option to the line."""
    if old.convert is not None and rule is not rules.ignore:
        word = word._replace(value=old.convert(line, word.value))
    if callable(rule):
        rule(line, word)
    elif rule is not None:
        line.add(word.written, *rule.format(word.value).split(" ", 1))


_IGNORED = {
    "train": "changes nothing here: the loss has one form, which is not compiled",
    "evaluate": "is for training and changes nothing here; ranking is always computed in fp32",
    "bench recommend": "changes nothing about what is measured; answers are computed in fp32",
}
"""The reason why options are ignored, by our command."""


def _notes(line: Line) -> Iterator[str]:
    """Yield notes on options that act here only, and on ignored options."""
    for old in (VAE if line.model in VAE_MODELS else NCF) if line.verb == "train" else ():
        names = old.names.split()
        given = line.given(old.train.split()[0] if isinstance(old.train, str) else names[-1])
        if old.note and given.name in names:
            yield f"{given.written} {given.value}: {old.note}"
    if line.ignored:
        yield f"{', '.join(dict.fromkeys(line.ignored))}: {_IGNORED[line.verb]}"
