"""``foretaste evaluate`` and ``foretaste compare``."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest

from foretaste.runs import Run
from tests.cli.conftest import Foretaste, refused
from tests.messages import says


def logged(run: str) -> dict[str, Any]:
    """The test metrics in the training's log."""
    evaluations = [event for event in Run.open(run).log.read() if event["event"] == "evaluation"]
    metrics: dict[str, Any] = evaluations[-1]["evaluation"]["metrics"]
    return metrics


def test_evaluate_finds_what_the_training_found(foretaste: Foretaste) -> None:
    done = foretaste("evaluate runs/vae -k 10,20 --format json")
    assert done.status == 0, done.err
    records = {record["metric"]: record for record in json.loads(done.out)}
    expected = logged("runs/vae")
    assert records.keys() == {name for name in expected if name.endswith(("@10", "@20"))}
    for name, record in records.items():
        assert record["value"] == pytest.approx(expected[name]["value"], abs=1e-6)
        assert (record["split"], record["candidates"]) == ("test", "full")
        assert (record["run"], record["label"]) == ("runs/vae", "vae")


def test_evaluate_shows_the_metrics_asked_for(foretaste: Foretaste) -> None:
    option = "--metrics ndcg@5 HR@20"
    done = foretaste(f"evaluate runs/vae {option}")
    assert done.status == 0, done.err
    assert re.search(r"^ +ndcg@5 +hr@20 *$", done.out, re.MULTILINE)
    assert re.search(r"^ vae +0\.\d{4} +0\.\d{4} *$", done.out, re.MULTILINE)
    defined = re.findall(r"^(\w+)@k: ", done.out, re.MULTILINE)
    assert sorted(defined) == ["hr", "ndcg"]
    records = json.loads(foretaste(f"evaluate runs/vae {option} --format json").out)
    assert {record["metric"] for record in records} >= {"ndcg@5", "hr@20"}


def test_quiet_evaluations_are_tables_alone(foretaste: Foretaste) -> None:
    full, quiet = foretaste("evaluate runs/vae -k 5"), foretaste("evaluate runs/vae -k 5 --quiet")
    assert quiet.status == 0
    assert quiet.err == ""
    table = quiet.out.strip()
    assert table.startswith("metric")
    assert table in full.out
    assert "users" not in quiet.out
    quiet = foretaste("compare runs/vae runs/gmf -m ndcg@10 -q")
    assert quiet.out.count("ndcg@10") == 2
    assert "runs/" not in quiet.out


def test_evaluate_as_a_table(foretaste: Foretaste) -> None:
    done = foretaste("evaluate runs/gmf -k 5 --candidates sampled-9 --split validation")
    assert done.status == 0
    assert done.err == ""
    assert "gmf: gmf on " in done.out
    assert "@5" in done.out
    assert "@10" not in done.out
    assert "validation part, protocol leave-one-out" in done.out
    assert "candidates sampled-9: 9 distinct random items" in done.out
    assert "\n coverage" not in done.out
    speed = re.search(
        r"120 users ranked in [\d.e-]+ s: ([\d.]+) k users/s, ([\d.]+) (\S) ", done.out
    )
    assert speed, done.out
    rate = float(speed[2]) * {"k": 1.0, "M": 1000.0}[speed[3]]
    assert rate == pytest.approx(10 * float(speed[1]), rel=0.01), "a target and nine negatives each"


def test_a_place_that_holds_no_log_is_refused_before_ranking(
    foretaste: Foretaste, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = "foretaste.measure.evaluate_runs.measure_run"
    monkeypatch.setattr(ranking, lambda *_: pytest.fail("ranked"))
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "log.jsonl"
    refused(foretaste(f"evaluate runs/gmf --log-path {path}"), "log_path", path, path.parent)


def test_compare_shows_runs_and_their_differences(foretaste: Foretaste) -> None:
    done = foretaste("compare runs/popularity runs/vae runs/gmf")
    assert done.status == 0
    assert done.err == ""
    table, _, rest = done.out.partition("Difference to popularity on the same users")
    for label in ("popularity", "vae", "gmf"):
        assert f"\n {label} " in table
        assert f"\n{label}: {label}, runs/{label}\n" in rest
    assert "hr@10" in table
    assert "coverage@k" not in done.out
    assert "@k: " not in done.out
    assert rest.count("test part, protocol leave-one-out, candidates full, 120 users") == 1


def test_a_run_that_is_clearly_worse_does_not_pass_the_gate(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    """People of four kinds, each kind with its own items; popularity cannot tell them apart."""
    rows = [f"{user},{(user % 4) * 10 + (user // 4 + 3 * step) % 10},{step}"
            for user in range(120) for step in range(6)]  # fmt: skip
    (tmp_path / "kinds.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    for model in ("ease", "popularity"):
        foretaste(f"train {model} {tmp_path}/kinds.csv --run {tmp_path}/{model}")
    gate = f"compare {tmp_path}/ease {tmp_path}/popularity --gate --quiet"
    done = foretaste(gate)
    assert done.status == 2
    assert "ndcg@10" in done.out, "the numbers are printed first"
    worse, better = tmp_path / "popularity", tmp_path / "ease"
    below = re.compile(r"0\.\d{4} after [01]\.\d{4}, -0\.\d{4} \(-0\.\d{4} to -0\.\d{4}\)")
    says(done.err, worse, better, "ndcg@10", below, 120, re.compile(r"\d+%"))
    says(foretaste(f"{gate} -m hr@5").err, worse, better, "hr@5", below, 120, re.compile(r"\d+%"))
    passed = foretaste(f"compare {worse} {better} --gate")
    assert passed.status == 0
    difference = re.compile(r"0\.\d{4} after .* to \S+\)")
    says(passed.err, better, worse, "ndcg@10", difference, 120, re.compile(r"\d+%"))
    assert foretaste("compare runs/vae runs/vae --gate").status == 0, "the same"
    done = foretaste(f"{gate} -m coverage@10 novelty@10")
    says(done.err, "--gate", "coverage@10, novelty@10")


def test_a_gate_is_passed_if_a_tenth_could_be_seen(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = [f"{user},{user % 4 * 10 + (user // 4 + 3 * step) % 10},{step}"
            for user in range(1200) for step in range(6)]  # fmt: skip
    (tmp_path / "kinds.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    foretaste(f"train ease {tmp_path}/kinds.csv --run {tmp_path}/ease")
    gate = f"compare {tmp_path}/ease {tmp_path}/ease --gate"
    passed = foretaste(gate)
    assert passed.status == 0
    difference, loss = "+0.0000 (+0.0000 to +0.0000)", re.compile(r"\d+(\.\d)?%")
    says(passed.err, tmp_path / "ease", tmp_path / "ease", "ndcg@10", difference, "1,200", loss)
    assert foretaste(f"{gate} --quiet").err == ""


def test_fewer_than_twenty_users_decide_nothing(foretaste: Foretaste, tmp_path: Path) -> None:
    rows = [f"{user},{user + step},{step}" for user in range(19) for step in range(4)]
    (tmp_path / "few.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    for model in ("ease", "popularity"):
        foretaste(f"train {model} {tmp_path}/few.csv --run {tmp_path}/{model}")
    done = foretaste(f"compare {tmp_path}/ease {tmp_path}/popularity --gate")
    assert done.status == 0
    says(done.err, 19, 20)


def test_nothing_is_decided_if_nothing_is_left_to_compare(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    rows = [f"{user},{(user + step * step) % 9},{step}" for user in range(30) for step in range(4)]
    (tmp_path / "day.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    foretaste(f"prepare {tmp_path}/day.csv --output {tmp_path}/day")
    for name, protocol in (("trial", "leave-one-out"), ("whole", "none")):
        foretaste(
            f"train popularity {tmp_path}/day.csv --protocol {protocol} --run {tmp_path}/{name}"
        )
    line = f"compare {tmp_path}/whole {tmp_path}/trial --dataset {tmp_path}/day"
    passed = foretaste(f"{line} --gate")
    assert (passed.status, passed.out) == (0, "")
    says(passed.err, 30, tmp_path / "day")
    assert foretaste(f"{line} --gate --quiet").err == ""
    refused(foretaste(line), 30, tmp_path / "day")


def test_compare_as_markdown_and_csv(foretaste: Foretaste) -> None:
    line = "compare runs/vae runs/vae --metrics ndcg@5 -m recall@50"
    assert "| runs/vae (2) | +0.0000 (" in foretaste(f"{line} --format markdown").out
    records = list(csv.DictReader(foretaste(f"{line} --format csv").out.splitlines()))
    assert {record["label"] for record in records} == {"runs/vae (1)", "runs/vae (2)"}
    assert {record["run"] for record in records} == {"runs/vae"}
    assert {record["metric"] for record in records} >= {"ndcg@5", "recall@50", "hr@5"}


def test_compare_as_json_has_the_differences_that_the_table_shows(foretaste: Foretaste) -> None:
    line = "compare runs/popularity runs/vae --metrics ndcg@10"
    records = {
        (record["run"], record["metric"]): record
        for record in json.loads(foretaste(f"{line} --format json").out)
    }
    first = records["runs/popularity", "ndcg@10"]
    second = records["runs/vae", "ndcg@10"]
    assert second["difference"] == pytest.approx(second["value"] - first["value"])
    assert second["difference_low"] < second["difference"] < second["difference_high"]
    assert f"{second['difference']:+.4f}" in foretaste(line).out
    for record in (first, records["runs/vae", "coverage@10"]):
        named = ("difference", "difference_low", "difference_high")
        assert [record[name] for name in named] == [None, None, None]


def test_runs_are_measured_on_other_data(foretaste: Foretaste, tmp_path: Path) -> None:
    (tmp_path / "more.csv").write_text("user_id,item_id,timestamp\n1,new,9\nnew,2,9\nnew,3,8\n")
    other = tmp_path / "other"
    foretaste(f"prepare ratings.csv {tmp_path}/more.csv --protocol temporal -o {other}")
    done = foretaste(f"evaluate runs/vae --dataset {other} --log-path {tmp_path}/log.jsonl")
    assert done.status == 0, done.err
    assert f"vae: vae on {other}" in done.out
    assert "\nruns/vae: not trained on this dataset, matched by id; " in done.out
    assert "\nruns/vae: candidates are of its own catalogue, 60 items, which has " in done.out
    (line,) = [line for line in done.out.splitlines() if "held-out pairs that were" in line]
    num_left_out = int(line.split()[0].replace(",", ""))
    assert num_left_out > 0
    logged = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert logged[-1]["evaluation"]["matching"]["num_pairs_left_out"] == num_left_out
    done = foretaste(f"compare runs/vae runs/gmf --dataset {other} -m ndcg@10")
    assert done.status == 0, done.err
    assert "Difference to vae on the same users" in done.out
    assert done.out.count(line) == 1
    assert "\nruns/gmf: not trained on this dataset" in done.out


def test_more_of_the_lists_and_by_group(foretaste: Foretaste) -> None:
    done = foretaste("evaluate runs/vae --more")
    assert done.status == 0, done.err
    for line in ("novelty", "long_tail", "popularity_lift", "users", "ndcg@10"):
        assert f"\n {line} " in done.out
    assert "\nUsers by the number of items in their history:\n" in done.out
    assert re.search(r"^ +head +mid +tail *$", done.out, re.MULTILINE)
    assert "novelty@k: mean self-information" in done.out
    records = json.loads(foretaste("evaluate runs/vae --more -k 10 --format json").out)
    by = {record["by"] for record in records}
    assert by == {None, "activity", "popularity"}
    num_users = sum(record["num_users"] for record in records
                    if (record["by"], record["metric"]) == ("activity", "hr@10"))  # fmt: skip
    assert num_users == records[0]["num_users"] == 120
    only = foretaste("evaluate runs/popularity --metrics popularity_lift@10 --quiet").out
    assert re.search(r"^ popularity +[0-9.]+", only, re.MULTILINE), "more popular than histories"


def test_compare_more(foretaste: Foretaste) -> None:
    done = foretaste("compare runs/popularity runs/vae -m ndcg@10 --more")
    assert done.status == 0, done.err
    first, *_ = done.out.partition("Held-out items by their popularity in training:")
    assert first.count("novelty@10") == 2
    assert first.count("Difference to popularity on the same users") == 2
    assert re.search(r"^ ndcg@10 vae +0\.", done.out, re.MULTILINE)
    line = "compare runs/popularity runs/vae -m novelty@10 coverage@10 --format json"
    records = {
        (record["label"], record["metric"]): record
        for record in json.loads(foretaste(line).out)
        if record["by"] is None
    }
    assert records["vae", "novelty@10"]["difference"] > 0
    assert records["vae", "coverage@10"]["difference"] is None


def test_new_users_by_history_length(foretaste: Foretaste, tmp_path: Path) -> None:
    foretaste(f"prepare ratings.csv --protocol held-out-users -o {tmp_path}/data")
    for model in ("popularity", "ease"):
        foretaste(f"train {model} {tmp_path}/data --run {tmp_path}/{model}")
    line = f"compare {tmp_path}/popularity {tmp_path}/ease --history-lengths 1,5 100 -m ndcg@10"
    done = foretaste(line)
    assert done.status == 0, done.err
    assert "\nNew users by the number of items known of them:\n" in done.out
    assert re.search(r"^ +1 item +5 items +100 items *$", done.out, re.MULTILINE)
    by_length = {
        (record["label"], record["group"]): record["value"]
        for record in json.loads(foretaste(f"{line} --format json").out)
        if record["metric"] == "ndcg@10"
    }
    assert by_length["ease", "100 items"] == by_length["ease", None]
    assert by_length["ease", "1 item"] != by_length["ease", "5 items"]
    # The most popular items are the same for everyone, and none that is known is recommended.
    alike = {value for (label, _), value in by_length.items() if label == "popularity"}
    assert len(alike) == 1
    done = foretaste(f"evaluate {tmp_path}/ease --history-lengths 2 --format csv")
    assert {row["group"] for row in csv.DictReader(done.out.splitlines())} == {"", "2 items"}


def test_a_report_is_written_once(foretaste: Foretaste) -> None:
    done = foretaste("report runs/popularity runs/vae --output report.html --num-people 2")
    assert (done.status, done.out, done.err) == (0, "Report: report.html\n", "")
    expected = logged("runs/vae")["ndcg@10"]["value"]
    assert f"{expected:.4f}" in Path("report.html").read_text(encoding="utf-8")
    refused(foretaste("report runs/vae --output report.html"), "report.html", "--overwrite")
    assert foretaste("report runs/vae -o report.html --num-people 0 --overwrite -q").status == 0
