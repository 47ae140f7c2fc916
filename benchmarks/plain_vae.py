"""The plain Mult-VAE loop by itself, which `foretaste bench train vae` is held against.

    python benchmarks/plain_vae.py --shape ml-1m

The loop is `foretaste.bench.plain_vae`: dense input rows, `log_softmax` over the whole catalogue,
`Adam(fused=True)`. Options: those of `foretaste bench train vae` that concern it.
"""

from __future__ import annotations

import argparse
import statistics

from foretaste.bench.generated import load_histories
from foretaste.bench.plain_vae import PlainVAETraining
from foretaste.bench.shapes import parse_shape
from foretaste.bench.subject import Subject
from foretaste.bench.train import default_batch_size, needed_part
from foretaste.evaluation.ranking import to_device
from foretaste.models.vae.config import VAEConfig
from foretaste.ops.device import resolve_device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="ml-1m")
    parser.add_argument("--hidden", type=int, nargs="+", default=[600])
    parser.add_argument("--latent", type=int, default=200)
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--chunk", type=int, help="users at once; the whole batch if not given")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, help="updates in an epoch; all of them if not given")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    config = VAEConfig(hidden=tuple(arguments.hidden), latent=arguments.latent)
    subject = Subject(model=config)
    batch_size = arguments.batch_size or default_batch_size(subject, device)
    histories = load_histories(parse_shape(arguments.shape, "vae"), None)
    part = needed_part(subject, histories, batch_size, arguments.steps, seed=1)
    training = PlainVAETraining(
        config,
        to_device(part, device),
        subject.plan("fp32", batch_size, 1, 1, device),
        chunk=arguments.chunk,
        precision=arguments.precision,
    )
    training.epoch()
    seconds = [training.epoch() for _ in range(arguments.epochs)]
    rate = training.num_samples / statistics.median(seconds)
    print(f"{rate:,.0f} users/s, batches of {batch_size:,} in chunks of {training.chunk:,}")


if __name__ == "__main__":
    main()
