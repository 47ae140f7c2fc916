"""A small shop to make mistakes in: files, datasets, runs, and a training that was stopped."""

from __future__ import annotations

from contextlib import chdir, suppress
from pathlib import Path

import foretaste
from foretaste.training import Callback
from foretaste.training.callbacks import EpochReport
from tests.cli.conftest import call
from tests.docs.mistakes import RATINGS

MOVIES = "item_id,title\n" + "".join(f"{item},Film {item}\n" for item in range(100, 129))


class StopError(Exception):
    """What stops a training."""


class StopAfterTwoEpochs(Callback):
    """Stops a training in the middle, as a kill does."""

    def epoch_done(self, report: EpochReport) -> None:
        if report.epoch == 2:
            raise StopError


def make_shop(root: Path) -> None:
    """Fill an empty directory."""
    (root / "ratings.csv").write_text(RATINGS)
    (root / "movies.csv").write_text(MOVIES)
    own = "".join(f"{user},{9000 + user},3,0\n" for user in range(1, 41))
    (root / "own.csv").write_text(RATINGS + own)
    with chdir(root):
        for line in (
            "prepare ratings.csv --items movies.csv --output data",
            "prepare own.csv --protocol held-out-users --output heldout",
            "prepare ratings.csv --protocol none --output everything",
            "train popularity data --run runs/popularity",
            "train vae data --hidden 8 --latent 4 --epochs 2 --run runs/vae",
            "train gmf data --factors 2 --epochs 1 --run runs/gmf",
            "train ease heldout --run runs/heldout",
            "train vae everything --hidden 8 --latent 4 --epochs 1 --run runs/everything",
        ):
            done = call(*line.split())
            assert done.status == 0, done.err
        _stop_a_training()


def _stop_a_training() -> None:
    """Leave a run with a saved state and no end."""
    with suppress(StopError):
        foretaste.train(
            "gmf",
            "data",
            model_config=foretaste.GMFConfig(factors=2),
            config=foretaste.TrainingConfig(epochs=3, checkpoint_every_s=0.0),
            run_path="runs/stopped",
            callback=StopAfterTwoEpochs(),
        )
