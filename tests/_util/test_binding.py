"""Cores of ranks, from what Linux says about a machine; the last test binds a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretaste._util.binding import bind_rank, bindings_of, cores_by_node
from foretaste.errors import SettingError

TWO_NODES = {0: [(0, 4), (1, 5)], 1: [(2, 6), (3, 7)]}
"""Two nodes of two cores with two hardware threads each."""


def write_machine(system: Path, node_of: dict[int, int], siblings: dict[int, str]) -> None:
    for cpu, node in node_of.items():
        (system / f"node/node{node}").mkdir(parents=True, exist_ok=True)
        with (system / f"node/node{node}/cpulist").open("a") as file:
            file.write(f"{cpu},")
    for cpu, text in siblings.items():
        (system / f"cpu/cpu{cpu}/topology").mkdir(parents=True)
        (system / f"cpu/cpu{cpu}/topology/thread_siblings_list").write_text(text)


def test_cores_are_read_by_node_with_their_hardware_threads(tmp_path: Path) -> None:
    nodes = {cpu: cpu % 4 // 2 for cpu in range(8)}
    write_machine(tmp_path, nodes, {cpu: f"{cpu % 4},{cpu % 4 + 4}\n" for cpu in range(8)})
    assert cores_by_node({*range(8)}, tmp_path) == TWO_NODES
    assert cores_by_node({1, 3, 7}, tmp_path) == {0: [(1,)], 1: [(3, 7)]}
    assert cores_by_node({2, 5}, tmp_path / "nothing") == {0: [(2,), (5,)]}


def test_lists_of_linux_have_ranges(tmp_path: Path) -> None:
    write_machine(tmp_path, {}, dict.fromkeys(range(2), "0-1"))
    (tmp_path / "node/node3").mkdir(parents=True)
    (tmp_path / "node/node3/cpulist").write_text("0-1,8-9\n")
    assert cores_by_node({0, 1, 9}, tmp_path) == {3: [(0, 1), (9,)]}


@pytest.mark.parametrize(
    ("num_ranks", "cpus", "nodes"),
    [
        (1, [(0, 1, 2, 3, 4, 5, 6, 7)], [(0, 1)]),
        (2, [(0, 1, 4, 5), (2, 3, 6, 7)], [(0,), (1,)]),
        (4, [(0, 4), (1, 5), (2, 6), (3, 7)], [(0,), (0,), (1,), (1,)]),
    ],
)
def test_ranks_share_the_cores_out(
    num_ranks: int, cpus: list[tuple[int, ...]], nodes: list[tuple[int, ...]]
) -> None:
    found = bindings_of(num_ranks, TWO_NODES)
    assert [binding.cpus for binding in found] == cpus
    assert [binding.nodes for binding in found] == nodes
    assert [binding.num_cores for binding in found] == [4 // num_ranks] * num_ranks


def test_three_ranks_on_two_nodes_stay_within_a_node() -> None:
    found = bindings_of(3, TWO_NODES)
    assert [binding.cpus for binding in found] == [(0, 4), (1, 5), (2, 3, 6, 7)]


def test_ranks_beyond_the_cores_share_one() -> None:
    found = bindings_of(5, {0: [(0,), (1,)]})
    assert [binding.cpus for binding in found] == [(0,), (0,), (0,), (1,), (1,)]
    assert {binding.num_cores for binding in found} == {1}


def test_ranks_go_to_the_node_of_their_gpu() -> None:
    found = bindings_of(4, TWO_NODES, near=[1, 1, 0, 0])
    assert [binding.cpus for binding in found] == [(2, 6), (3, 7), (0, 4), (1, 5)]
    unknown = bindings_of(4, TWO_NODES, near=[1, 1, 0, None])
    assert unknown == bindings_of(4, TWO_NODES)


def test_a_binding_names_its_cores() -> None:
    (binding,) = bindings_of(1, {0: [(0,), (1,), (2,)], 1: [(8,)]})
    assert str(binding) == "4 cores (CPU 0-2,8; NUMA node 0, 1)"


def test_all_threads_of_a_process_are_bound() -> None:
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs Linux and two cores")
    code = (
        "import os, torch; torch.ones(1 << 20).sum()\n"
        "from foretaste._util.binding import bind_rank\n"
        "lines = bind_rank()\n"
        "masks = {frozenset(os.sched_getaffinity(int(t))) for t in os.listdir('/proc/self/task')}\n"
        "print(len(masks), sorted(masks.pop()), torch.get_num_threads(), len(lines))"
    )
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | ranks,
        capture_output=True,
        text=True,
        check=True,
    )
    allowed = cores_by_node(os.sched_getaffinity(0))
    own = bindings_of(2, allowed)[1]
    assert done.stdout.strip() == f"1 {list(own.cpus)} {own.num_cores} 2"


def test_a_system_without_binding_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    with pytest.raises(SettingError, match="bind: this system binds no process to cores"):
        bind_rank()
