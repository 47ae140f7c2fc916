"""The command line: commands by name, imported on use; an error becomes one message."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from cyclopts import App, CycloptsError

from foretaste import __version__, host
from foretaste._util.memory import was_refused
from foretaste._util.system import Launch, launch
from foretaste._util.terminal import discard_output, exit_with_status, print_error
from foretaste.cli.arguments import (
    DEFAULTS,
    check_whole_numbers,
    explain_error,
    join_skipped_columns,
    split_at_commas,
)
from foretaste.cli.console import TerminalConsole
from foretaste.errors import (
    DataWarning,
    ForetasteError,
    RankError,
    Report,
    SettingError,
    UnsupportedError,
    attach_report,
    report_of,
)

app = App(
    name="foretaste",
    version=__version__,
    help="""From interactions to recommendations: prepare interactions, train a model on them,
    evaluate it, and let it recommend.

    Start with `foretaste demo`, or with data of your own: `foretaste train ease ratings.csv`.
    Every command explains itself with --help.""",
    help_format="markdown",
    default_parameter=DEFAULTS,
    config=(split_at_commas, check_whole_numbers),
    result_action="return_none",
    suppress_keyboard_interrupt=False,
)

_VERBS = {
    "demo": """The whole path on generated data: about a minute.

    It generates users with tastes, prepares their interactions, trains NeuMF, Mult-VAE and two
    baselines, compares them, and recommends to one known and one new user.""",
    "prepare": """Turn files of interactions into a dataset.

    A dataset is a directory with the training, validation and test parts, the ids, and a manifest
    with the sources and settings. The same input and settings give the same files.""",
    "train": """Train a model on a dataset, or on a raw file.

    The validation part chooses the best epoch, which is measured on the test part. The run
    directory has weights, settings and metrics; `recommend`, `similar`, `evaluate` and `compare`
    read it. Each model has its own options: `foretaste train neumf --help`.""",
    "evaluate": """Measure a trained model again, with other candidates or list lengths.

    Metrics are printed with their 95 % intervals over users, the protocol, the candidates and the
    definitions.""",
    "compare": """Compare trained models, with their differences.

    Every run is measured in the same way, on the common dataset or on the one of `--dataset`. The
    differences to the first run are over the same users, so they have smaller intervals than the
    metrics themselves.""",
    "report": """Write a report on trained models: one file with plots.

    If the protocol holds out users unseen in training, they are measured with 1, 2, 5, 10, 20 and
    50 items of their history, unless --history-lengths says otherwise.""",
    "tune": """Search the settings of a model by its validation part, with Optuna.

    Each trial is one training. The first has the settings that train chooses, and TPE proposes
    the others. Trials worse than the median are stopped. Settings that are given are not searched.
    After an interruption the same command resumes; every run is kept.""",
    "compete": """Train every model on a dataset, one after another, and advise which to take.

    The table has metrics with intervals, differences to the best model on the same users, seconds
    of training, users ranked a second and memory; a sentence below it advises a model. After an
    interruption the same command resumes; every run is kept.""",
    "blend": """Make a run of other runs: a weighted sum of their scores.

    The runs must be of one dataset. The new run contains their weights, so it does not need them
    any more. The validation part chooses how much each run counts.""",
    "runs": """List the runs of a folder.

    Each run has its model and dataset, its best metric and its seconds of training, the oldest
    first and unreadable ones last. Damaged and unfinished runs are marked.""",
    "recommend": """Recommend items to known users, to new ones, or to all users.

    Items that a user has already are left out. A list that is short or in popularity order has a
    reason.""",
    "similar": "List the items most similar to an item.",
    "serve": """Serve recommendations and similar items over HTTP, from runs in memory.

    Requests that arrive together are scored together. If a path leads to another run, that run is
    loaded within seconds, while requests are answered; SIGTERM lets running requests finish.
    Without a token the service is for this machine only.""",
    "export": """Write a run as a program that needs no foretaste: ONNX, or a PyTorch program.

    Its inputs are histories and its outputs are lists without the items of the history. Before the
    program is kept, its lists are compared with the run's.""",
    "verify": """Check every file of a dataset or run.

    It prints ok or the problems: torn, changed, foreign or missing files, repeated ids, weights
    that do not fit their model.""",
    "bench": """Measure speed and memory on generated data.

    The rows of all measurements go to `--output FILE`; a table is printed at the end.""",
}
"""Help of each command; the first lines of the functions' docstrings are not shown."""

_OF_RANKS = ("train", "evaluate", "bench train", "bench inference")
"""Commands that several ranks of torchrun share."""

_MODULES = {"compare": "evaluate", "similar": "recommend", "verify": "runs"}
"""Modules of commands that are not named by the command."""

# Named "module:function", so that a module is imported on use: help pages then take 0.1 s. The
# import of torch alone costs 1.1 s.
for position, (verb, text) in enumerate(_VERBS.items()):
    module = f"foretaste.cli.{_MODULES.get(verb, verb)}"
    app.command(f"{module}:{verb}", name=verb, help=text, sort_key=position)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run the command of ``tokens``, by default of ``sys.argv``, and exit with its status."""
    with exit_with_status():
        started = launch()
        host.keep_freed_memory()
        host.silence_profiler()
        with warnings.catch_warnings(), _print_once(started) if started.size > 1 else nullcontext():
            warnings.simplefilter("ignore", DataWarning)  # commands print these notes
            run_tokens(sys.argv[1:] if tokens is None else tokens, started.size)


@contextmanager
def _print_once(started: Launch) -> Iterator[None]:
    """Let only the first rank print, and print each error of the ranks once."""
    try:
        with discard_output() if started.rank else nullcontext():
            yield
    except KeyboardInterrupt as error:
        if report_of(error) is None:
            attach_report(error, Report(is_printed=started.rank > 0))
        raise
    except (ForetasteError, OSError) as error:
        from foretaste.distributed.launch import agree_on_report

        agree_on_report(error, started)
        raise


def run_tokens(tokens: Sequence[str], size: int) -> None:
    """Run the command of ``tokens`` in one of ``size`` processes that torchrun started."""
    tokens = join_skipped_columns(tokens)
    notes: Sequence[str] = ()
    last = None
    if tokens[:1] and tokens[0] in ("train", "evaluate", "prepare"):  # NVIDIA's scripts had these
        from foretaste.cli.nvidia import translate

        tokens, notes, last = translate(tokens)
    if size > 1:
        name = " ".join(tokens[: 2 if "bench" in tokens[:1] else 1])
        if name and not name.startswith("-") and name not in _OF_RANKS:
            raise RankError(
                f"foretaste {name} works in one process, and torchrun started {size}; run it "
                "without torchrun"
            )
    for note in notes:
        print_error(f"note: {note}")
    try:
        app(tokens, console=TerminalConsole(), exit_on_error=False, print_error=False)
    except CycloptsError as error:
        raise SettingError(explain_error(error, app)) from error
    except Exception as error:
        if not was_refused(error):
            raise
        raise UnsupportedError(
            "memory was refused by the system; ask for less at once, with smaller batches, fewer "
            "users or a smaller model"
        ) from error
    if last is not None:
        print_error(f"note: {last}")
