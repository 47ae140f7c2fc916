"""Weights that two checkouts train, compared: every model and precision a CPU computes.

    python -m benchmarks.same_numbers OLD_CHECKOUT NEW_CHECKOUT --data ml-100k/ratings.csv

Each case is trained by both, in a process of its own with one thread, and compared byte for byte:
the weights, and every loss and metric. Exits with 1 where they differ. A change of structure must
not change any of them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save

NEURAL = ("neumf", "gmf", "mlp", "vae", "dae")
CASES: dict[str, tuple[str, str, str, int]] = {
    "popularity": ("popularity", "fp32", "held-out-users", 1),
    "ease": ("ease", "fp32", "held-out-users", 1),
    **{f"{model} fp32": (model, "fp32", "held-out-users", 3) for model in NEURAL},
    **{f"{model} bf16": (model, "bf16", "held-out-users", 3) for model in NEURAL if model != "gmf"},
    "neumf fp32 leave-one-out": ("neumf", "fp32", "leave-one-out", 3),
    "vae fp32 leave-one-out": ("vae", "fp32", "leave-one-out", 3),
    "vae fp16": ("vae", "fp16", "held-out-users", 1),
}
"""Model, precision, protocol and epochs, by name."""

SCRIPT = """
import json, sys
import torch
torch.set_num_threads(1)
import foretaste
data, folder, model, precision, protocol, epochs = sys.argv[1:]
config = foretaste.PrepareConfig(protocol=protocol)
dataset = foretaste.prepare(data, f"{folder}/data", config)
config = foretaste.TrainingConfig(epochs=int(epochs), precision=precision, device="cpu")
if model in ("popularity", "ease"):
    config = foretaste.TrainingConfig(device="cpu")
foretaste.train(model, dataset, config=config, run=f"{folder}/run")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs=2, type=Path)
    parser.add_argument("--data", required=True, type=Path)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    differing = 0
    for case in arguments.cases:
        old, new = (trained(checkout, arguments.data, case) for checkout in arguments.checkouts)
        wrong = [name for name in old if old[name] != new[name]]
        differing += bool(wrong)
        print(f"{case:28}{'DIFFERENT: ' + ', '.join(wrong) if wrong else 'the same'}", flush=True)
    print(f"{differing} of {len(arguments.cases)} cases differ")
    sys.exit(differing > 0)


def trained(checkout: Path, data: Path, case: str) -> dict[str, Any]:
    """Digest of the weights, and every loss and metric, of one case trained by a checkout."""
    environment = os.environ | {"PYTHONPATH": str(checkout.resolve() / "src")}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", SCRIPT, str(data), folder, *map(str, CASES[case])]
        subprocess.run(command, env=environment, check=True)
        run = Path(folder, "run")
        events = [json.loads(line) for line in (run / "metrics.jsonl").open(encoding="utf-8")]
        return {
            "weights": hashlib.sha256(save(load_file(run / "best.safetensors"))).hexdigest(),
            "losses": [event["loss"] for event in events if event["event"] == "epoch"],
            "metrics": [metrics_of(event) for event in events if event["event"] == "evaluation"],
        }


def metrics_of(evaluation: dict[str, Any]) -> Any:
    """The numbers of an evaluation, without its time."""
    return evaluation["evaluation"]["metrics"]


if __name__ == "__main__":
    main()
