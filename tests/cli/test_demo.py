"""``foretaste demo``: its output at a small size, its promises at its own size."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from foretaste.data import GenerateConfig, open_dataset
from foretaste.measure import compare_runs
from foretaste.runs import Run
from tests.cli.conftest import Done, call, refused

MODELS = ["popularity", "neumf", "vae", "ease"]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Done]]:
    """A small demonstration, twice into the same directory, the second time quietly."""
    output = tmp_path_factory.mktemp("demo") / "demo"
    shape = GenerateConfig(num_users=200, num_items=100, num_interactions=5000, num_genres=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foretaste.cli.demo.GenerateConfig", lambda: shape)
        return output, [call("demo", "--output", output, *more) for more in ((), ("--quiet",))]


def test_the_whole_path_is_walked_and_again(small: tuple[Path, list[Done]]) -> None:
    output, demos = small
    for done in demos:
        assert done.status == 0, done.err
        assert done.err == ""
    assert open_dataset(output / "dataset").items.has_column("title")
    names = {path.name for path in (output / "runs").iterdir()}
    assert names == {*MODELS, *(f"{model}-2" for model in MODELS)}


def test_one_table_holds_every_model(small: tuple[Path, list[Done]]) -> None:
    _, (done, _) = small
    table = done.out.partition("\nCompare ")[2].partition("\nRecommend ")[0]
    assert done.out.count("recall@20") == 1
    for metric in ("hr", "ndcg", "recall"):
        assert len(re.findall(rf"^{metric}@k: ", done.out, re.MULTILINE)) == 1
    for model in MODELS:
        assert re.search(rf"^ {model} +0\.\d{{4}} ", table, re.MULTILINE)


def test_a_quiet_demo_prints_its_table(small: tuple[Path, list[Done]]) -> None:
    _, (_, done) = small
    assert re.findall(r"^ ([a-z]\w+)-2 ", done.out, re.MULTILINE) == MODELS


def test_lists_have_titles_below_a_history(small: tuple[Path, list[Done]]) -> None:
    _, (done, _) = small
    lists = done.out.partition("\nRecommend with ease\n")[2].partition("\nNext:\n")[0]
    assert re.search(r"^User \d+, known from training, has The .*; The ", lists, re.MULTILINE)
    assert re.search(r"^Someone new has The .*; The ", lists, re.MULTILINE)
    assert len(re.findall(r"^ +\d\. .* The .*\)$", lists, re.MULTILINE)) == 16


def test_the_next_commands_of_the_demo_work(
    small: tuple[Path, list[Done]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _, (done, _) = small
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^  foretaste (.*)$", done.out.partition("\nNext:\n")[2], re.MULTILINE)
    assert len(commands) == 4
    for command in commands[:3]:
        assert call(*command.split()).status == 0


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = call("demo", "--output", tmp_path / "file" / "demo", "--quiet")
    refused(done, "output", tmp_path / "file/demo", "Not a directory", "--output")


@pytest.mark.slow
def test_neural_models_clearly_beat_popularity(tmp_path: Path) -> None:
    done = call("demo", "--output", tmp_path)
    assert done.status == 0, done.err
    runs = [Run.open(tmp_path / "runs" / model) for model in MODELS]
    evaluations = compare_runs(runs).evaluations
    for name in ("hr@10", "ndcg@10", "recall@20", "ndcg@100"):
        high = evaluations["popularity"].metrics[name].high
        assert high is not None
        for model in ("neumf", "vae"):
            low = evaluations[model].metrics[name].low
            assert low is not None
            assert low > high
