"""``foretaste blend``: a run made of other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, say, stdout_console
from foretaste.cli.train import display_training, print_run
from foretaste.cli.train_options import Logs
from foretaste.training.config import TrainingConfig


def blend(
    runs: list[Path],
    /,
    *,
    run: Path | None = None,
    weights: tuple[float, ...] | None = None,
    select_by: str = "auto",
    candidates: str = "full",
    dataset: Path | None = None,
    device: str = "auto",
    overwrite: Annotated[bool, FLAG] = False,
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Make a run of other runs of the same dataset: the sum of their standardised scores.

    Args:
        runs: Directories of two or more finished runs.
        run: Directory of the new run, new or empty; by default runs/blend-DATASET-TIME.
        weights: A number for each run: --weights 0.7 0.3. By default the validation part chooses
            them.
        select_by: Metric that chooses the weights; by default ndcg@10, or ndcg@100 for held-out
            users.
        candidates: Items against which held-out items are ranked, for the weights and for the final
            metrics: full, new (held-out items that training never saw), sampled-N, nvidia-N or
            fixed.
        dataset: Present directory of the runs' dataset, if it was moved.
        device: auto (a GPU if there is one), cpu, cuda or cuda:N.
        overwrite: Replace the run in that directory.
        quiet: Print the directory of the run and nothing else.
    """
    from foretaste.runs import Run

    opened = [Run.open(path) for path in runs]

    from foretaste import training
    from foretaste.runs.places import place_to_train

    if run is not None:
        place_to_train(run, overwrite=overwrite)  # raises before the search for weights
    if weights is None:
        with counting("Finding weights", quiet=quiet) as progress:
            weights = training.blend_weights(
                opened,
                select_by=select_by,
                candidates=candidates,
                dataset=dataset,
                device=device,
                progress=progress,
            )
            select_by = "auto"
        for member, weight in zip(opened, weights, strict=True):
            note = "" if weight else ": validation gains nothing by it"
            text = f"weight {weight:g}  {member.path} ({member.config.model}){note}"
            say(stdout_console(quiet=quiet), text)
    logs = Logs(quiet=quiet)
    with display_training(TrainingConfig(device=device, candidates=candidates), logs) as display:
        blended = training.blend(
            opened,
            weights=weights,
            select_by=select_by,
            candidates=candidates,
            dataset=dataset,
            run=run,
            overwrite=overwrite,
            device=device,
            callback=display,
        )
    print_run(blended, logs)
