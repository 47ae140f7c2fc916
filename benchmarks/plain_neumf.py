"""The plain NeuMF loop by itself, which `foretaste bench train neumf` is held against.

    python benchmarks/plain_neumf.py --shape ml-1m --steps 4

The loop is `foretaste.bench.plain_neumf`: embeddings, concatenation, `nn.Linear` and `nn.Dropout`,
BCEWithLogits, `Adam(fused=True)`, pre-batched tensors, its own best chunk. Options: those of
`foretaste bench train neumf` that concern it.
"""

from __future__ import annotations

import argparse
import statistics

from foretaste.bench.generated import load_histories
from foretaste.bench.plain_neumf import PlainNeuMFTraining
from foretaste.bench.shapes import parse_shape
from foretaste.bench.subject import Subject
from foretaste.bench.train import default_batch_size, needed_part
from foretaste.evaluation.ranking import to_device
from foretaste.models.neumf.config import NeuMFConfig, SamplingConfig
from foretaste.ops.device import resolve_device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", default="ml-1m")
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--layers", type=int, nargs="+", default=[256, 256, 128, 64])
    parser.add_argument("--batch-size", type=int)
    parser.add_argument(
        "--chunk", type=int, help="samples at once; the best of several if not given"
    )
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--steps", type=int, help="updates in an epoch; all of them if not given")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    device = resolve_device(arguments.device)
    config = NeuMFConfig(factors=arguments.factors, layers=tuple(arguments.layers))
    subject = Subject(model=config, sampling=SamplingConfig())
    batch_size = arguments.batch_size or default_batch_size(subject, device)
    histories = load_histories(parse_shape(arguments.shape, "neumf"), None)
    part = needed_part(subject, histories, batch_size, arguments.steps, seed=1)
    training = PlainNeuMFTraining(
        config,
        SamplingConfig(),
        to_device(part, device),
        subject.plan("fp32", batch_size, 1, 1, device),
        chunk=arguments.chunk,
        precision=arguments.precision,
    )
    training.epoch()
    seconds = [training.epoch() for _ in range(arguments.epochs)]
    rate = training.num_samples / statistics.median(seconds)
    print(f"{rate:,.0f} samples/s, batches of {batch_size:,} in chunks of {training.chunk:,}")


if __name__ == "__main__":
    main()
