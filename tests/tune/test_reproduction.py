"""A publication is trained again on a generated stand-in, its numbers beside ours."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.errors import InputError, SettingError
from foretaste.models.config import SamplingConfig
from foretaste.models.registry import config_class
from foretaste.runs import Run
from foretaste.training import Callback
from foretaste.training.auto import check_settings_act
from foretaste.training.config import TrainingConfig
from foretaste.tune import Reproduction, reproduce
from foretaste.tune.presets import PRESETS, Preset
from tests.tune.test_competition import Trained

SMALL = {
    "epochs": 2, "factors": 4, "layers": (8, 4), "hidden": (8,), "latent": 4, "batch_size": 256,
    "width": 8, "anneal_steps": 10, "candidates": "sampled-9", "eval_every": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The publications' trainings with fewer epochs and small models."""
    for name, preset in PRESETS.items():
        steps = tuple(
            replace(
                step, settings={key: SMALL.get(key, value) for key, value in step.settings.items()}
            )
            for step in preset.steps
        )
        monkeypatch.setitem(PRESETS, name, replace(preset, steps=steps))


@pytest.fixture(scope="module")
def raw(table_file: Path) -> Path:
    return table_file


def check(found: Reproduction, preset: Preset, num_seeds: int) -> None:
    expected = [(step.name, metric) for step in preset.steps for metric in step.published]
    assert [(row.step, row.metric) for row in found.results] == expected
    for row in found.results:
        runs = [
            Run.open(found.path / f"{row.step}-{row.precision}-{seed + 1}")
            for seed in range(num_seeds)
        ]
        assert row.values == tuple(run.metrics[row.metric] for run in runs if run.metrics)
        assert [run.config.seed for run in runs] == list(range(1, num_seeds + 1))
        assert row.low <= row.mean <= row.high
        assert row.as_dict()["difference"] == row.mean - row.published


def test_the_ncf_paper(raw: Path, tmp_path: Path) -> None:
    trained = Trained()
    found = reproduce("ncf-paper", seeds=2, dataset=raw, output=tmp_path / "it", callback=trained)
    assert trained.models == ["gmf", "mlp", "neumf", "neumf"] * 2
    check(found, PRESETS["ncf-paper"], 2)
    pretrained = Run.open(tmp_path / "it" / "neumf-pretrained-fp32-2")
    assert "gmf-fp32-2" in str(pretrained.config.start)
    assert pretrained.config.asked["candidates"] == "sampled-9"
    notes = found.notes()
    assert any("candidates sampled-9" in line for line in notes)
    assert any(line.startswith("differs: the pretrained NeuMF") for line in notes)
    flattering = "no validation part: the best epoch of neumf was chosen on the test part itself"
    assert any(line.startswith(flattering) for line in notes)
    with (tmp_path / "it" / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["published"] for row in rows] == ["0.705", "0.426", "0.73", "0.447"]


@pytest.mark.parametrize(
    "name", ["nvidia-ncf", "mult-vae-paper", "nvidia-vae", "ials-revisited", "recvae"]
)
def test_the_other_publications(name: str, raw: Path, tmp_path: Path) -> None:
    preset = PRESETS[name]
    data = prepare(raw, tmp_path / "data", **preset.preparation)
    arguments = {"dataset": data, "output": tmp_path / "it"}
    found = reproduce(name, callback=Callback(), **arguments)
    check(found, preset, 1)
    grid = found.grid()
    assert len(grid.rows) == sum(len(step.published) for step in preset.steps)
    trained = Trained()
    both = reproduce(name, precision=["fp32", "bf16"], callback=trained, **arguments)
    able = [step.model for step in preset.steps if config_class(step.model).has_large_products]
    assert trained.models == able
    assert {row.precision for row in both.results} == ({"fp32", "bf16"} if able else {"fp32"})
    assert len(both.results) == len(found.results) * (2 if able else 1)


@pytest.mark.parametrize("name", PRESETS)
def test_every_setting_of_a_publication_acts(name: str) -> None:
    preset = PRESETS[name]
    PrepareConfig(**preset.preparation)
    for step in preset.steps:
        kind = config_class(step.model)
        kinds = (kind, TrainingConfig, *([SamplingConfig] if kind.samples_negatives else []))
        known = {key for each in kinds for key in each.__dataclass_fields__}
        assert step.settings.keys() <= known
        check_settings_act(step.model, TrainingConfig(), None, step.settings)


def test_candidates_that_came_with_the_data_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the paper's files have them."""
    preset = PRESETS["ncf-paper"]
    settings = {**preset.steps[0].settings, "candidates": "sampled-99"}
    steps = (replace(preset.steps[0], settings=settings, published={"hr@10": 0.5}),)
    monkeypatch.setitem(PRESETS, "ncf-paper", replace(preset, steps=steps))
    owned = [(user, item) for user in range(9) for item in range(12) if (user + item) % 3]
    others = [(user, [item for item in range(12) if (user + item) % 3 == 0]) for user in range(9)]
    files = {
        "train.rating": [f"{user}\t{item}\t5\t1" for user, item in owned],
        "test.rating": [f"{user}\t{items[0]}\t5\t1" for user, items in others],
        "test.negative": [
            "\t".join(map(str, [f"({user},{items[0]})", *items[1:]])) for user, items in others
        ],
    }
    for ending, lines in files.items():
        (tmp_path / f"x.{ending}").write_text("".join(f"{line}\n" for line in lines))
    data = prepare(tmp_path / "x.train.rating", tmp_path / "data")
    found = reproduce("ncf-paper", dataset=data, output=tmp_path / "it", callback=Callback())
    assert any("candidates fixed" in line for line in found.notes())


def test_mistakes(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "it"
    with pytest.raises(SettingError, match=r"name is 'ncf'; it must be one of ncf-paper, nvidia-"):
        reproduce("ncf", output=out)
    with pytest.raises(SettingError, match=r"precision is .*fp32, tf32, bf16 or fp16"):
        reproduce("ncf-paper", precision=["fp64"], output=out)  # type: ignore[list-item]
    data = prepare(raw, tmp_path / "data", protocol="leave-one-out")
    with pytest.raises(SettingError, match=r"with a validation part.*--validation none --filters"):
        reproduce("ncf-paper", dataset=data, output=out)
    with pytest.raises(SettingError, match=r"has protocol leave-one-out, with .* held-out-users"):
        reproduce("nvidia-vae", dataset=data, output=out)
    untimed = tmp_path / "untimed.csv"
    lines = raw.read_text().splitlines()
    untimed.write_text("\n".join(",".join(line.split(",")[:2]) for line in lines))
    with pytest.raises(SettingError, match=r"has no times, so that each user's last item"):
        reproduce("ials-revisited", dataset=untimed, output=tmp_path / "untimed")
    data_untimed = prepare(untimed, tmp_path / "data-untimed", protocol="leave-one-out")
    with pytest.raises(SettingError, match=r"leave-one-out \(random\), with .* held-out-users"):
        reproduce("nvidia-vae", dataset=data_untimed, output=out)
    with pytest.raises(SettingError, match="dataset and source_dir both name the data"):
        reproduce("nvidia-vae", dataset=data, source_dir=tmp_path, output=out)
    with pytest.raises(InputError, match=r"has neither ml-20m.zip nor ratings.csv"):
        reproduce("nvidia-vae", source_dir=tmp_path, output=out)
    assert not out.exists()
