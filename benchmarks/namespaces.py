"""Two ranks that share no network but a cable: network namespaces joined by a veth pair.

    sudo python -m benchmarks.namespaces vae --epochs 3

Trains a model in one process, then on two ranks, each started by a torchrun of its own in a
namespace of its own, and compares losses, metrics and weights. Needs Linux, root and `ip`.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

SET_UP = """
ip netns add rank0
ip netns add rank1
ip link add veth0 netns rank0 type veth peer name veth1 netns rank1
ip -n rank0 address add 10.9.8.1/24 dev veth0
ip -n rank1 address add 10.9.8.2/24 dev veth1
ip -n rank0 link set veth0 up
ip -n rank1 link set veth1 up
ip -n rank0 link set lo up
ip -n rank1 link set lo up
"""
TAKE_DOWN = "ip netns delete rank0\nip netns delete rank1\n"

LAUNCH = (
    "ip netns exec rank0 env GLOO_SOCKET_IFNAME=veth0 torchrun --nnodes 2 --nproc-per-node 1"
    " --local-addr 10.9.8.1 --rdzv-backend c10d --rdzv-endpoint 10.9.8.1:29400"
    " --rdzv-conf is_host=1 -m -- foretaste",
    "ip netns exec rank1 env GLOO_SOCKET_IFNAME=veth1 torchrun --nnodes 2 --nproc-per-node 1"
    " --local-addr 10.9.8.2 --rdzv-backend c10d --rdzv-endpoint 10.9.8.1:29400"
    " --rdzv-conf is_host=0 -m -- foretaste",
)
"""Two namespaces of one machine have one host name, so addresses and the host are named here."""

TIMEOUT_S = 300.0


@contextmanager
def namespaces() -> Iterator[tuple[str, str]]:
    """Make both namespaces; yields the commands that launch a rank in each.

    They carry this process's number in their names. Raises OSError where they are not allowed.
    """
    try:
        for line in SET_UP.strip().splitlines():
            _run(_own(line))
        yield _own(LAUNCH[0]), _own(LAUNCH[1])
    finally:
        for line in TAKE_DOWN.strip().splitlines():
            subprocess.run(shlex.split(_own(line)), capture_output=True, check=False)


def _own(line: str) -> str:
    return line.replace("rank0", f"r0-{os.getpid()}").replace("rank1", f"r1-{os.getpid()}")


def _run(line: str) -> None:
    try:
        subprocess.run(shlex.split(line), capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        raise OSError(f"{line}: {error.stderr.strip()}") from error


def train_both(dataset: Path, folder: Path, options: Sequence[str]) -> tuple[Path, Path]:
    """The runs of one process and of two ranks, each in its namespace, with the same options."""
    one, two = folder / "one", folder / "two"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment["PATH"]])
    words = ["train", options[0], str(dataset), *options[1:], "--quiet", "--run"]
    alone = [sys.executable, "-m", "foretaste", *words, str(one)]
    subprocess.run(alone, env=environment, check=True, timeout=TIMEOUT_S)
    with namespaces() as launchers:
        ranks = [
            subprocess.Popen([*shlex.split(launch), *words, str(two)], env=environment)
            for launch in launchers
        ]
        try:
            statuses = [rank.wait(TIMEOUT_S) for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
    if any(statuses):
        raise RuntimeError(f"the ranks ended with {statuses}")
    return one, two


def differences(one: Path, two: Path) -> dict[str, float]:
    """Largest differences between two runs: of losses and metrics, relative, and of weights."""
    losses, metrics = zip(*map(_numbers, (one, two)), strict=True)
    weights = [load_file(run / "best.safetensors") for run in (one, two)]
    return {
        "losses": max(abs(a - b) / abs(b) for a, b in zip(*losses, strict=True)),
        "metrics": max(abs(a - b) for a, b in zip(*metrics, strict=True)),
        "weights": max((a - b).abs().max().item() for a, b in _pairs(*weights)),
    }


def _numbers(run: Path) -> tuple[list[float], list[float]]:
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    found = [event["evaluation"]["metrics"] for event in events if event["event"] == "evaluation"]
    return (
        [event["loss"] for event in events if event["event"] == "epoch"],
        [value for metrics in found for value in _values(metrics)],
    )


def _values(metrics: Any) -> Iterator[float]:
    if isinstance(metrics, dict):
        for inner in metrics.values():
            yield from _values(inner)
    elif isinstance(metrics, list):
        for inner in metrics:
            yield from _values(inner)
    elif isinstance(metrics, float):
        yield metrics


def _pairs(one: dict[str, Any], two: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    if one.keys() != two.keys():
        raise RuntimeError(f"other tensors: {sorted(one)}, {sorted(two)}")
    yield from ((one[name].float(), two[name].float()) for name in one)


def main() -> None:
    options = sys.argv[1:] or ["vae"]
    if shutil.which("ip") is None:
        sys.exit("error: `ip` is not installed (iproute2)")
    with tempfile.TemporaryDirectory() as folder:
        from foretaste.data import GenerateConfig, generate, prepare

        dataset = prepare(generate(GenerateConfig()).table, Path(folder, "data"))
        print("\n".join([SET_UP.strip(), *(f"{line} ..." for line in LAUNCH), TAKE_DOWN]))
        for name, value in differences(*train_both(dataset.path, Path(folder), options)).items():
            print(f"largest difference of {name}: {value:.3g}")


if __name__ == "__main__":
    main()
