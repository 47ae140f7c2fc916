"""A small shop in a directory, and commands run on it like a user runs them."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pyarrow.csv as pa_csv
import pytest

from foretaste.cli.app import main
from foretaste.data import GenerateConfig, generate
from tests.messages import says

SHAPE = GenerateConfig(num_users=120, num_items=60, num_interactions=2400, num_genres=4)


@dataclass(frozen=True)
class Done:
    """What a command printed, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """The output on stdout without frames and line breaks."""
        return " ".join(self.out.translate(dict.fromkeys(map(ord, "│╭╮╰╯─"), " ")).split())


Foretaste = Callable[..., Done]
"""A command line as one string, and further words, run in the shop's directory."""


def call(*tokens: object) -> Done:
    """Run one command in this process; its output has no bars and no colours. CSV has unchanged ids
    and titles.
    """
    out, err, status = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(token) for token in tokens])
        except SystemExit as exit:
            status = int(exit.code or 0)
    done = Done(status, out.getvalue(), err.getvalue())
    if "csv" not in tokens:
        assert not {"\x1b", "\r"} & {*done.out, *done.err}, (done.out, done.err)
    return done


def refused(done: Done, *named: object) -> None:
    """Check that a command printed an error alone, which names `named`."""
    assert (done.status, done.out) == (2, ""), done
    says(done.err, *named)


@pytest.fixture(scope="session")
def model_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with raw files, a dataset and three runs, made by the commands."""
    root = tmp_path_factory.mktemp("shop")
    generated = generate(SHAPE)
    pa_csv.write_csv(generated.table, root / "ratings.csv")
    pa_csv.write_csv(generated.items, root / "items.csv")
    with chdir(root):
        for command in (
            "prepare ratings.csv --items items.csv --output data",
            "train popularity data --run runs/popularity",
            "train vae data --hidden 32 --latent 8 --epochs 4 --eval-every 2 --run runs/vae",
            "train gmf data --factors 8 --epochs 2 --run runs/gmf",
        ):
            done = call(*command.split())
            assert done.status == 0, done.err
    return root


@pytest.fixture
def shop(model_shop: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy for each test, so that no test finds another's files."""
    return shutil.copytree(model_shop, tmp_path_factory.mktemp("shops") / "shop")


@pytest.fixture
def foretaste(shop: Path, monkeypatch: pytest.MonkeyPatch) -> Foretaste:
    monkeypatch.chdir(shop)

    def run(line: str, *more: object) -> Done:
        return call(*line.split(), *more)

    return run
