"""The page for people who come from the reference systems: names of logs, and numbers."""

from __future__ import annotations

import re

from foretaste.evaluation import Evaluation
from foretaste.runs.log import UNITS
from tests.docs.pages import page

PAGE = page("coming-from-nvidia.md")
EVENTS = {"start", "epoch", "evaluation", "summary"}

NCF_NAMES = """
    train_time eval_time hr@10 ndcg average_train_time_per_epoch average_train_throughput
    average_eval_time_per_epoch average_eval_throughput eval_throughput first_epoch_to_hit best_hr
    best_epoch
"""
NCF_LINES = """
    Minimum Train Time per Epoch, Average Train Time per Epoch, Average Train Throughput,
    Minimum Eval Time per Epoch, Average Eval Time per Epoch, Average Eval Throughput,
    First Epoch to hit, Time to Train, Best HR, Best Epoch
"""
VAE_NAMES = """
    train_epoch_time train_throughput valid_time inference_throughput ndcg@100 recall@20 recall@50
    total_train_time total_valid_time total_elapsed_time average_validation_time
    mean_training_throughput max_training_throughput mean_inference_throughput
    max_inference_throughput final_ndcg@100 batch_1_mean_throughput batch_1_mean_latency
    batch_1_p90_latency batch_1_p95_latency batch_1_p99_latency
"""


def test_every_name_of_their_logs_is_there() -> None:
    names = {name.strip() for row in PAGE.rows("What a log has") for name in row[0].split(",")}
    theirs = {line.strip() for line in NCF_LINES.replace("\n", " ").split(",")}
    theirs = {" ".join(name.split()) for name in theirs}
    assert {*NCF_NAMES.split(), *VAE_NAMES.split(), *theirs} <= names


def test_every_name_of_ours_is_one_that_a_log_has() -> None:
    section = PAGE.section("What a log has")
    named = re.findall(r"`([a-z]+)\.(\w+)`", "\n".join(re.findall(r"^\|.*\|$", section, re.M)))
    assert len(named) > 20
    for event, name in named:
        assert event in EVENTS
        assert name in (Evaluation.__dataclass_fields__ if event == "evaluation" else UNITS), name


def test_our_numbers_equal_the_results_page() -> None:
    results = page("results.md").section("Seconds")
    numbers = [
        number
        for row in PAGE.rows("Their published numbers beside ours")
        for number in re.findall(r"\d[\d.]*(?: (?:k|M|ms)\b)?", row[3].partition(" (")[0])
    ]
    assert len(numbers) > 10
    assert [number for number in numbers if f" {number} " not in results] == []


def test_a_row_has_the_rules_of_its_option_and_the_help_of_ours() -> None:
    found = {row[0]: row[1:] for row in PAGE.rows("NCF")}
    *rules, about = found["--topk"]
    assert rules == ["--select-by hr@N", "--k N", "--k N"]
    assert about.startswith("Metric that chooses epoch and settings")
    assert found["-n"] == ["the same", "", "", "Items sampled per interaction"]
    assert found["--dropout"][3].startswith("acts here; the script switched it off")
