"""A tiny shop with answers that can be worked out by hand, and runs trained on it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import torch

from foretaste._util.signed_json import signed_text
from foretaste.data import Dataset, PrepareConfig, prepare
from foretaste.models import ClosedFormModel, NeuralModel, build_model, config_class
from foretaste.models.base import SweepModel
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import DatasetReference, Run, RunConfig

NUM_USERS = 60
NUM_COMMON = 12
FIRST_USER = 100
FIRST_OWN_ITEM = 1000
LONERS = range(NUM_USERS - 20, NUM_USERS)


def items_of(user: int) -> list[int]:
    """Each user has five common items and one that nobody else has; loners have three of their own
    alone."""
    own = FIRST_OWN_ITEM + 10 * user
    if user in LONERS:
        return [own, own + 1, own + 2]
    return [*((user * 5 + step * step) % NUM_COMMON for step in range(4)), own]


def interactions(spell: str | None = None) -> pa.Table:
    """The whole shop; ``spell`` turns ids into text, as in ``"item-{}"``."""
    pairs = [(FIRST_USER + user, item) for user in range(NUM_USERS) for item in items_of(user)]
    if spell is None:
        users, items = zip(*pairs, strict=True)
    else:
        users, items = zip(*[(spell.format(u), spell.format(i)) for u, i in pairs], strict=True)
    return pa.table({"user_id": list(users), "item_id": list(items)})


def make_dataset(root: Path, *, spell: str | None = None, titles: bool = False) -> Dataset:
    """Prepare the shop under held-out-users: training does not see some users and their own
    items."""
    table = interactions(spell)
    items = None
    if titles:
        items = root / "titles.csv"
        ids = table["item_id"].unique()
        names = pa.array([f"The Book of {value}" for value in ids.to_pylist()])
        pa_csv.write_csv(pa.table({"item_id": ids, "title": names}), items)
    config = PrepareConfig(protocol="held-out-users", num_heldout_users=12, seed=3)
    return prepare(table, root / "shop", config, items=items)


def make_run(path: Path, dataset: Dataset, model: str = "popularity", **settings: object) -> Run:
    """A run of ``model``: fitted if a pass or a sweep fits it, otherwise at its first weights."""
    config = config_class(model)(**settings)
    run = Run.create(path, config=run_config(dataset, model, asdict(config)), dataset=dataset)
    train = dataset.train
    histories = HistoryTensors.from_numpy(
        train.offsets, train.item_index, train.num_items, device="cpu"
    )
    built = build_model(model, config, train.num_users, train.num_items)
    if isinstance(built, NeuralModel):
        built.reset_parameters(seed=5)
        built.count_items(histories)
    elif isinstance(built, SweepModel):
        built.reset_parameters(seed=5)
        built.count_items(histories)
        batches = built.make_batches(histories, batch_size=train.num_users, seed=5)
        built.sweep(next(iter(batches.epoch(0))))
    else:
        assert isinstance(built, ClosedFormModel)
        built.fit(histories, lambda *progress: None)
    run.save_weights(built.state_dict())
    return run


def run_config(dataset: Dataset, model: str, settings: dict[str, object]) -> RunConfig:
    return RunConfig(
        model=model,
        model_config=settings,
        asked={"batch": "auto", "epochs": 3, "seed": 7},
        resolved={"batch": 1024, "epochs": 3, "seed": 7},
        dataset=DatasetReference.of(dataset),
        request={"data": {"read": [], "preparation": {}}, "beside": {}},
        hardware={"num_threads": 3},
    )


def flip_byte(path: Path, position: int) -> None:
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 0x40
    path.write_bytes(content)


def edit_config(run: Run, **changes: object) -> None:
    """Write other values into ``config.json``, as if the run had been made with them."""
    path = run.path / "config.json"
    path.write_text(signed_text(json.loads(path.read_text()) | changes, indent=2))


def parameters(run: Run) -> dict[str, torch.Tensor]:
    """The saved weights, in memory of their own."""
    return {name: tensor.clone() for name, tensor in run.load_weights().items()}
