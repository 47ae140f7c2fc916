"""``foretaste bench train | inference | recommend``, each of ``neumf`` or ``vae``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, TypeVar

from cyclopts import App, Parameter

from foretaste.bench.config import (
    BenchConfig,
    InferenceBench,
    NeuMFInferenceBench,
    RecommendBench,
    TrainBench,
)
from foretaste.cli.console import say, stderr_console, stdout_console
from foretaste.models.config import SamplingConfig
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.bench.rows import Table

Command = TypeVar("Command", bound=Callable[..., None])

bench = App(name="bench")

_BENCHMARKS = {
    "train": """Training throughput and time per epoch by precision.

    The clock covers epochs as training runs them: negatives, order, batches, forward, backward
    and optimizer, with the device idle at both ends.""",
    "inference": """Throughput and latency of scores on the device, by batch size.

    NeuMF scores independent random pairs, its tables projected outside the clock or inside it;
    Mult-VAE the whole catalogue for histories.""",
    "recommend": """End to end: users or histories in, lists of ids out, both on the host.

    Items of the history are left out.""",
}

_MODELS = {"neumf": "NeuMF, of NVIDIA's sizes unless others are given.", "vae": "Mult-VAE."}

_BENCHMARK = Parameter(name="*", group="Benchmark", consume_multiple=True)
_MODEL = Parameter(name="*", group="Model", consume_multiple=True)

Quiet = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Print the tables and nothing else."),
]
NeuMFOptions = Annotated[NeuMFConfig | None, _MODEL]
VAEOptions = Annotated[VAEConfig | None, _MODEL]
SamplingOptions = Annotated[SamplingConfig | None, Parameter(name="*", group="Negatives")]
PairOptions = Annotated[NeuMFInferenceBench | None, _BENCHMARK]
CatalogueOptions = Annotated[InferenceBench | None, _BENCHMARK]
TrainOptions = Annotated[TrainBench | None, _BENCHMARK]
RecommendOptions = Annotated[RecommendBench | None, _BENCHMARK]


def _command(name: str, model: str) -> Callable[[Command], Command]:
    """Decorator that adds the command ``bench NAME MODEL``."""
    text = f"{_MODELS[model]}\n\n{_BENCHMARKS[name]}"
    return bench[name].command(name=model, help=text, sort_key=list(_MODELS).index(model))


for position, (name, text) in enumerate(_BENCHMARKS.items()):
    bench.command(App(name=name, help=text, sort_key=position))


@_command("train", "neumf")
def train_neumf(
    *,
    options: TrainOptions = None,
    model: NeuMFOptions = None,
    sampling: SamplingOptions = None,
    quiet: Quiet = False,
) -> None:
    _run("train", options or TrainBench(), model or NeuMFConfig(), sampling, quiet=quiet)


@_command("train", "vae")
def train_vae(
    *, options: TrainOptions = None, model: VAEOptions = None, quiet: Quiet = False
) -> None:
    _run("train", options or TrainBench(), model or VAEConfig(), quiet=quiet)


@_command("inference", "neumf")
def inference_neumf(
    *, options: PairOptions = None, model: NeuMFOptions = None, quiet: Quiet = False
) -> None:
    _run("inference", options or NeuMFInferenceBench(), model or NeuMFConfig(), quiet=quiet)


@_command("inference", "vae")
def inference_vae(
    *, options: CatalogueOptions = None, model: VAEOptions = None, quiet: Quiet = False
) -> None:
    _run("inference", options or InferenceBench(), model or VAEConfig(), quiet=quiet)


@_command("recommend", "neumf")
def recommend_neumf(
    *, options: RecommendOptions = None, model: NeuMFOptions = None, quiet: Quiet = False
) -> None:
    _run("recommend", options or RecommendBench(), model or NeuMFConfig(), quiet=quiet)


@_command("recommend", "vae")
def recommend_vae(
    *, options: RecommendOptions = None, model: VAEOptions = None, quiet: Quiet = False
) -> None:
    _run("recommend", options or RecommendBench(), model or VAEConfig(), quiet=quiet)


def _run(
    name: str,
    options: BenchConfig,
    model: NeuMFConfig | VAEConfig,
    sampling: SamplingConfig | None = None,
    *,
    quiet: bool,
) -> None:
    """Run one benchmark; progress goes to stderr unless ``quiet``, the table comes last."""
    from foretaste.bench.rows import table_of
    from foretaste.bench.session import Session

    progress, console = stderr_console(quiet=quiet), stdout_console()
    session = Session(name, model, options, sampling=sampling, log=partial(say, progress))
    getattr(import_module(f"foretaste.bench.{name}"), f"bench_{name}")(session, options)
    _show(console, table_of(session.rows))


def _show(console: Console, table: Table) -> None:
    """A table on a terminal, Markdown in a pipe or a file."""
    if not console.is_terminal:
        say(console, f"{table.to_markdown()}\n")
        return
    from rich import box
    from rich.table import Table as Drawn

    drawn = Drawn(title=table.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, heading in enumerate(table.headings):
        drawn.add_column(heading, justify="right" if number else "left")
    for row in table.rows:
        drawn.add_row(*row)
    console.print(drawn, markup=False)
