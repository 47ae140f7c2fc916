"""The scripts of the page convert data that the reference systems prepared."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from scipy.sparse import csr_matrix, save_npz

from foretaste.data import open_dataset
from tests.cli.conftest import call
from tests.data.test_protocols import pairs_of
from tests.docs.pages import page

Pairs = list[tuple[int, int]]

BLOCKS = page("coming-from-nvidia.md").blocks


def follow(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Write a script of the page, and run the commands that stand below it."""
    (place,) = (place for place, block in enumerate(BLOCKS) if block.title == script)
    (directory / script).write_text(BLOCKS[place].text)
    convert, prepare = BLOCKS[place + 1].text.replace("\\\n", "").splitlines()
    program, *words = shlex.split(convert)
    assert program == "python"
    done = subprocess.run(
        [sys.executable, *words], cwd=directory, capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        with contextlib.chdir(directory):
            prepared = call(*shlex.split(prepare)[1:])
        assert prepared.status == 0, prepared.err
    return done


def test_ncf_data_is_converted(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "ml-20m"
    folder.mkdir(parents=True)
    train = pd.DataFrame({"user_id": [0, 0, 1, 1], "item_id": [0, 1, 0, 2]}, index=[5, 3, 9, 1])
    test = pd.DataFrame({"user_id": [0, 1], "item_id": [2, 1]}, index=[7, 8])
    train.to_pickle(folder / "train_ratings.pickle")
    test.to_pickle(folder / "test_ratings.pickle")
    done = follow("ncf_to_csv.py", tmp_path)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(tmp_path / "datasets" / "ncf")
    assert pairs_of(dataset, "train") == {(0, 0), (0, 1), (1, 0), (1, 2)}
    assert pairs_of(dataset, "test") == {(0, 2), (1, 1)}


def test_a_folder_without_pickles_is_named(tmp_path: Path) -> None:
    done = follow("ncf_to_csv.py", tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("cache/ml-20m/train_ratings.pickle is no file; give the folder")


# VAE-CF's numbering: users in a random order, the last four of them held out; items as training
# has them.
USERS, ITEMS = [40, 7, 23, 5, 90, 11, 62, 3], [500, 20, 310, 77]
TRAIN: Pairs = [(40, 500), (40, 20), (7, 310), (23, 77), (23, 500), (5, 20)]
VALIDATION: tuple[Pairs, Pairs] = ([(90, 500), (11, 77)], [(90, 310), (11, 20)])
TEST: tuple[Pairs, Pairs] = ([(62, 20), (3, 500), (3, 77)], [(62, 77), (3, 310)])


def save(folder: Path, name: str, users: list[int], pairs: Pairs) -> None:
    rows = [users.index(user) for user, _ in pairs]
    columns = [ITEMS.index(item) for _, item in pairs]
    values = ([1.0] * len(pairs), (rows, columns))
    save_npz(folder / f"{name}.npz", csr_matrix(values, shape=(len(users), len(ITEMS))))


@pytest.fixture
def preprocessed(tmp_path: Path) -> Path:
    """The files that VAE-CF writes."""
    folder = tmp_path / "ml-20m" / "preprocessed"
    folder.mkdir(parents=True)
    for name, ids in (("show2id", ITEMS), ("profile2id", USERS)):
        numbers = {str(number): place for place, number in enumerate(ids)}
        (folder / f"{name}.json").write_text(json.dumps(numbers, indent=4))
    save(folder, "train_data", USERS[:4], TRAIN)
    for name, users, pairs in (("vad", USERS[4:6], VALIDATION), ("test", USERS[6:], TEST)):
        save(folder, f"{name}_data_true", users, pairs[0])
        save(folder, f"{name}_data_test", users, pairs[1])
    return folder


def test_vae_data_is_converted(preprocessed: Path, tmp_path: Path) -> None:
    done = follow("vae_to_csv.py", tmp_path)
    assert done.returncode == 0, done.stderr
    dataset = open_dataset(tmp_path / "datasets" / "vae")
    assert pairs_of(dataset, "train") == set(TRAIN)
    for split, (fold_in, target) in (("validation", VALIDATION), ("test", TEST)):
        assert pairs_of(dataset, f"{split}_history") == set(fold_in)
        assert pairs_of(dataset, split) == set(target)


def test_rows_are_not_given_to_other_users(preprocessed: Path, tmp_path: Path) -> None:
    """VAE-CF's rows begin with the first held-out user who still has interactions."""
    save(preprocessed, "vad_data_true", USERS[5:6], [(11, 77)])
    save(preprocessed, "vad_data_test", USERS[5:6], [(11, 20)])
    done = follow("vae_to_csv.py", tmp_path)
    assert done.returncode == 1
    assert "cannot be told" in done.stderr
    assert not list(tmp_path.glob("*.csv"))
