"""The command line: verbs by name, imported when used; a mistake becomes one message."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError

from foretaste import __version__
from foretaste._util.cores import share_cores
from foretaste.cli.arguments import DEFAULTS, check_whole_numbers, spread_lists
from foretaste.cli.legacy import modern
from foretaste.cli.mistakes import explained
from foretaste.errors import ForetasteError, Interrupted

EXIT_MISTAKE = 2
EXIT_SIGNALLED = 128
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

app = App(
    name="foretaste",
    version=__version__,
    help="""From who-touched-what to recommendations: prepare interactions, train a model on them,
    see how good it is, and ask it what next.

    Start with `foretaste demo`, or with data of your own: `foretaste train vae ratings.csv`.
    Every command explains itself with --help.""",
    help_format="markdown",
    default_parameter=DEFAULTS,
    config=check_whole_numbers,
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

    The best epoch is chosen on the validation part and judged on the test part. The run directory
    keeps weights, settings and numbers; `recommend`, `similar`, `evaluate` and `compare` read it.
    Each model has options of its own: `foretaste train neumf --help`.""",
    "evaluate": """Measure a trained model: other candidates, other list lengths.

    Numbers are printed with their 95 % intervals over users, protocol, candidates and
    definitions.""",
    "compare": """Put trained models side by side, with their differences.

    Every run is measured in the same way, on the dataset that all were trained on, and held against
    the first on the same users, which shows differences that their own intervals hide.""",
    "recommend": """Recommend items to known users, to new ones, or to everyone.

    Items a user has already are left out. A list that is short or in popularity order says
    why.""",
    "similar": "List the items most similar to an item.",
    "verify": """Check every file of a dataset or run.

    Says what was checked and what is wrong: torn, changed, foreign or missing files, parts that
    overlap, ids that are there twice, weights that do not fit their model.""",
    "bench": """Measure speed and memory on generated data.

    Rows of every measurement go to `--output FILE`; tables come last. `--against plain` measures a
    straightforward implementation in turns with ours.""",
}

for position, (verb, text) in enumerate(_VERBS.items()):
    app.command(f"foretaste.cli.{verb}:{verb}", name=verb, help=text, sort_key=position)


def main(tokens: Sequence[str] | None = None) -> None:
    """Run one command: ``sys.argv`` unless ``tokens`` are given.

    A mistake of the user is printed without a traceback and exits with status 2, an interrupt
    with 130, a training ended by SIGTERM with 143, a reader that went away with 141.
    """
    given = sys.argv[1:] if tokens is None else tokens
    _never_fail_to_print()
    share_cores()
    try:
        ours, notes = modern(given)
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        app(spread_lists(ours), exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except CycloptsError as error:
        _fail(explained(app, error))
    except BrokenPipeError:
        _silence_stdout()
        sys.exit(EXIT_BROKEN_PIPE)
    except (ForetasteError, OSError) as error:
        _fail(str(error))
    except Interrupted as error:
        print(error, file=sys.stderr)
        sys.exit(EXIT_SIGNALLED + error.signal_number)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)


def _fail(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(EXIT_MISTAKE)


def _never_fail_to_print() -> None:
    """A terminal that lacks a character shows a substitute."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _silence_stdout() -> None:
    """Python flushes stdout at exit, which must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
