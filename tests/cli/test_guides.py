"""The quick starts of the reference systems, command by command.

What follows ``python ncf.py`` and ``python main.py`` there goes behind ``foretaste train neumf``
and ``foretaste train vae``, as `docs/coming-from-nvidia.md` says. MovieLens 20M is generated, in
small, and unpacked into the folder that the VAE's guide names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretaste.data import open_dataset
from foretaste.data.movielens import NAMED_SETS
from foretaste.runs import Run
from tests.cli.conftest import call
from tests.messages import says

NCF = (
    "train neumf --amp --data /data/cache/ml-20m --checkpoint-dir /data/checkpoints/",
    "train neumf --data /data/cache/ml-20m --mode test"
    " --load-checkpoint-path /data/checkpoints/model.ckpt",
    "train neumf --data /data/cache/ml-20m --mode test --checkpoint-dir /data/checkpoints",
    "train neumf --data /data/cache/ml-20m",
)
VAE = (
    "train vae --train --amp --checkpoint_dir ./checkpoints",
    "train vae --test --amp --checkpoint_dir ./checkpoints",
    "train vae --train",
    "train vae --train --amp",
    "train vae --inference_benchmark --amp --checkpoint_dir ./checkpoints",
    "train vae --inference_benchmark",
)
PREPARE = (
    "prepare ml-20m --source-dir /data/ml-20m/extracted/ml-20m --validation none"
    " --output /data/cache/ml-20m",
    "prepare --data_dir /data",
)
GUIDES = (*PREPARE, *NCF, *VAE)

FEW_EPOCHS = {"train neumf": " -e 1 -b 4096", "train vae": " --epochs 1"}
FEW_CALLS = " --calls 2 --repeats 1"

NUM_NEW_USERS = 40
NUM_ACTIVE_USERS = 60
NUM_ITEMS = 60


def write_ml_20m(root: Path) -> None:
    """Write ratings: many users have six, a few have the twenty or more that NCF needs."""
    generator = np.random.default_rng(1)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(NUM_NEW_USERS + NUM_ACTIVE_USERS):
        num_ratings = 6 if user < NUM_NEW_USERS else 24
        items = generator.choice(NUM_ITEMS, num_ratings, replace=False) + 1
        lines += [f"{user},{item},4.5,{1000 + place}" for place, item in enumerate(items)]
    root.mkdir(parents=True)
    (root / "ratings.csv").write_text("\n".join(lines) + "\n")
    movies = [f"{item},Film {item},Drama" for item in range(1, NUM_ITEMS + 1)]
    (root / "movies.csv").write_text("\n".join(["movieId,title,genres", *movies]) + "\n")


def shortened(command: str) -> str:
    """The same lines with few epochs: the guides' hundreds of epochs are not tested."""
    if "--inference_benchmark" in command:
        return command + FEW_CALLS
    is_test = "--test" in command or "--mode test" in command
    more = "" if is_test else FEW_EPOCHS.get(" ".join(command.split()[:2]), "")
    return command + more


def leave_files_of_theirs(data: Path, folder: Path) -> set[Path]:
    """Pickles and checkpoints of the old system, which stay as they are."""
    names = ("model.ckpt.index", "model.ckpt.data-00000-of-00001", "model.ckpt.meta", "checkpoint")
    left = {data / "cache" / "old" / f"{part}_ratings.pickle" for part in ("train", "test")}
    left |= {folder / "old" / name for name in names}
    for path in left:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x80\x04theirs")
    return left


def test_the_guides_in_their_container_two_nights_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for data exists, because their containers mount it; files written to a named place
    are written there again."""
    data, folder = tmp_path / "data", tmp_path / "work"
    write_ml_20m(data / "ml-20m" / "extracted" / "ml-20m")
    folder.mkdir()
    left = leave_files_of_theirs(data, folder)
    # Four users for validation and four for test; the reference holds out 10,000 for each.
    monkeypatch.setitem(NAMED_SETS, "ml-20m", replace(NAMED_SETS["ml-20m"], num_heldout_users=4))
    monkeypatch.chdir(folder)
    monkeypatch.setattr("foretaste.cli.nvidia_rules.DATA", data)
    digests = set()
    for night in (1, 2):
        for command in GUIDES:
            # Weights differ each night: a run of the same request would have the same.
            line = shortened(command).replace("-e 1", f"-e {night}")
            done = call(*line.replace("/data", str(data)).split())
            assert done.status == 0, (command, done.err)
        digests.add(Run.open(data / "checkpoints").open_weights().digest)
    assert len(digests) == 2
    for command, named in (
        (
            "prepare --path DATA/cache/old/train_ratings.pickle",
            "DATA/cache/old/train_ratings.pickle",
        ),
        ("train neumf --data DATA/cache/old", "DATA/cache/old/test_ratings.pickle"),
        ("train vae --train --checkpoint_dir old", "old"),
        ("train vae --test --checkpoint_dir old", "old"),
    ):
        done = call(*command.replace("DATA", str(data)).split())
        assert done.status == 2
        says(done.err.splitlines()[-1], named.replace("DATA", str(data)))
    assert all(path.read_bytes() == b"\x80\x04theirs" for path in left)
    assert open_dataset(data / "cache" / "ml-20m").manifest.protocol == "leave-one-out"
    vae = open_dataset(data / "ml-20m" / "prepared")
    assert vae.manifest.protocol == "held-out-users"
    assert Run.open(data / "checkpoints").config.model == "neumf"
    run = Run.open("checkpoints")
    assert Path(run.config.dataset.path) == vae.path.resolve()
    others = [Run.open(path).config.model for path in sorted(Path("runs").iterdir())]
    assert others == ["neumf"] * 2 + ["vae"] * 4
    assert not [path.name for path in (*data.iterdir(), *folder.iterdir()) if ".next" in path.name]
