"""``foretaste blend``: a run made of other runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import counting, say, stdout_console
from foretaste.cli.train import displayed, print_run
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
    """Make a run of other runs of the same dataset: their scores, standardised and summed.

    Args:
        runs: Directories of two or more finished runs.
        run: Directory of the new run, new or empty; runs/blend-DATASET-TIME unless given.
        weights: A number for each run: --weights 0.7 0.3. Found on the validation part unless
            given.
        select_by: Metric that finds the weights: ndcg@10, or ndcg@100 for held-out users, unless
            given.
        candidates: What held-out items are ranked against, to find weights and in the end: full,
            sampled-N, nvidia-N or fixed.
        dataset: Where the dataset of the runs is now, if it is not where it was.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        overwrite: Replace the run in that directory.
        quiet: Print the directory of the run and nothing else.
    """
    from foretaste.runs import Run

    opened = [Run.open(path) for path in runs]

    from foretaste import training
    from foretaste.runs.places import place_to_train

    if run is not None:
        place_to_train(run, overwrite=overwrite)  # RunError before weights are looked for
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
    with displayed(TrainingConfig(device=device, candidates=candidates), logs) as display:
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
