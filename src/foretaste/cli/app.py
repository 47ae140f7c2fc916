"""The command line: verbs by name, imported when used; a mistake becomes one message."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from cyclopts import App, CycloptsError

from foretaste import __version__
from foretaste._util.memory import was_refused
from foretaste._util.process import Launch, launch
from foretaste._util.terminal import (
    nothing_printed,
    print_error,
    run_command,
    share_cores,
)
from foretaste.cli.arguments import (
    DEFAULTS,
    check_whole_numbers,
    explained,
    split_at_commas,
)
from foretaste.cli.console import TerminalConsole
from foretaste.cli.nvidia_line import Command
from foretaste.errors import (
    DataWarning,
    ForetasteError,
    RankError,
    Report,
    SettingError,
    UnsupportedError,
    report_of,
    with_report,
)

app = App(
    name="foretaste",
    version=__version__,
    help="""From who-touched-what to recommendations: prepare interactions, train a model on them,
    see how good it is, and ask it what next.

    Start with `foretaste demo`, or with data of your own: `foretaste train vae ratings.csv`.
    Every command explains itself with --help.""",
    help_format="markdown",
    default_parameter=DEFAULTS,
    config=(split_at_commas, check_whole_numbers),
    result_action="return_none",
    suppress_keyboard_interrupt=False,
)

_VERBS = {
    "demo": """The whole path on generated data: about a minute.

    Makes up people with tastes, prepares their interactions, trains NeuMF, Mult-VAE and two
    baselines, compares them, and recommends to one known and one new user.""",
    "prepare": """Turn files of interactions into a dataset.

    A dataset is a directory: training, validation and test parts, the ids behind them, and a
    manifest of where they came from. Same input and settings give the same files.""",
    "train": """Train a model on a dataset, or on a raw file.

    The best epoch is chosen on the validation part and measured on the test part. The run directory
    keeps weights, settings and numbers; `recommend`, `similar`, `evaluate` and `compare` read it.
    Each model has options of its own: `foretaste train neumf --help`.""",
    "evaluate": """Measure a trained model: other candidates, other list lengths.

    Numbers are printed with their 95 % intervals over users, protocol, candidates and
    definitions.""",
    "compare": """Put trained models side by side, with their differences.

    Every run is measured in the same way, on the dataset that all were trained on or on the data of
    `--dataset`, and held against the first on the same users, which shows differences that their
    own intervals hide.""",
    "report": """Write a report on trained models: one file, with plots, to read and to send on.

    Metrics with intervals and differences, by list length, by group of users and items; learning
    curves, what lists are like, where the time went, people with their lists, settings and
    digests.""",
    "tune": """Search the settings of a model by its validation part, with Optuna.

    One training for each trial. The first has the defaults, TPE proposes the others, and those that
    do worse than the median are stopped. Settings that are given are not searched. Interrupted, the
    same command goes on; every run is kept.""",
    "compete": """Train every model on a dataset, one after another, and say which to take.

    One table: quality with intervals, differences to the best on the same users, seconds of
    training, users ranked a second and memory; below it the model to take, in a sentence.
    Interrupted, the same command goes on; every run is kept.""",
    "blend": """Make a run of other runs: a weighted sum of their scores.

    Of runs of the same dataset, which the new one does not need any more: it has the weights of
    all. How much each counts is found on the validation part.""",
    "runs": """List the runs of a folder.

    With the model and dataset of each, its best metric and the seconds that it trained. Runs that
    are damaged or not finished are said to be.""",
    "recommend": """Recommend items to known users, to new ones, or to everyone.

    Items a user has already are left out. A list that is short or in popularity order says
    why.""",
    "similar": "List the items most similar to an item.",
    "serve": """Answer over HTTP: recommendations and similar items from runs in memory.

    Requests that arrive together are scored together. Where a path leads to another run, that run
    is taken up within seconds, beside requests under way; SIGTERM lets these end. On this machine
    alone unless there is a token.""",
    "export": """Write a run as a program that needs no foretaste: ONNX, or a PyTorch program.

    Histories in, lists out: what is known left out and the best chosen inside. Before it is kept,
    its lists are compared with the run's own.""",
    "verify": """Check every file of a dataset or run.

    Says what was checked and what is wrong: torn, changed, foreign or missing files, parts that
    overlap, ids that are there twice, weights that do not fit their model.""",
    "bench": """Measure speed and memory on generated data.

    Rows of every measurement go to `--output FILE`; the table comes last.""",
}

_OF_RANKS = ("train", "evaluate", "recommend", "bench")
"""Verbs that the ranks of torchrun share."""

_MODULES = {"compare": "evaluate", "similar": "recommend", "verify": "runs"}
"""Modules of verbs that share one."""

for position, (verb, text) in enumerate(_VERBS.items()):
    module = f"foretaste.cli.{_MODULES.get(verb, verb)}"
    app.command(f"{module}:{verb}", name=verb, help=text, sort_key=position)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run one command, ``sys.argv`` unless ``tokens`` are given; see `run_command` for its end."""
    words = sys.argv[1:] if tokens is None else tokens

    def run() -> None:
        started = launch()
        share_cores()
        with warnings.catch_warnings(), _as_one(started) if started.size > 1 else nullcontext():
            warnings.simplefilter("ignore", DataWarning)  # verbs print the notes on data
            run_tokens(words, started.size)

    run_command(run)


@contextmanager
def _as_one(started: Launch) -> Iterator[None]:
    """Print what the first of the ranks prints, and of their errors each once."""
    try:
        with nothing_printed() if started.rank else nullcontext():
            yield
    except KeyboardInterrupt as error:
        if report_of(error) is None:
            with_report(error, Report(is_printed=started.rank > 0))
        raise
    except (ForetasteError, OSError) as error:
        from foretaste.distributed.launch import agree_on_report

        agree_on_report(error, started)
        raise


def run_tokens(tokens: Sequence[str], size: int) -> None:
    """Run the command of ``tokens`` in one of ``size`` processes that torchrun started."""
    lines: Sequence[Sequence[str]] = [tokens]
    notes: Sequence[str] = ()
    if Command.of(tokens) is not None:  # NVIDIA's scripts had one like it
        from foretaste.cli.nvidia import modern

        lines, notes = modern(tokens)
    for line in lines if size > 1 else []:
        if line and not line[0].startswith("-") and line[0] not in _OF_RANKS:
            raise RankError(
                f"foretaste {line[0]} works in one process, and torchrun started {size}; run it "
                "without torchrun"
            )
    for note in notes:
        print_error(f"note: {note}")
    try:
        for line in lines:
            app(
                line,
                console=TerminalConsole(),
                exit_on_error=False,
                print_error=False,
            )
    except CycloptsError as error:
        raise SettingError(explained(app, error)) from error
    except Exception as error:
        if not was_refused(error):
            raise
        raise UnsupportedError(
            "memory was refused by the system; ask for less at once, with smaller batches, fewer "
            "users or a smaller model"
        ) from error
