"""A publication is trained again on a generated stand-in, its numbers beside ours."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest

from benchmarks.publications import PUBLICATIONS, Publication
from benchmarks.reproduce import Reproduction, main, reproduce
from foretaste.data import GenerateConfig, PrepareConfig, generate, prepare
from foretaste.errors import SettingError
from foretaste.models.registry import config_class
from foretaste.runs import Run
from foretaste.training.auto import check_settings_act
from foretaste.training.config import TrainingConfig
from tests.tune.test_competition import Trained

SMALL = {
    "epochs": 2, "factors": 4, "layers": (8, 4), "hidden": (8,), "latent": 4, "batch_size": 256,
    "width": 8, "anneal_steps": 10, "candidates": "sampled-9", "eval_every": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The publications' trainings with fewer epochs and small models."""
    for name, publication in PUBLICATIONS.items():
        steps = tuple(
            replace(
                step, settings={key: SMALL.get(key, value) for key, value in step.settings.items()}
            )
            for step in publication.steps
        )
        monkeypatch.setitem(PUBLICATIONS, name, replace(publication, steps=steps))


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = GenerateConfig(num_users=80, num_items=50, num_interactions=1500, num_genres=4)
    path = tmp_path_factory.mktemp("raw") / "ratings.csv"
    pa_csv.write_csv(generate(shape).table, path)
    return path


def check(found: Reproduction, publication: Publication, num_seeds: int) -> None:
    expected = [(step.name, metric) for step in publication.steps for metric in step.published]
    assert [(row.step, row.metric) for row in found.results] == expected
    for row in found.results:
        runs = [
            Run.open(found.path / f"{row.step}-{row.precision}-{seed + 1}")
            for seed in range(num_seeds)
        ]
        assert row.values == tuple(run.metrics[row.metric] for run in runs if run.metrics)
        assert [run.config.asked["seed"] for run in runs] == list(range(1, num_seeds + 1))
        assert row.low <= row.mean <= row.high
        assert row.as_dict()["difference"] == row.mean - row.published


def test_the_ncf_paper(raw: Path, tmp_path: Path) -> None:
    trained = Trained()
    found = reproduce("ncf-paper", seeds=2, dataset=raw, output=tmp_path / "it", callback=trained)
    assert trained.models == ["gmf", "mlp", "neumf", "neumf"] * 2
    check(found, PUBLICATIONS["ncf-paper"], 2)
    pretrained = Run.open(tmp_path / "it" / "neumf-pretrained-fp32-2")
    assert "gmf-auto-2" in str(pretrained.config.start)
    assert pretrained.config.asked["candidates"] == "sampled-9"
    notes = found.notes()
    assert any("candidates sampled-9" in line for line in notes)
    assert any(line.startswith("differs: the pretrained NeuMF") for line in notes)
    flattering = "no validation part: the best epoch of neumf was chosen on the test part itself"
    assert any(line.startswith(flattering) for line in notes)
    with (tmp_path / "it" / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["published"] for row in rows] == ["0.705", "0.426", "0.73", "0.447"]


def test_the_command(raw: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    publication = PUBLICATIONS["nvidia-vae"]
    data = prepare(raw, tmp_path / "data", **publication.preparation)
    place = tmp_path / "it"
    main(f"nvidia-vae --dataset {data.path} --output {place} --precision fp32 bf16".split())
    found = json.loads((place / "table.json").read_text())["rows"]
    assert [row["precision"] for row in found] == ["fp32", "bf16"]
    assert found[0]["speedup"] == 1.0
    assert found[0]["batch_per_rank"] == 256
    assert "| vae, bf16 | ndcg@100 | 0.4303 |" in capsys.readouterr().out


@pytest.mark.parametrize("name", PUBLICATIONS)
def test_every_setting_of_a_publication_acts(name: str) -> None:
    publication = PUBLICATIONS[name]
    PrepareConfig(**publication.preparation)
    for step in publication.steps:
        kind = config_class(step.model)
        known = {key for each in (kind, TrainingConfig) for key in each.__dataclass_fields__}
        assert step.settings.keys() <= known
        check_settings_act(step.model, step.settings)


def test_data_that_is_split_in_another_way_is_refused(raw: Path, tmp_path: Path) -> None:
    data = prepare(raw, tmp_path / "data", protocol="leave-one-out")
    with pytest.raises(SettingError, match=r"with a validation part.*--validation none --filters"):
        reproduce("ncf-paper", dataset=data, output=tmp_path / "it")
    lines = raw.read_text().splitlines()
    untimed = tmp_path / "untimed.csv"
    untimed.write_text("\n".join(",".join(line.split(",")[:2]) for line in lines))
    with pytest.raises(SettingError, match=r"has no times, so that each user's last item"):
        reproduce("ials-revisited", dataset=untimed, output=tmp_path / "it")
