"""Every command in a table of the documentation runs, in the order of the page, in one folder.

Data and benchmarks are small, and MovieLens comes from a server of this machine; the commands run
unchanged.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretaste.bench import session
from foretaste.data.movielens import NAMED_SETS
from tests.cli.conftest import Done, call
from tests.cli.test_app import VERBS
from tests.data import movielens
from tests.data.file_server import serving
from tests.docs.execution import on_ranks
from tests.docs.pages import ROOT, Page, guides
from tests.docs.shop import RATINGS, rows

SETS = ("ml-1m", "ml-20m")
_ROW = re.compile(r"^\|.*\|$", re.MULTILINE)
_COMMAND = re.compile(rf"`(?:foretaste ((?:{'|'.join(VERBS)})\b[^`]*)|(torchrun [^`.]*))`")


def table_commands(page: Page) -> list[str]:
    """The command lines in the tables of a page, without ``foretaste``; whole with torchrun."""
    found = [command for row in _ROW.findall(page.prose) for command in _COMMAND.findall(row)]
    return [ours or among_ranks for ours, among_ranks in found]


ALL = {page.name: found for page in [*guides(), Page(ROOT / "README.md")]
       if (found := table_commands(page))}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files that the commands name, and a small world around it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "logs").mkdir()
    for name in ("ratings.csv", "a.csv"):
        (tmp_path / name).write_text(RATINGS)
    (tmp_path / "b.csv").write_text("user_id,item_id,rating,timestamp\n" + rows(50, 9))
    pairs = [(user, item) for user in range(9) for item in range(4)]
    table = pa.table({"user_id": [user for user, _ in pairs], "item_id": [i for _, i in pairs]})
    pq.write_table(table, tmp_path / "logs" / "monday.parquet")
    small = {"ml-20m": (60, 40, 500)}
    monkeypatch.setattr(session, "NAMED_SHAPES", session.NAMED_SHAPES | small)
    monkeypatch.setattr(session, "NAMED_SHAPES_OF_VAE", small)
    monkeypatch.setattr("foretaste.bench.inference.BATCH_SIZES", {"cpu": (1,)})
    monkeypatch.setattr("foretaste.cli.nvidia_rules.DATA", tmp_path / "data")
    archives = {f"/{name}.zip": movielens.archive(name) for name in SETS}
    for name in SETS:
        movielens.expect(monkeypatch, name, archives[f"/{name}.zip"])
    monkeypatch.setitem(NAMED_SETS, "ml-20m", replace(NAMED_SETS["ml-20m"], num_heldout_users=4))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with serving(archives) as server:
        monkeypatch.setenv("FORETASTE_MOVIELENS_URL", server.url)
        yield tmp_path


def test_the_tables_have_commands() -> None:
    assert len(ALL["coming-from-nvidia.md"]) >= 20
    assert "data.md" in ALL


@pytest.mark.parametrize("name", ALL)
def test_the_commands_of_a_table_run(name: str, folder: Path) -> None:
    for command in ALL[name]:
        words = shlex.split(re.sub(r"/data\b", str(folder / "data"), command))
        _make_room(words)
        _shorten(words)
        done = _on_two_ranks(words, folder) if words[0] == "torchrun" else call(*words)
        assert done.status == 0, f"{name}: {command}\n{done.err}"


def _on_two_ranks(words: list[str], folder: Path) -> Done:
    """Run a smaller line on two ranks; their processes know the real ML-20M."""
    words[2] = "2"
    if "bench" in words:
        words[words.index("ml-20m")] = "60x40x500"
        words += ["--batch-size", "20", "--repeats", "1"]
    return on_ranks(words, folder)


def _make_room(words: list[str]) -> None:
    """Remove the run of an earlier column: the columns of a table say the same in other words."""
    if "train" in words:
        for option in ("--run", "--checkpoint-dir", "--checkpoint_dir"):
            if option in words and "--inference_benchmark" not in words and "--test" not in words:
                shutil.rmtree(words[words.index(option) + 1], ignore_errors=True)


def _shorten(words: list[str]) -> None:
    """Epochs and calls are not what is tested: forty epochs of NeuMF on a handful of users take
    half a minute."""
    others = {
        "bench",
        "--mode",
        "--test",
        "--inference_benchmark",
        "--resume",
        "--like",
        "-e",
        "--epochs",
    }
    if "train" in words and not others & {*words}:
        words += ["--epochs", "1", "--batch-size", "1024"]
    if "--pairs" in words:
        del words[words.index("--pairs") + 3 :]
        words[-2:] = ["8", "16"]
    if {"inference", "recommend", "--inference_benchmark"} & {*words}:
        words += ["--calls", "2", "--repeats", "1"]
