"""``foretaste reproduce``: a publication's numbers beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from foretaste.cli.arguments import FLAG
from foretaste.cli.console import MetricsFormat, print_metrics
from foretaste.training.config import Precision


def reproduce(
    name: str,
    /,
    *,
    seeds: int = 1,
    precision: tuple[Precision, ...] = ("fp32",),
    dataset: Path | None = None,
    source_dir: Path | None = None,
    output: Path | None = None,
    device: str = "auto",
    format: MetricsFormat = "table",
    quiet: Annotated[bool, FLAG] = False,
) -> None:
    """Put a publication's numbers beside ours.

    Args:
        name: ncf-paper, nvidia-ncf, mult-vae-paper, nvidia-vae, ials-revisited or recvae.
        seeds: Trainings of each model, with seeds 1, 2, ...; with more the same command goes on.
        precision: What the large products are computed in: --precision fp32 bf16. Each is a row.
        dataset: Data to take in place of the published set, prepared already or raw.
        source_dir: Folder of the published set's files or archive; nothing is downloaded then.
        output: Directory of the runs, and of the table as table.md, table.csv and table.json;
            reproductions/NAME unless given.
        device: auto (a GPU where there is one), cpu, cuda or cuda:N.
        format: How to print; csv and json hold every number.
        quiet: Print the table and nothing else: no progress and no notes.
    """
    from foretaste.training import Callback
    from foretaste.tune import reproduce as reproduce_published

    found = reproduce_published(
        name,
        seeds=seeds,
        precision=precision,
        dataset=dataset,
        source_dir=source_dir,
        output=output,
        callback=Callback() if quiet else None,
        device=device,
    )
    print_metrics(found.rows(), [("", found.grid())], [] if quiet else found.notes(), format)
