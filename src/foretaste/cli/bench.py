"""``foretaste bench train | inference | recommend | scaling``, each of ``neumf`` or ``vae``."""

from __future__ import annotations

from cyclopts import App

bench = App(name="bench")

_BENCHMARKS = {
    "train": """Training throughput and time per epoch by precision; time to a target.

    The clock covers epochs as training runs them: negatives, order, batches, forward, backward
    and optimizer, with the device idle at both ends.""",
    "inference": """Throughput and latency of scores on the device, by batch size.

    NeuMF scores independent random pairs, its tables projected outside the clock or inside it;
    Mult-VAE the whole catalogue for histories.""",
    "recommend": """End to end: users or histories in, lists of ids out, both on the host.

    Items of the history are left out. With `--all-users`, the catalogue is ranked for everyone.""",
    "scaling": """Time per sample and peak memory of training as the data grow.

    NeuMF as users, items and interactions grow; Mult-VAE as its catalogue does.""",
}

_MODELS = {"neumf": "NeuMF, of NVIDIA's sizes unless told otherwise.", "vae": "Mult-VAE."}

for position, (name, text) in enumerate(_BENCHMARKS.items()):
    models = App(name=name, help=text, sort_key=position)
    for number, (model, which) in enumerate(_MODELS.items()):
        where = f"foretaste.cli.bench_commands:{name}_{model}"
        models.command(where, name=model, help=f"{which}\n\n{text}", sort_key=number)
    bench.command(models)
