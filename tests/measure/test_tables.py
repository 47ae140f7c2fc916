"""Evaluations as tables."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from foretaste.evaluation.result import Difference, Evaluation, Group, Metric
from foretaste.measure.tables import (
    HEADLINE,
    comparison_grid,
    difference_grid,
    evaluation_grid,
    group_grids,
    metric_rows,
    shown_metrics,
    with_new_items,
)


def evaluation(**values: float) -> Evaluation:
    """An evaluation of metrics spelled ``ndcg_10``, with intervals of ± 0.01."""
    metrics = {}
    for spelled, value in values.items():
        name = "@".join(spelled.rsplit("_", 1))
        bounds = (None, None) if name.startswith("coverage") else (value - 0.01, value + 0.01)
        metrics[name] = Metric(name=name, value=value, low=bounds[0], high=bounds[1])
    return Evaluation(
        split="test",
        protocol="leave-one-out",
        candidates="full",
        metrics=metrics,
        num_users=50,
        num_users_without_target=0,
        num_unseen_targets=0,
        num_short_candidate_lists=0,
        num_samples=5000,
        elapsed_s=0.1,
    )


FOUND = evaluation(hr_5=0.5, hr_10=0.6, ndcg_5=0.25, ndcg_10=0.3, coverage_5=0.125)


def test_a_comparison_of_new_items_has_the_metric_that_chooses() -> None:
    for protocol in ("leave-one-out", "held-out-users"):
        assert shown_metrics(HEADLINE, protocol) == HEADLINE
    assert shown_metrics(HEADLINE, "new-items (random)") == ("recall_all@20", *HEADLINE)
    assert shown_metrics(["hr@5"], "new-items (random)") == ("hr@5",)
    share = Metric(name="new_items@20", value=0.1, low=None, high=None)
    other = replace(FOUND, metrics=FOUND.metrics | {share.name: share})
    names = ["hr@10", "recall@20", "recall_all@10"]
    assert with_new_items(names, [FOUND]) == names
    behind = ["hr@10", "recall@20", "new_items@20", "recall_all@10"]
    assert with_new_items(names, [FOUND, other]) == behind


def test_one_evaluation_in_markdown() -> None:
    assert evaluation_grid(FOUND).to_markdown().splitlines() == [
        "| metric | @5 | @10 |",
        "| --- | ---: | ---: |",
        "| hr | 0.5000 (0.4900–0.5100) | 0.6000 (0.5900–0.6100) |",
        "| ndcg | 0.2500 (0.2400–0.2600) | 0.3000 (0.2900–0.3100) |",
        "| coverage | 0.1250 | - |",
    ]


def test_comparison_in_markdown() -> None:
    grid = comparison_grid({"a": FOUND, "b": evaluation(hr_10=1.0)}, ["hr@10", "ndcg@5"])
    assert grid.to_markdown().splitlines()[2:] == [
        "| a | 0.6000 (0.5900–0.6100) | 0.2500 (0.2400–0.2600) |",
        "| b | 1.0000 (0.9900–1.0000) | - |",
    ]


def test_differences_are_signed_and_starred() -> None:
    found = {
        "ndcg@10": Difference(name="ndcg@10", value=0.05, low=0.01, high=0.09),
        "hr@10": Difference(name="hr@10", value=-0.02, low=-0.06, high=0.02),
        "mrr@10": Difference(name="mrr@10", value=0.0, low=None, high=None),
    }
    names = ["ndcg@10", "hr@10", "mrr@10", "coverage@10"]
    assert difference_grid({"b": found}, names).to_markdown().splitlines()[2] == (
        "| b | +0.0500 * (+0.0100 to +0.0900) | -0.0200 (-0.0600 to +0.0200) | +0.0000 | - |"
    )


def test_a_terminal_of_eighty_columns_holds_four_lengths() -> None:
    names = {f"{kind}_{k}": 0.5 for kind in ("hr", "recall_all") for k in (10, 20, 50, 100)}
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(evaluation_grid(evaluation(**names)).to_rich())
    text = console.export_text()
    assert "…" not in text
    assert text.count("0.4900–0.5100") == 8
    assert max(map(len, text.splitlines())) <= 80


def test_rows_carry_what_must_be_named() -> None:
    rows = metric_rows(Path("runs/mine"), "mine", FOUND)
    assert rows[0] == {
        "run": "runs/mine",
        "label": "mine",
        "split": "test",
        "protocol": "leave-one-out",
        "candidates": "full",
        "by": None,
        "group": None,
        "num_users": 50,
        "metric": "hr@5",
        "value": 0.5,
        "low": 0.49,
        "high": 0.51,
    }
    assert len(rows) == len(FOUND.metrics)


def grouped(**num_users: int) -> Evaluation:
    """An evaluation with groups by popularity; a group's hr@10 is a tenth of its number of
    users."""
    return replace(
        FOUND,
        groups=tuple(
            Group(
                by="popularity",
                name=name,
                num_users=number,
                metrics=evaluation(hr_5=0.5, hr_10=number / 10, ndcg_10=0.25).metrics,
            )
            for name, number in num_users.items()
        ),
    )


def test_groups_of_one_evaluation() -> None:
    ((heading, grid),) = group_grids({"a": grouped(head=5, tail=2)})
    assert heading == "Held-out items by their popularity in training:"
    assert grid.headings == ("", "head", "tail")
    assert [(label, *(cell.value for cell in cells)) for label, cells in grid.rows] == [
        ("users", "5", "2"),
        ("hr@10", "0.5000", "0.2000"),
        ("ndcg@10", "0.2500", "0.2500"),
    ]
    assert group_grids({"a": FOUND}) == []
    ((_, grid),) = group_grids({"a": grouped(head=5)}, ["novelty@10"])
    assert [label for label, _ in grid.rows] == ["users", "hr@5", "hr@10"]


def test_rows_have_every_group() -> None:
    found = grouped(head=5, tail=2)
    rows = metric_rows(Path("runs/a"), "a", found)
    assert [row["metric"] for row in rows if row["group"] is None] == list(FOUND.metrics)
    of_head = [row for row in rows if row["group"] == "head"]
    assert [row["metric"] for row in of_head] == ["hr@5", "hr@10", "ndcg@10"]
    assert {(row["by"], row["num_users"]) for row in of_head} == {("popularity", 5)}
