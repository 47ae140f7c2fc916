"""``foretaste verify``, and named sets on the command line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from foretaste.data import open_dataset
from tests.cli.conftest import Done
from tests.data import movielens

Foretaste = Callable[..., Done]


def test_a_dataset_and_a_run_that_are_right(foretaste: Foretaste) -> None:
    done = foretaste("verify data runs/vae")
    assert (done.status, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "data: dataset"
    assert "runs/vae: run" in lines
    assert all("  ok     " in line for line in lines if line.startswith("  "))
    assert any(line.startswith("  best.safetensors") for line in lines)


def test_what_is_wrong_is_marked_and_named(foretaste: Foretaste, tmp_path: Path) -> None:
    shutil.copytree("data", tmp_path / "torn")
    path = tmp_path / "torn" / "test.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    done = foretaste("verify", tmp_path / "torn", "runs/gmf")
    assert done.status == 2
    assert done.err.startswith(f"error: {path}: does not match the manifest")
    (wrong,) = [line for line in done.out.splitlines() if "WRONG" in line]
    assert wrong.split()[0] == "test.parquet"
    assert "runs/gmf: run" in done.out


def test_neither_dataset_nor_run(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste("verify", tmp_path)
    assert (done.status, done.out) == (2, "")
    assert "is neither a dataset nor a run" in done.err


def test_named_sets_from_files_that_are_there(foretaste: Foretaste, tmp_path: Path) -> None:
    for name, content in movielens.files("ml-1m").items():
        (tmp_path / name).write_bytes(content)
    given = f"--source-dir {tmp_path}"
    done = foretaste(f"prepare ml-1m {given} -o {tmp_path}/made")
    assert done.status == 0, done.err
    assert open_dataset(tmp_path / "made").manifest.num_users == movielens.NUM_USERS
    done = foretaste(f"train popularity ml-1m {given} --protocol temporal --run {tmp_path}/run")
    assert done.status == 0, done.err
    assert "Prepared ml-1m: datasets/ml-1m-" in done.out
    done = foretaste(f"recommend {tmp_path}/run --user 1 -k 3")
    assert "(2000)" in done.out
    done = foretaste("prepare ratings.csv", *given.split())
    assert done.status == 2
    assert "source_dir belongs to the named sets" in done.err


def test_quiet_says_what_is_wrong_alone(foretaste: Foretaste) -> None:
    assert foretaste("verify data runs/vae --quiet") == Done(0, "", "")
    Path("runs/vae/best.safetensors").unlink()
    done = foretaste("verify data runs/vae --quiet")
    assert done.status == 2
    assert done.out.startswith("runs/vae: run\n  best.safetensors  WRONG ")
    assert done.out.count("\n") == 2
