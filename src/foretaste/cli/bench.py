"""``foretaste bench train | inference | recommend``, each of ``neumf`` or ``vae``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from importlib import import_module
from inspect import cleandoc
from typing import Annotated, Any

from cyclopts import App, Parameter

from foretaste.bench.config import InferenceBench, PairsBench, RecommendBench, TrainBench
from foretaste.cli.arguments import FLAG
from foretaste.cli.console import say, stderr_console, stdout_console
from foretaste.cli.train_options import shown_as
from foretaste.models.registry import config_class

bench = App(name="bench")

_BENCHMARKS = {
    "train": """Training throughput and time per epoch by precision.

    The clock covers whole epochs: negatives, order, batches, forward, backward and optimizer. The
    device is idle at both ends of it.""",
    "inference": """Throughput and latency of scores of the whole catalogue, by batch size.

    Several ranks measure at the same time, and their throughputs are added up.

    Users, histories and scores are on the device.""",
    "recommend": """End to end: users or histories in, lists of ids out, both on the host.

    Items of the history are left out.""",
}

_MODELS = {"neumf": "NeuMF, by default of NVIDIA's sizes.", "vae": "Mult-VAE."}

_BENCHMARK = Parameter(name="*", group="Benchmark")
_MODEL = Parameter(name="*", group="Model")

_OF_SCORES = ("factors", "layers", "hidden", "latent", "activation")
_OF_TRAINING = (
    *_OF_SCORES,
    *("dropout", "loss", "logit_adjustment", "l2", "sampled_softmax"),
    *("negatives", "verified_negatives", "batch_layout"),
)
"""Settings of a model that change how long scores, or updates, take."""

_OPTIONS = {
    ("train", "neumf"): TrainBench,
    ("train", "vae"): TrainBench,
    ("inference", "neumf"): PairsBench,
    ("inference", "vae"): InferenceBench,
    ("recommend", "neumf"): RecommendBench,
    ("recommend", "vae"): RecommendBench,
}


def _command(name: str, model: str) -> Callable[..., None]:
    """Return the command ``bench NAME MODEL``, with the options that act for it."""
    kind = config_class(model)
    options_class: Any = _OPTIONS[name, model]

    def command(
        *,
        options: Any = None,
        model_config: Any = None,
        quiet: Annotated[bool, FLAG] = False,
    ) -> None:
        """Run one benchmark. Progress goes to stderr, and a table is printed at the end.

        Args:
            quiet: Print the tables and nothing else.
        """
        from foretaste.bench.rows import table_of
        from foretaste.bench.session import Session

        options, model_config = options or options_class(), model_config or kind()
        log = partial(say, stderr_console(quiet=quiet))
        made = Session.of_ranks(name, model_config, options, log=log)
        with made as session:
            getattr(import_module(f"foretaste.bench.{name}"), f"bench_{name}")(session, options)
        if not session.ranks.is_first:
            return
        say(stdout_console(), f"{table_of(session.rows).to_markdown()}\n")

    acts = _OF_TRAINING if name == "train" else _OF_SCORES
    names = [item.name for item in fields(kind)]
    shown: Any = shown_as(kind, {one: Parameter(parse=one in acts) for one in names})
    command.__annotations__ |= {
        "options": Annotated[options_class | None, _BENCHMARK],
        "model_config": Annotated[shown | None, _MODEL],
    }
    return command


for position, (name, text) in enumerate(_BENCHMARKS.items()):
    benchmark = App(name=name, help=text, sort_key=position)
    bench.command(benchmark)
    for order, (model, about) in enumerate(_MODELS.items()):
        page = f"{about}\n\n{cleandoc(text)}"
        benchmark.command(_command(name, model), name=model, help=page, sort_key=order)
