"""What each ``foretaste bench`` command takes, and how its results are shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from foretaste.bench.config import (
    BenchConfig,
    InferenceBench,
    NeuMFInferenceBench,
    NeuMFScalingBench,
    NeuMFSizes,
    RecommendBench,
    TrainBench,
    VAEScalingBench,
)
from foretaste.cli.console import say, stderr_console, stdout_console
from foretaste.models.neumf.config import SamplingConfig
from foretaste.models.vae.config import VAEConfig

if TYPE_CHECKING:
    from rich.console import Console

    from foretaste.bench.tables import Table

_BENCHMARK = Parameter(name="*", group="Benchmark", consume_multiple=True)
_MODEL = Parameter(name="*", group="Model", consume_multiple=True)

Quiet = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Print the tables and nothing else."),
]
NeuMFOptions = Annotated[NeuMFSizes | None, _MODEL]
VAEOptions = Annotated[VAEConfig | None, _MODEL]
SamplingOptions = Annotated[SamplingConfig | None, Parameter(name="*", group="Negatives")]
TrainOptions = Annotated[TrainBench | None, _BENCHMARK]
RecommendOptions = Annotated[RecommendBench | None, _BENCHMARK]


def train_neumf(
    *,
    options: TrainOptions = None,
    model: NeuMFOptions = None,
    sampling: SamplingOptions = None,
    quiet: Quiet = False,
) -> None:
    """Measure training NeuMF."""
    _run_and_show("train", model or NeuMFSizes(), options, sampling, quiet=quiet)


def train_vae(
    *, options: TrainOptions = None, model: VAEOptions = None, quiet: Quiet = False
) -> None:
    """Measure training Mult-VAE."""
    _run_and_show("train", model or VAEConfig(), options, quiet=quiet)


def inference_neumf(
    *,
    options: Annotated[NeuMFInferenceBench | None, _BENCHMARK] = None,
    model: NeuMFOptions = None,
    quiet: Quiet = False,
) -> None:
    """Measure scoring pairs with NeuMF."""
    _run_and_show("inference", model or NeuMFSizes(), options, quiet=quiet)


def inference_vae(
    *,
    options: Annotated[InferenceBench | None, _BENCHMARK] = None,
    model: VAEOptions = None,
    quiet: Quiet = False,
) -> None:
    """Measure scoring the catalogue with Mult-VAE."""
    _run_and_show("inference", model or VAEConfig(), options, quiet=quiet)


def recommend_neumf(
    *, options: RecommendOptions = None, model: NeuMFOptions = None, quiet: Quiet = False
) -> None:
    """Measure recommending with NeuMF."""
    _run_and_show("recommend", model or NeuMFSizes(), options, quiet=quiet)


def recommend_vae(
    *, options: RecommendOptions = None, model: VAEOptions = None, quiet: Quiet = False
) -> None:
    """Measure recommending with Mult-VAE."""
    _run_and_show("recommend", model or VAEConfig(), options, quiet=quiet)


def scaling_neumf(
    *,
    options: Annotated[NeuMFScalingBench | None, _BENCHMARK] = None,
    model: NeuMFOptions = None,
    sampling: SamplingOptions = None,
    quiet: Quiet = False,
) -> None:
    """Measure training NeuMF as the data grow."""
    _run_and_show("scaling", model or NeuMFSizes(), options, sampling, quiet=quiet)


def scaling_vae(
    *,
    options: Annotated[VAEScalingBench | None, _BENCHMARK] = None,
    model: VAEOptions = None,
    quiet: Quiet = False,
) -> None:
    """Measure training Mult-VAE as the catalogue grows."""
    _run_and_show("scaling", model or VAEConfig(), options, quiet=quiet)


def _run_and_show(
    name: str,
    model: NeuMFSizes | VAEConfig,
    options: BenchConfig | None,
    sampling: SamplingConfig | None = None,
    *,
    quiet: bool,
) -> None:
    """Run one benchmark; what is under way goes to stderr unless ``quiet``, tables come last."""
    from foretaste.bench import run_benchmark
    from foretaste.bench.tables import tables

    progress, console = stderr_console(quiet=quiet), stdout_console()
    rows = run_benchmark(
        name, model, options, sampling=sampling, tell=lambda text: say(progress, text)
    )
    for table in tables(rows):
        _show(console, table)


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
