"""First weights from other runs: matched by id, counted, recorded; refused if they do not fit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.errors import RunError, SettingError
from foretaste.evaluation.ranking import to_device
from foretaste.models import NeuralModel, build_model
from foretaste.models.neumf.config import GMFConfig, MLPConfig
from foretaste.models.sasrec.config import SASRecConfig
from foretaste.runs import Run, load_model
from foretaste.testing import make_board
from foretaste.training import Callback, PretrainingConfig, TrainingConfig, resume, train
from foretaste.training.callbacks import TrainingStart
from foretaste.training.request import TrainRequest, rerun_request
from foretaste.training.warm_start import Origin, take_first_weights
from tests.messages import Named, raises
from tests.runs.tiny import parameters
from tests.training.trainings import CONFIGS, events, run_of, weights_of

USER_TABLES = {"neumf": ["user_factors", "user_embedding"], "vae": [], "sasrec": []}
ITEM_TABLES = {
    "neumf": ["item_factors", "item_embedding"],
    "vae": ["encoder_table", "output.weight", "output.bias"],
    "sasrec": ["item_table"],
}
STEPLESS: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-12, "seed": 4}
"""Settings of a training that ends with its first weights up to five digits."""


@pytest.fixture(scope="module")
def grown(table: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same shop later: users 0 to 9 are gone, user 1000 and item "new" came; ids are text."""
    users, items = table["user_id"].to_numpy(), table["item_id"].to_numpy()
    kept = users >= np.sort(np.unique(users))[10]
    some_items = np.unique(items)[:5]
    more_users = [1000] * 5 + [1000, int(users[kept][0]), int(users[kept][1])]
    more_items = [*(str(item) for item in some_items), "new", "new", "new"]
    grown = pa.table(
        {
            "user_id": [str(user) for user in [*users[kept], *more_users]],
            "item_id": [*(str(item) for item in items[kept]), *more_items],
        }
    )
    directory = tmp_path_factory.mktemp("grown") / "data"
    return prepare(grown, directory, PrepareConfig(protocol="none", order="rows"))


@pytest.fixture(scope="module")
def trained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Short trainings of every neural model."""
    root = tmp_path_factory.mktemp("trained")
    return {name: run_of(name, dataset, root / name) for name in CONFIGS}


SASREC = SASRecConfig(factors=8, heads=2, blocks=2, max_length=6)


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Run]:
    """Data with an order, and a run of sasrec on these data."""
    root = tmp_path_factory.mktemp("ordered")
    data = make_board(root / "board")
    return data, train("sasrec", data, model_config=SASREC, epochs=1, run=root / "run")


def digest_of(run: Run) -> str:
    return run.open_weights().digest


def first_weights(name: str, dataset: Dataset, seed: int) -> dict[str, torch.Tensor]:
    """The first weights of a training that starts from nothing."""
    manifest = dataset.manifest
    model = build_model(name, CONFIGS[name], manifest.num_train_users, manifest.num_items)
    assert isinstance(model, NeuralModel)
    model.reset_parameters(seed)
    return dict(model.state_dict())


def row_of(table: Any, value: str | int) -> int:
    (row,) = table.lookup([value])
    assert row >= 0
    return int(row)


@pytest.mark.parametrize("name", ["neumf", "vae", "sasrec"])
def test_rows_follow_their_ids(
    name: str, trained: dict[str, Run], grown: Dataset, tmp_path: Path
) -> None:
    """The found rows are reported, logged and recorded."""
    told: list[TrainingStart] = []

    class Watching(Callback):
        def started(self, start: TrainingStart) -> None:
            told.append(start)

    source = trained[name]
    arguments = {"callback": Watching(), "start_from": source.path, **STEPLESS}
    run = run_of(name, grown, tmp_path / "run", **arguments)
    found = {
        "users": {"num_found": 50, "num_new": 1, "num_gone": 10},
        "items": {"num_found": 40, "num_new": 1, "num_gone": 0},
    }
    if not USER_TABLES[name]:
        del found["users"]
    assert told[0].started_from == {str(source.path): found}
    assert events(run, "start")[0]["started_from"] == {str(source.path): found}
    assert Run.open(run.path).config.start == {
        "from": {"path": str(source.path), "weights_sha256": digest_of(source)}
    }
    old, new, fresh = parameters(source), parameters(run), first_weights(name, grown, 4)
    for tables, names in (("users", USER_TABLES), ("items", ITEM_TABLES)):
        here, there = getattr(run, tables), getattr(source, tables)
        num_rows = run.num_train_users if tables == "users" else run.num_items
        known = 0
        for row, identity in enumerate(here.ids(np.arange(num_rows))):
            (old_row,) = there.lookup([identity])
            known += old_row >= 0
            for table in names[name]:
                expected = old[table][old_row] if old_row >= 0 else fresh[table][row]
                torch.testing.assert_close(new[table][row], expected, rtol=1e-5, atol=1e-8)
        assert 0 < known < num_rows
    shared = old.keys() - {"item_count_I", *USER_TABLES[name], *ITEM_TABLES[name]}
    for other in shared:
        torch.testing.assert_close(new[other], old[other], rtol=1e-5, atol=1e-8)


def pretrained(trained: dict[str, Run], alpha: float = 0.5) -> PretrainingConfig:
    return PretrainingConfig(
        pretrained_gmf=trained["gmf"].path,
        pretrained_mlp=trained["mlp"].path,
        pretrained_alpha=alpha,
    )


@pytest.mark.parametrize("name", ["neumf", "gmf", "vae", "sasrec", "ials"])
def test_a_start_brings_the_settings_of_its_model(
    name: str, trained: dict[str, Run], grown: Dataset, tmp_path: Path
) -> None:
    start = {"start_from": trained[name], "epochs": 1, "device": "cpu"}
    run = train(name, grown, run=tmp_path / "run", **start)
    assert run.config.model_config == trained[name].config.model_config
    if name not in ("gmf", "ials"):
        run = train(name, grown, run=tmp_path / "other", dropout=0.25, **start)
        expected = {**trained[name].config.model_config, "dropout": 0.25}
        assert run.config.model_config == expected


@pytest.mark.parametrize("alpha", [0.5, 0.2])
def test_neumf_begins_with_the_weighted_scores_of_its_halves(
    alpha: float, trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    run = train(
        "neumf",
        dataset,
        model_config=CONFIGS["neumf"],
        config=TrainingConfig(**STEPLESS, device="cpu"),
        pretraining=pretrained(trained, alpha),
        run=tmp_path / "run",
    )
    histories = to_device(dataset.train.rows(np.arange(20)), torch.device("cpu"))
    scores = {}
    for name, source in {"gmf": trained["gmf"], "mlp": trained["mlp"], "neumf": run}.items():
        model = load_model(source, "cpu")
        scores[name] = model.score_catalogue(model.user_state(torch.arange(20), histories))
    expected = alpha * scores["gmf"] + (1.0 - alpha) * scores["mlp"]
    torch.testing.assert_close(scores["neumf"], expected, rtol=1e-4, atol=1e-6)
    start = Run.open(run.path).config.start
    assert start["alpha"] == alpha
    assert start["gmf"]["weights_sha256"] == digest_of(trained["gmf"])


def test_halves_of_another_dataset_are_matched_too(
    trained: dict[str, Run], grown: Dataset, tmp_path: Path
) -> None:
    run = run_of("neumf", grown, tmp_path / "run", pretraining=pretrained(trained), **STEPLESS)
    new, old = parameters(run), parameters(trained["mlp"])
    user = run.users.ids(np.arange(1))[0]
    here, there = row_of(run.users, user), row_of(trained["mlp"].users, user)
    torch.testing.assert_close(
        new["user_embedding"][here], old["user_embedding"][there], rtol=1e-5, atol=1e-8
    )
    came = row_of(run.users, "1000")
    fresh = first_weights("neumf", grown, 4)["user_embedding"][came]
    torch.testing.assert_close(new["user_embedding"][came], fresh, rtol=1e-5, atol=1e-8)
    assert len(events(run, "start")[0]["started_from"]) == 2


@pytest.mark.parametrize(
    ("name", "source", "settings", "named"),
    [
        ("vae", "dae", {}, ("dae", "dae", "vae", "vae")),
        ("neumf", "gmf", {}, ("gmf", "gmf", "neumf", "neumf")),
        (
            *("gmf", "gmf", {"model_config": GMFConfig(factors=5, loss="bce")}),
            ("gmf", "gmf", "factors", 4, 5, "--from"),
        ),
        (
            *("mlp", "mlp", {"model_config": MLPConfig(layers=(8, 8, 4, 4))}),
            ("mlp", "mlp", "layers", "8 8 4", "8 8 4 4", "--from"),
        ),
        (
            *("mlp", "mlp", {"model_config": MLPConfig(layers=(8, 8))}),
            ("mlp", "mlp", "layers", "8 8 4", "8 8", "--from"),
        ),
    ],
)
def test_runs_that_do_not_fit_are_refused(
    name: str,
    source: str,
    settings: dict[str, Any],
    named: Named,
    trained: dict[str, Run],
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    with raises(SettingError, *named):
        train(
            name,
            dataset,
            config=TrainingConfig(device="cpu"),
            start_from=trained[source],
            run=tmp_path / "run",
            **{"model_config": CONFIGS[name]} | settings,
        )
    assert not (tmp_path / "run").exists()


def test_a_model_without_an_architecture_gets_the_differences(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GMFConfig, "architecture", ())
    other = replace(CONFIGS["gmf"], factors=5)
    with raises(SettingError, "gmf", "item_factors", 4, 5, "user_factors", 4, 5):
        train("gmf", dataset, model_config=other, start_from=trained["gmf"], run=tmp_path / "run")


@pytest.mark.parametrize("changed", [{"heads": 4}, {"blocks": 1}, {"max_length": 5}])
def test_sasrec_reads_weights_of_its_own_architecture(
    changed: dict[str, int], ordered: tuple[Dataset, Run], tmp_path: Path
) -> None:
    data, first = ordered
    ((name, value),) = changed.items()
    there = getattr(SASREC, name)
    with raises(SettingError, first.path, "sasrec", name, there, value, "--from"):
        train("sasrec", data, start_from=first, **changed, run=tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "arguments", "named"),
    [
        ("ease", "start_from", ["ease"]),
        ("gmf", "pretraining", ["gmf", "neumf"]),
        ("neumf", "both", ["start_from", "pretraining"]),
    ],
)
def test_starts_that_make_no_sense_are_refused(
    name: str, arguments: str, named: list[str], trained: dict[str, Run], dataset: Dataset
) -> None:
    given: dict[str, Any] = {}
    if arguments in ("start_from", "both"):
        given["start_from"] = trained["neumf"]
    if arguments in ("pretraining", "both"):
        given["pretraining"] = pretrained(trained)
    with raises(SettingError, *named):
        train(name, dataset, **given)


def test_halves_must_be_what_they_are_named(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    swapped = PretrainingConfig(
        pretrained_gmf=trained["mlp"].path, pretrained_mlp=trained["gmf"].path
    )
    with raises(SettingError, trained["mlp"].path, "mlp", "neumf", "gmf"):
        run_of("neumf", dataset, tmp_path / "run", pretraining=swapped)


def test_scores_of_another_kind_are_refused(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    config = TrainingConfig(epochs=1, device="cpu")
    place = {"config": config, "run": tmp_path / "run"}
    half = train("gmf", dataset, factors=4, config=config, run=tmp_path / "half")
    with raises(SettingError, half.path, "cosine", "softmax", "neumf", "bce"):
        train("neumf", dataset, model_config=CONFIGS["neumf"], **place,
              pretraining=pretrained(trained | {"gmf": half}))  # fmt: skip
    with raises(SettingError, half.path, "cosine", "gmf", "--from"):
        train("gmf", dataset, start_from=half, model_config=CONFIGS["gmf"], **place)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_alpha_is_a_share(alpha: float) -> None:
    with raises(SettingError, "pretrained_alpha", alpha, 0, 1):
        PretrainingConfig(
            pretrained_gmf=Path("a"), pretrained_mlp=Path("b"), pretrained_alpha=alpha
        )


def test_a_catalogue_with_nothing_in_common_is_refused(
    trained: dict[str, Run], tmp_path: Path
) -> None:
    table = pa.table({"user_id": [1, 1, 2, 2], "item_id": ["p", "q", "q", "r"]})
    other = prepare(table, tmp_path / "other", PrepareConfig(protocol="none"))
    with raises(SettingError, 3, other.path, trained["gmf"].path):
        run_of("gmf", other, tmp_path / "run", start_from=trained["gmf"])


def test_a_run_without_weights_is_no_start(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained["gmf"].path, source)
    (source / "best.safetensors").unlink()
    with raises(RunError, source / "best.safetensors"):
        run_of("gmf", dataset, tmp_path / "run", start_from=source)


class StoppingAtStep(Callback):
    def __init__(self, number: int) -> None:
        self.number = number

    def stepped(self, epoch: int, step: int, num_steps_per_epoch: int) -> None:
        self.number -= 1
        if not self.number:
            raise KeyboardInterrupt


def stopped_copy(source: Path, dataset: Dataset, path: Path, **settings: Any) -> Run:
    with pytest.raises(KeyboardInterrupt):
        run_of(
            "gmf",
            dataset,
            path,
            callback=StoppingAtStep(3),
            start_from=source,
            batch_size=1000,
            **settings,
        )
    return Run.open(path)


@pytest.mark.parametrize("every_s", [0.0, 60.0])
def test_a_warm_start_is_resumed(
    every_s: float, trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    """With a saved state, resuming does not need the start run; without one, it starts from that
    run again."""
    source = tmp_path / "source"
    shutil.copytree(trained["gmf"].path, source)
    whole = run_of("gmf", dataset, tmp_path / "whole", start_from=source, batch_size=1000)
    run = stopped_copy(source, dataset, tmp_path / "run", checkpoint_every_s=every_s)
    if every_s == 0.0:
        shutil.rmtree(source)
    resume(run)
    assert weights_of(run) == weights_of(whole)


def test_a_run_to_start_from_is_opened_once(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, open_run = [], Run.open

    def counted(path: Path | str) -> Run:
        opened.append(Path(path))
        return open_run(path)

    monkeypatch.setattr(Run, "open", counted)
    train(
        "gmf",
        dataset,
        config=TrainingConfig(epochs=1, device="cpu"),
        start_from=trained["gmf"].path,
        run=tmp_path / "run",
    )
    assert opened.count(trained["gmf"].path) == 1


def test_a_start_run_that_is_replaced_during_training_is_recorded_in_its_old_state(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained["gmf"].path, source)
    manifest = dataset.manifest
    model = build_model("gmf", CONFIGS["gmf"], manifest.num_train_users, manifest.num_items)
    assert isinstance(model, NeuralModel)
    old, digest = parameters(trained["gmf"]), digest_of(trained["gmf"])

    def replaced(*_: Any) -> None:
        Run.open(source).save_weights({name: tensor + 1 for name, tensor in old.items()})

    monkeypatch.setattr(Origin, "check_sizes", replaced)
    request = TrainRequest.of("gmf", dataset, start_from=source)
    record, _ = take_first_weights(request, model, dataset, {})
    assert torch.equal(model.state_dict()["item_factors"], old["item_factors"])
    assert record["from"]["weights_sha256"] == digest
    assert digest_of(Run.open(source)) != digest


def test_a_training_does_not_restart_from_changed_weights(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(trained["gmf"].path, source)
    run = stopped_copy(source, dataset, tmp_path / "run")
    Run.open(source).save_weights({n: t + 1 for n, t in parameters(trained["gmf"]).items()})
    log = run.log.path.read_bytes()
    with raises(RunError, source):
        resume(run)
    assert run.log.path.read_bytes() == log


def test_repeating_a_run_repeats_its_start(
    trained: dict[str, Run], dataset: Dataset, tmp_path: Path
) -> None:
    warm = run_of("gmf", dataset, tmp_path / "warm", start_from=trained["gmf"])
    request = rerun_request(warm)
    assert request.start_from == trained["gmf"].path
    assert request.pretraining is None
    joined = run_of("neumf", dataset, tmp_path / "joined", pretraining=pretrained(trained, 0.3))
    request = rerun_request(joined)
    assert request.start_from is None
    assert request.pretraining == pretrained(trained, 0.3)
