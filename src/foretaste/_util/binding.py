"""Binding: the ranks of a machine kept to cores of their own, near the memory and GPU they use."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretaste._util.process import launch
from foretaste.errors import SettingError

_SYSTEM = Path("/sys/devices/system")
_PCI = Path("/sys/bus/pci/devices")
_THREADS = Path("/proc/self/task")

Cores = list[tuple[int, ...]]
"""The hardware threads of each core, by their numbers."""


@dataclass(frozen=True)
class Binding:
    """The cores of one rank of a machine."""

    cpus: tuple[int, ...]
    """Hardware threads, ascending; a core may have two."""
    num_cores: int
    nodes: tuple[int, ...]
    """NUMA nodes that the cores belong to."""

    def __str__(self) -> str:
        cores = "1 core" if self.num_cores == 1 else f"{self.num_cores} cores"
        nodes = ", ".join(map(str, self.nodes))
        return f"{cores} (CPU {_ranges(self.cpus)}; NUMA node {nodes})"


def bind_rank() -> list[str]:
    """Bind this process, one of those that torchrun started on this machine, to its cores.

    All of its threads are kept to them, also those to come, and PyTorch computes with one thread a
    core of the rank that has the fewest. Memory is then taken from the NUMA node of the core that
    first writes it. Returns lines that say what each rank of the machine is bound to. Raises
    SettingError where the system has no such binding.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise SettingError("bind: this system binds no process to cores; leave it out")
    import torch

    started = launch()
    size = started.local_size
    nodes = cores_by_node(os.sched_getaffinity(0))
    bindings = bindings_of(size, nodes, _nodes_of_gpus(size))
    own = bindings[started.local_rank]
    for thread in _THREADS.iterdir() if _THREADS.is_dir() else ():
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread.name), own.cpus)
    os.sched_setaffinity(0, own.cpus)
    # as many on every rank, for sums depend on it
    torch.set_num_threads(min(binding.num_cores for binding in bindings))
    lines = [f"bound: local rank {n} to {binding}" for n, binding in enumerate(bindings)]
    num_cores = sum(map(len, nodes.values()))
    if num_cores < size:
        lines.append(f"{num_cores} cores for {size} ranks: some ranks share a core")
    return lines


def bindings_of(
    num_ranks: int, nodes: Mapping[int, Cores], near: Sequence[int | None] = ()
) -> list[Binding]:
    """The cores of each rank of a machine.

    Ranks are shared out over the NUMA nodes in order, or each goes to the node ``near`` its GPU
    where all are known; the ranks of a node share its cores out in contiguous parts. Where there
    are fewer cores than ranks, several ranks have the same core.
    """
    numbers = sorted(nodes)
    known = [(node,) for node in near if node is not None and node in nodes]
    parts = [_part(len(numbers), rank, num_ranks) for rank in range(num_ranks)]
    homes: list[tuple[int, ...]] = [tuple(numbers[n] for n in part) for part in parts]
    if len(known) == num_ranks:
        homes = [*known]
    found = []
    for rank, home in enumerate(homes):
        cores = [core for node in home for core in nodes[node]]
        part = _part(len(cores), homes[:rank].count(home), homes.count(home))
        own = [cores[position] for position in part]
        cpus = tuple(sorted(cpu for core in own for cpu in core))
        own_nodes = tuple(node for node in home if any(core in nodes[node] for core in own))
        found.append(Binding(cpus, len(own), own_nodes))
    return found


def cores_by_node(allowed: set[int], system: Path = _SYSTEM) -> dict[int, Cores]:
    """The cores with hardware threads that are ``allowed``, by NUMA node, as Linux describes them.

    A system that says nothing has one node, and a core for each hardware thread.
    """
    node_of = {
        cpu: int(path.parent.name.removeprefix("node"))
        for path in system.glob("node/node[0-9]*/cpulist")
        for cpu in _numbers(path.read_text())
    }
    cores: dict[int, dict[int, list[int]]] = {}
    for cpu in sorted(allowed):
        siblings = system / f"cpu/cpu{cpu}/topology/thread_siblings_list"
        first = min(_numbers(siblings.read_text())) if siblings.is_file() else cpu
        cores.setdefault(node_of.get(cpu, 0), {}).setdefault(first, []).append(cpu)
    return {node: [tuple(core) for core in of_node.values()] for node, of_node in cores.items()}


def _nodes_of_gpus(num_ranks: int) -> list[int | None]:
    """The NUMA nodes nearest to the GPUs of the ranks; nothing where there are not as many."""
    import torch

    if not torch.cuda.is_available() or torch.cuda.device_count() < num_ranks:
        return []
    found: list[int | None] = []
    for index in range(num_ranks):
        gpu: Any = torch.cuda.get_device_properties(index)  # these fields have no types
        address = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
        path = _PCI / address / "numa_node"
        found.append(int(path.read_text()) if path.is_file() else None)
    return found


def _part(size: int, number: int, num_parts: int) -> range:
    """A contiguous part of ``size`` things, of one at least."""
    start = size * number // num_parts
    return range(start, max(start + 1, size * (number + 1) // num_parts))


def _numbers(text: str) -> list[int]:
    """The numbers of ``0-3,8``, as Linux lists them."""
    found: list[int] = []
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found += range(int(first), int(last or first) + 1)
    return found


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as Linux lists them."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    pairs = zip(starts, ends, strict=True)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in pairs)
