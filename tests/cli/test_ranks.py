"""Commands that ranks share: each number and line is printed once."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import torch

from tests.cli.conftest import call
from tests.launched import launched
from tests.messages import says


def test_evaluate_prints_and_logs_once_what_one_process_does(shop: Path, tmp_path: Path) -> None:
    line = f"evaluate {shop}/runs/vae --dataset {shop}/data --format json --evaluation-batch 50"
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = call(*line.split())
    torch.set_num_threads(num_threads)
    with launched(2, f"{line} --log-path log.jsonl", tmp_path) as ranks:
        assert ranks.statuses() == [0, 0]
    assert (ranks.stdout, ranks.stderr) == (alone.out, "")
    events = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events][1:] == ["evaluation"]


def test_a_port_that_another_program_has_is_one_sentence_of_each_rank(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1]
        by_hand = {
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "FORETASTE_JOIN_TIMEOUT_S": "1",
        }
        with launched(2, "train popularity nowhere", tmp_path, env=by_hand) as ranks:
            assert ranks.statuses() == [2, 2]
    lines = ranks.stderr.splitlines()
    assert len(lines) == 2
    for line in lines:
        says(line, f"localhost:{port}", "MASTER_ADDR and MASTER_PORT", re.compile(".*(?=;)"), 0)


def test_a_lone_rank_names_the_address_of_the_first_rank(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
    by_hand = {
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "FORETASTE_JOIN_TIMEOUT_S": "1",
    }
    with launched(2, "train popularity nowhere", tmp_path, only=[1], env=by_hand) as ranks:
        assert ranks.statuses([1]) == [2]
    (line,) = ranks.stderr.splitlines()
    says(line, f"localhost:{port}", "MASTER_ADDR and MASTER_PORT", "1 s", 0)


def test_a_timeout_that_is_no_number_is_one_sentence(tmp_path: Path) -> None:
    soon = {"FORETASTE_JOIN_TIMEOUT_S": "soon"}
    with launched(2, "train popularity nowhere", tmp_path, env=soon) as ranks:
        assert ranks.statuses() == [2, 2]
    (line,) = ranks.stderr.splitlines()
    says(re.sub(r"^error: (rank 1: )?", "", line), "FORETASTE_JOIN_TIMEOUT_S", "soon")
