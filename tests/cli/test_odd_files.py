"""Every option that names a file refuses a pipe without waiting, and does not read a device."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Foretaste
from tests.messages import says

pytestmark = pytest.mark.timeout(60)

OPTIONS = [
    "prepare {}",
    "prepare ratings.csv --items {}",
    "prepare --train {} --test ratings.csv",
    "prepare --train ratings.csv --test {}",
    "prepare ratings.csv --like {}",
    "train popularity {}",
    "train --like {} data",
    "train gmf data --from {}",
    "train neumf data --pretrained-gmf {} --pretrained-mlp runs/gmf",
    "train --resume {}",
    "evaluate {}",
    "evaluate runs/vae --dataset {}",
    "compare runs/vae {}",
    "blend runs/vae {}",
    "recommend {} --user 1",
    "recommend runs/vae --users-file {}",
    "recommend runs/vae --histories-file {}",
    "recommend runs/vae --user 1 --candidates @{}",
    "recommend runs/vae --user 1 --exclude @{}",
    "recommend runs/vae --user 1 --rules-file {}",
    "recommend runs/vae --user 1 --items {}",
    "similar {} --item 1",
    "export {} --output program",
    "report {}",
    "verify {}",
    "serve {}",
    "serve runs/vae --token-file {} --port 0",
    "serve runs/vae --rules-file {} --port 0",
    "serve runs/vae --items {} --port 0",
]
FILES = [
    ("train popularity data --overwrite --run {}", "config.json"),
    *(("train --resume {}", name) for name in ("config.json", "metrics.jsonl")),
    *(
        (f"{verb} {{}}", name)
        for verb in ("evaluate", "verify", "export --output program", "recommend --user 1")
        for name in ("config.json", "best.safetensors", "users.parquet", "histories.parquet")
    ),
]
DATASET = [
    ("prepare ratings.csv --overwrite --output {}", "manifest.json"),
    *(
        ("train popularity {}", name)
        for name in ("manifest.json", "train.parquet", "items.parquet")
    ),
]


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, device])
@pytest.mark.parametrize("line", OPTIONS)
def test_an_option_takes_no_pipe_and_no_device(
    foretaste: Foretaste, shop: Path, line: str, make: Callable[[Path], object]
) -> None:
    make(shop / "odd")
    done = foretaste(line.format("odd"))
    assert done.status == 2, done.out
    assert "odd" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("make", [os.mkfifo, device])
@pytest.mark.parametrize(("line", "name"), [*FILES, *DATASET])
def test_a_directory_holds_no_pipe_and_no_device(
    foretaste: Foretaste, shop: Path, line: str, name: str, make: Callable[[Path], object]
) -> None:
    place = shop / ("data" if (line, name) in DATASET else "runs/gmf")
    (place / name).unlink()
    make(place / name)
    done = foretaste(line.format(place))
    assert done.status in (1, 2), done.out
    assert "Traceback" not in done.err


@pytest.mark.parametrize("option", ["--rules-file", "--token-file"])
def test_a_large_file_is_no_file_of_rules_and_no_token(
    foretaste: Foretaste, shop: Path, option: str
) -> None:
    with (shop / "large").open("wb") as file:
        file.truncate(1 << 40)
    done = foretaste(f"serve runs/vae --port 0 {option} large")
    assert done.status == 2
    says(done.err.splitlines()[-1], "large", "1 MiB")
