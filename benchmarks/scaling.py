"""Cost of training as the data grow: time per sample and peak memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.command import run
from benchmarks.session import CachedSession, needed_part
from foretaste._util.formatting import memory
from foretaste._util.settings import Count, setting_error
from foretaste.bench.config import BenchConfig, Counts
from foretaste.bench.rows import OURS
from foretaste.bench.session import Session
from foretaste.bench.train import CLOCKS, default_batch_size, measure_training
from foretaste.models.memory import free_on
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig
from foretaste.training.config import Precision

_VAE_GPU_USERS = 4096
_BYTES_PER_PARAMETER = 20
"""Weight, gradient and Adam's two moments in float32, and a quarter for all else, as measured."""

_GROWTHS = {
    "users": (True, False, True),
    "items": (False, True, False),
    "interactions": (False, False, True),
    "all": (True, True, True),
}
"""Whether users, items and interactions grow. Users bring their interactions with them."""


@dataclass(frozen=True, kw_only=True)
class Scaling(BenchConfig):
    """Options of either model."""

    precision: tuple[Precision, ...] = ("fp32",)
    """Precisions to train in, one after the other."""

    batch_size: Count | None = None
    """Samples (neumf) or users (vae) per update; unless given, 1,048,576 or 4,096 on a GPU and
    65,536 or 500 on a CPU."""

    steps: Count = 2
    """Updates in a measurement."""


@dataclass(frozen=True, kw_only=True)
class NeuMFScaling(Scaling):
    """Options of NeuMF, whose users, items and interactions grow."""

    shape: str = "2000x2000x20000"
    """Data to start from: USERSxITEMSxINTERACTIONS."""

    factor: Counts = (1, 10, 100)
    """Growth of the users, the items, the interactions and all of them."""


@dataclass(frozen=True, kw_only=True)
class VAEScaling(Scaling):
    """Options of Mult-VAE, whose catalogue grows."""

    shape: str = "4000x10000x400000"
    """Users and interactions of each case. ``items`` gives the items."""

    items: Counts = (10_000, 100_000, 500_000, 1_000_000)
    """Sizes of the catalogue."""

    widths: Counts = (600, 600, 600, 200)
    """Width of the hidden layers for each of them; one width serves all."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.widths) not in (1, len(self.items)):
            allowed = f"one width for all, or one for each of the {len(self.items)} items"
            raise setting_error("widths", self.widths, allowed)


NAME = "scaling"
OPTIONS: dict[str, type[Scaling]] = {"neumf": NeuMFScaling, "vae": VAEScaling}


def measure(session: Session, options: NeuMFScaling | VAEScaling) -> None:
    """Measure a row per size and precision; sizes that would not fit are reported and left out."""
    cases = list(_cases(session, options))
    for case, grown in cases:
        session.log(f"planned: {_words(case)}, about {memory(_needed_bytes(grown))}")
    for case, grown in cases:
        for precision in options.precision:
            needed, free = _needed_bytes(grown), free_on(session.device)
            if needed >= free:
                why = f"training takes about {memory(needed)}, and {memory(free)} are free"
                session.log(f"left out {_words(case)}: {why}")
                grown.add(OURS, case | {"precision": precision}, "nothing", {"left_out": why})
            else:
                session.log(f"training in {precision}, {_words(case)}")
                _measure_case(grown, options, precision, case)
        session.rows += grown.rows


def _cases(
    session: Session, options: NeuMFScaling | VAEScaling
) -> Iterator[tuple[dict[str, Any], Session]]:
    """Each case in words, and its session."""
    base, model = session.shape, session.model

    def grown(model: Any, num_users: int, num_items: int, num_interactions: int) -> Session:
        shape = f"{num_users}x{num_items}x{num_interactions}"
        cache = session.cache if isinstance(session, CachedSession) else None
        return CachedSession(NAME, model, replace(options, shape=shape), cache=cache)

    if isinstance(options, VAEScaling):
        assert isinstance(model, VAEConfig)
        widths = options.widths * (len(options.items) if len(options.widths) == 1 else 1)
        for num_items, width in zip(options.items, widths, strict=True):
            wide = replace(model, hidden=(width,) * len(model.hidden))
            case = {"items": num_items, "width": width}
            yield case, grown(wide, base.num_users, num_items, base.num_interactions)
        return
    sizes = (base.num_users, base.num_items, base.num_interactions)
    if 1 in options.factor:
        yield {"grown": "nothing", "factor": 1}, grown(model, *sizes)
    for growth, which in _GROWTHS.items():
        for factor in options.factor:
            if factor > 1:
                larger = [
                    size * (factor if grows else 1)
                    for size, grows in zip(sizes, which, strict=True)
                ]
                yield {"grown": growth, "factor": factor}, grown(model, *larger)


def _measure_case(session: Session, options: Scaling, precision: str, case: dict[str, Any]) -> None:
    batch_size = options.batch_size or default_batch_size(session)
    if options.batch_size is None and (session.name, session.device.type) == ("vae", "cuda"):
        batch_size = _VAE_GPU_USERS
    part = needed_part(session, session.histories(), batch_size, options.steps)
    plan = session.plan(precision, batch_size, options.warmup + options.repeats)
    training, epochs = measure_training(session, part, plan, options.warmup)
    measured = epochs.as_numbers(session.unit)
    per_s = measured[f"{session.unit}_per_s"]["median"]
    measured[f"us_per_{session.unit.removesuffix('s')}"] = 1e6 / per_s
    measured["num_parameters"] = _num_parameters(session)
    session.add(OURS, case | training, CLOCKS[session.name], measured)


def _words(case: dict[str, Any]) -> str:
    return ", ".join(
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in case.items()
    )


def _needed_bytes(session: Session) -> int:
    return _num_parameters(session) * _BYTES_PER_PARAMETER


def _num_parameters(session: Session) -> int:
    """Parameters of the tables and layers that grow with the data; the rest is small."""
    model, shape = session.model, session.shape
    if isinstance(model, NeuMFConfig):
        width = model.factors + model.layers[0] // 2
        return (shape.num_users + shape.num_items) * width
    assert isinstance(model, VAEConfig)
    return shape.num_items * (2 * model.hidden[0] + 1)


if __name__ == "__main__":
    run(NAME, OPTIONS, measure)
