"""Session of one benchmark: a model with its settings, generated data, and the measured rows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from foretaste._util.documents import Document
from foretaste._util.files import unwritable_message
from foretaste.bench.config import BenchConfig
from foretaste.bench.measure import load_libraries
from foretaste.bench.rows import Row, environment
from foretaste.data.histories import Histories
from foretaste.data.synthetic import generate_histories
from foretaste.data.synthetic_config import GenerateConfig
from foretaste.distributed.collectives import ALONE, Ranks
from foretaste.distributed.launch import join_ranks
from foretaste.errors import SettingError
from foretaste.evaluation.ranking import to_device
from foretaste.models.base import NeuralModel
from foretaste.models.config import ModelConfig, TrainingSize
from foretaste.models.memory import check_model_fits
from foretaste.models.registry import (
    MODELS,
    Definition,
    build_model,
    config_class,
    model_class,
)
from foretaste.models.vae.config import VAEConfig
from foretaste.training.auto import TrainingPlan, resolve
from foretaste.training.config import TrainingConfig

Log = Callable[[str], None]
"""Function that gets a line on the present step."""

NAMED_SHAPES = {
    "ml-100k": (943, 1_682, 100_000),
    "ml-1m": (6_040, 3_706, 1_000_209),
    "ml-20m": (138_493, 26_744, 20_000_263),
}
"""Users, items and interactions of the MovieLens sets."""

NAMED_SHAPES_OF_VAE = {"ml-20m": (116_677, 20_108, 8_528_759)}
"""Sizes of the training data of Mult-VAE's paper and of NVIDIA: ratings of 4 and more, users with 5
of them, without 20,000 held-out users. Interactions are the share of the remaining users in all
9,990,682."""

_COUNTS = re.compile(r"(\d+)[x×](\d+)[x×](\d+)")
_MAX_GENRES = 20  # as many as MovieLens has

_REFERENCE = {
    "neumf": {"learning_rate": 0.0045, "beta1": 0.25, "beta2": 0.5},
    "vae": {"learning_rate": 0.004, "beta1": 0.9, "beta2": 0.9},
}
"""The reference's optimizer settings; they do not affect speed."""


def parse_shape(text: str, model: str) -> GenerateConfig:
    """Return the shape of ``ml-20m``, ``ml-1m``, ``ml-100k`` or USERSxITEMSxINTERACTIONS.

    ``ml-20m`` is the training data of the reference of ``model``. SettingError for other texts.
    """
    named = NAMED_SHAPES | (NAMED_SHAPES_OF_VAE if model in ("vae", "dae", "recvae") else {})
    match = _COUNTS.fullmatch(text.replace(",", "").replace("_", "").lower())
    if text in named:
        return shape_of(*named[text])
    if match:
        return shape_of(*map(int, match.groups()))
    raise SettingError(
        f"shape is {text!r}; use {', '.join(NAMED_SHAPES)} or users, items and interactions such "
        "as 6040x3706x1000209"
    )


def shape_of(num_users: int, num_items: int, num_interactions: int) -> GenerateConfig:
    """Return generated data of that size, with the number of MovieLens' genres if items suffice."""
    return GenerateConfig(
        num_users=num_users,
        num_items=num_items,
        num_interactions=num_interactions,
        num_genres=min(_MAX_GENRES, num_items),
    )


class Session:
    """One benchmark of one model: its device, its shape of data, and the measured rows.

    Rows are appended to ``options.output`` as they come; with several ranks the first appends them.
    """

    def __init__(
        self,
        benchmark: str,
        model: ModelConfig,
        options: BenchConfig,
        *,
        log: Log = lambda _: None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.benchmark = benchmark
        self.name = next(name for name in MODELS if isinstance(model, config_class(name)))
        self.options = options
        self.shape = parse_shape(options.shape, self.name)
        self.model = model.resolved(self.shape.num_items)
        self.unit = "users" if isinstance(model, VAEConfig) else "samples"
        self.ranks = ranks
        self.log = log if ranks.is_first else lambda _: None
        self.rows: list[Row] = []
        self.device = ranks.device(options.device)
        load_libraries(self.device)
        self._environment = environment(self.device)

    @classmethod
    @contextmanager
    def of_ranks(
        cls, benchmark: str, model: ModelConfig, options: BenchConfig, **more: Any
    ) -> Iterator[Session]:
        """Yield the session of the ranks that torchrun started."""
        # Threads are set before the ranks join, because ranks compare the number.
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        with join_ranks() as ranks:
            yield cls(benchmark, model, options, ranks=ranks, **more)

    def histories(self) -> Histories:
        """Return generated data of the session's shape."""
        self.log(f"generating {self.shape.num_interactions:,} interactions")
        return generate_histories(self.shape)

    def part(self, histories: Histories, batch_size: int) -> Histories:
        """Return the part of the data that a training measures: all of them."""
        return histories

    def build(
        self, histories: Histories, users: range | None = None, num_users: int | None = None
    ) -> NeuralModel:
        """Return the untrained model on the device, with random weights.

        With ``users`` it is the part of these users out of ``num_users``; ``histories`` are theirs.
        """
        num_users = num_users or histories.num_users
        definition = Definition(self.name, self.model, num_users, histories.num_items)
        check_model_fits(definition, self.device, users=users)
        model = build_model(*definition, users)
        assert isinstance(model, NeuralModel)
        model.to(self.device).count_items(to_device(histories, self.device))
        model.reset_parameters(self.options.seed)
        return model.to(self.device)

    def plan(self, precision: str, batch_size: int, epochs: int, **settings: Any) -> TrainingPlan:
        """Return a training plan with the reference's optimizer settings on the session's data."""
        config = TrainingConfig(
            precision=precision,  # type: ignore[arg-type]
            batch_size=batch_size,
            epochs=epochs,
            seed=self.options.seed,
            device=str(self.device),
            # Every epoch does the same work, and no training stops early.
            learning_rate_schedule="constant",
            patience=0,
            eval_every=1,
            **_REFERENCE.get(self.name, {}),  # type: ignore[arg-type]
            **settings,
        )
        shape = self.shape
        size = TrainingSize(
            num_interactions=shape.num_interactions,
            num_users=shape.num_users,
            num_items=shape.num_items,
            protocol="none",
        )
        kind = model_class(self.name)
        assert issubclass(kind, NeuralModel)
        return resolve(config, kind, size, model_config=self.model, device=str(self.device))

    def add(
        self,
        side: str,
        case: Document,
        clock: str,
        measured: Document,
        *,
        shape: Document | None = None,
    ) -> None:
        """Add and write a measurement; ``shape`` is that of the session's data by default."""
        if not self.ranks.is_first:
            return
        row = Row(
            benchmark=self.benchmark,
            model=self.name,
            side=side,
            case=dict(case),
            clock=clock,
            measured=dict(measured),
        )
        self.rows.append(row)
        if self.options.output is None:
            return
        options = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(self.options).items()
            if name != "output"
        }
        document = asdict(row) | {"shape": asdict(self.shape) if shape is None else shape}
        document |= self._environment | {"settings": asdict(self.model), "options": options}
        output = self.options.output
        try:
            output.parent.mkdir(parents=True, exist_ok=True)
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(document, allow_nan=False) + "\n")
        except OSError as error:
            raise SettingError(
                f"output {output} {unwritable_message(error, 'name another')}"
            ) from error
