import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from foretaste.errors import SettingError
from foretaste.evaluation.config import (
    LIST_METRICS,
    METRICS,
    CandidateRule,
    EvaluationConfig,
    metric_name,
    parse_metric,
    validate_lengths,
)
from foretaste.evaluation.evaluator import evaluate
from foretaste.evaluation.result import (
    Evaluation,
    Metric,
    compare_evaluations,
    mean_interval,
    paired_difference,
    wilson_interval,
)
from tests.evaluation.worlds import TableModel, held_out
from tests.messages import raises, says

OF_HELD_OUT = [kind for kind in METRICS if kind not in ("new_items", *LIST_METRICS)]


def small_evaluation(scores: torch.Tensor, num_targets: int = 1, **options: object) -> Evaluation:
    num_users, num_items = scores.shape
    heldout = held_out(
        [[0]] * num_users, [list(range(1, 1 + num_targets))] * num_users, num_items=num_items
    )
    return evaluate(
        TableModel(scores),
        heldout,
        k=(1, 2),
        **options,  # type: ignore[arg-type]
    )


def test_a_metric_that_was_not_measured_is_refused_naming_those_that_were() -> None:
    evaluation = small_evaluation(torch.rand(20, 6))
    with raises(SettingError, "ndcg@7", "ndcg@1", 2):
        evaluation["ndcg@7"]


@pytest.mark.parametrize(("num_unknown", "start"), [(1, "the model"), (3, "warning: the model")])
def test_unknown_users_are_counted_and_left_out_of_a_second_result(
    num_unknown: int, start: str
) -> None:
    """Everyone's item 1 is found by the scores, and by popularity only after the others."""
    num_users, num_items = 10, 4
    histories = [[] if user < num_unknown else [0] for user in range(num_users)]
    heldout = held_out(histories, [[1]] * num_users, num_items=num_items)
    model = TableModel(torch.eye(num_items)[1].expand(num_users, -1))
    model.item_count_I.copy_(torch.tensor([9.0, 1.0, 5.0, 5.0]))
    found = evaluate(model, heldout, k=(1, 2))
    share = 1 - num_unknown / num_users
    assert found["hr@1"] == pytest.approx(share)
    assert found.of_known["hr@1"].value == 1
    assert (found.num_users_unknown, found.share_unknown) == (num_unknown, num_unknown / num_users)
    line = found.conditions("a")[-1]
    assert line == found.definitions(label="a")[-1]
    says(line, "a", start, num_unknown, 10, f"{num_unknown}0%", "hr@1", "1.0000")
    assert Evaluation.from_dict(json.loads(json.dumps(found.as_dict()))) == found


def test_a_measurement_of_the_fallback_warns() -> None:
    heldout = held_out([[]] * 5, [[1]] * 5, num_items=4)
    model = TableModel(torch.rand(5, 4))
    found = evaluate(model, heldout, k=(1,))
    assert not found.of_known
    says(str(found).splitlines()[-1], 5)


def test_written_and_read_back() -> None:
    evaluation = small_evaluation(torch.rand(20, 6))
    written = json.loads(json.dumps(evaluation.as_dict()))
    assert Evaluation.from_dict(written) == evaluation
    assert Evaluation.from_dict(written | {"added_later": 1}) == evaluation
    names = {metric_name(kind, k) for kind in OF_HELD_OUT for k in (1, 2)}
    assert set(written["metrics"]) == names
    with_more = small_evaluation(torch.rand(20, 6), more=True)
    written = json.loads(json.dumps(with_more.as_dict()))
    assert len(written["groups"]) > 1
    assert Evaluation.from_dict(written) == with_more
    del written["groups"]  # older evaluations were written without them
    assert Evaluation.from_dict(written) == replace(with_more, groups=())


def test_intervals_by_metric() -> None:
    evaluation = small_evaluation(torch.rand(50, 8))
    hr = evaluation.metrics["hr@2"]
    assert (hr.low, hr.high) == wilson_interval(hr.value, 50)
    ndcg = evaluation.metrics["ndcg@2"]
    assert (ndcg.low, ndcg.high) == mean_interval(evaluation.per_user["ndcg@2"])
    coverage = evaluation.metrics["coverage@2"]
    assert coverage.low is coverage.high is None
    several = small_evaluation(torch.rand(50, 8), num_targets=2)
    hr = several.metrics["hr@2"]
    assert (hr.low, hr.high) == mean_interval(several.per_user["hr@2"])
    sampled = small_evaluation(torch.rand(50, 8), candidates="sampled-3")
    assert "coverage@2" not in sampled.metrics


def test_the_shown_interval_of_a_share_stays_within_0_and_1() -> None:
    shown = {
        name: Metric(name=name, value=0.5, low=-0.5, high=1.5).interval()
        for name in ("ndcg@10", "popularity_lift@10")
    }
    assert shown == {"ndcg@10": "0.0000–1.0000", "popularity_lift@10": "-0.5000–1.5000"}


def test_a_notebook_shows_every_metric_in_a_table() -> None:
    evaluation = replace(small_evaluation(torch.rand(20, 6)), protocol="<b>")
    html = evaluation._repr_html_()
    assert "<b>" not in html
    assert html.count("<tr>") == 1 + len(evaluation.metrics)
    for text in (evaluation.metrics["hr@1"].interval(), f"{evaluation['ndcg@2']:.4f}", "&lt;b&gt;"):
        assert text in html


def test_wilson_interval_by_hand() -> None:
    # Wilson (1927) for 10 of 100 at z = 1.96: (.0552, .1744).
    assert wilson_interval(0.1, 100) == pytest.approx((0.05523, 0.17437), abs=1e-5)
    low, high = wilson_interval(0.0, 10)
    assert low == 0
    assert high == pytest.approx(1.96**2 / (10 + 1.96**2))
    assert wilson_interval(1.0, 10)[1] == pytest.approx(1)


def test_mean_interval_by_hand() -> None:
    half_width = 1.96 * np.sqrt(0.5) / np.sqrt(2)
    assert mean_interval(np.array([0.0, 1.0])) == pytest.approx(
        (0.5 - half_width, 0.5 + half_width)
    )
    assert mean_interval(np.array([0.3])) == (None, None)


def test_definitions_name_everything() -> None:
    evaluation = small_evaluation(torch.rand(20, 6), candidates="sampled-99")
    text = "\n".join(evaluation.definitions())
    assert "test part, protocol leave-one-out, 20 users" in text
    assert "sampled-99: 99 distinct random items" in text
    assert "20 users with fewer negatives than asked for" in text
    assert "without any held-out item" not in text
    for kind in METRICS:
        is_measured = kind in OF_HELD_OUT and kind != "coverage"
        assert (f"{kind}@k: " in text) == is_measured
    assert "by activity" not in text
    assert "never" not in text


def test_definitions_of_some_metrics_leave_out_the_others() -> None:
    evaluation = small_evaluation(torch.rand(20, 6))
    all_lines = evaluation.definitions()
    lines = evaluation.definitions(["ndcg@1", "mrr@2", "hr@7"])
    assert [line.partition("@k: ")[0] for line in lines if "@k: " in line] == ["ndcg", "mrr"]
    assert [line for line in all_lines if "@k: " not in line] == [
        line for line in lines if "@k: " not in line
    ]


def test_metric_names() -> None:
    assert parse_metric(" NDCG@100 ") == ("ndcg", 100)
    for name in ("hr", "hr@0", "map@10"):
        with raises(SettingError, name):
            parse_metric(name)


def test_candidate_rules() -> None:
    assert CandidateRule.parse("full") == CandidateRule(kind="full", num_negatives=0)
    assert CandidateRule.parse("nvidia-100") == CandidateRule(kind="nvidia", num_negatives=100)
    assert CandidateRule.parse("fixed") == CandidateRule(kind="fixed", num_negatives=0)
    for wrong in ("", "sampled-0", "fixed-9"):
        with raises(SettingError, "candidates", wrong):
            EvaluationConfig(candidates=wrong)


def test_list_lengths() -> None:
    assert validate_lengths([20, 10, 20]) == (10, 20)
    assert EvaluationConfig(k=10).k == (10,)  # type: ignore[arg-type]
    for wrong in ((10, 0), (2.5,), "10"):
        with raises(SettingError, "k"):
            EvaluationConfig(k=wrong)  # type: ignore[arg-type]
    with raises(SettingError, "k", "()"):
        EvaluationConfig(k=())


def test_a_paired_difference_sees_what_single_intervals_do_not() -> None:
    first = np.random.default_rng(0).random(200)
    second = first + 0.01 + 0.001 * np.tile([1.0, -1.0], 100)
    difference = paired_difference("ndcg@10", first, second)
    assert difference.value == pytest.approx(0.01)
    half_width = 1.96 * 0.001 * np.sqrt(200 / 199) / np.sqrt(200)
    assert (difference.low, difference.high) == pytest.approx(
        (0.01 - half_width, 0.01 + half_width)
    )
    assert difference.is_clear
    assert mean_interval(first)[1] > mean_interval(second)[0]  # type: ignore[operator]
    assert not paired_difference("ndcg@10", first, first).is_clear
    assert not paired_difference("ndcg@10", first[:1], second[:1]).is_clear


def test_evaluations_are_compared_on_the_same_ground_only() -> None:
    scores = torch.rand(30, 6)
    better = scores.clone()
    better[:, 1] += 1
    first, second = small_evaluation(scores), small_evaluation(better)
    differences = compare_evaluations(first, second)
    assert set(differences) == set(first.per_user)
    assert differences["hr@1"].value == pytest.approx(second["hr@1"] - first["hr@1"])
    assert differences["hr@1"].is_clear
    first, second = (small_evaluation(table, more=True) for table in (scores, better))
    measured = {parse_metric(name)[0] for name in compare_evaluations(first, second)}
    assert {"novelty", "long_tail"} < measured
    with raises(SettingError, "full", "sampled-3"):
        compare_evaluations(first, small_evaluation(scores, candidates="sampled-3"))
    with raises(SettingError):
        compare_evaluations(first, small_evaluation(scores[:20]))
