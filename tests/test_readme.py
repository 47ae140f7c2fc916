"""The README's commands and its Python run on a tiny file like a reader runs them."""

from __future__ import annotations

import json
import random
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow.csv as pa_csv
import pytest

from foretaste.cli.app import main
from foretaste.data import GenerateConfig, generate, open_dataset
from tests.serve import processes

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """Every command line of the console blocks, as words."""
    lines = [line for block in blocks("console") for line in block.splitlines()]
    assert all(line.startswith("$ ") for line in lines)
    return [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]


def shop(num_rows: int = 900) -> str:
    """Purchases of 50 customers: one in 9 by a guest, one in 13 a return."""
    draw = random.Random(1)
    rows = (
        f"{'' if n % 9 == 0 else n % 50},{draw.randrange(100, 160)},"
        f"{-1 if n % 13 == 0 else n % 7 + 1},2026-{1 + n % 9:02}-{1 + n % 28:02}\n"
        for n in range(num_rows)
    )
    return "customer,sku,quantity,bought_at\n" + "".join(rows)


CATEGORIES = ("wine", "cheese", "bread")
NEW = 160
PRODUCTS = {sku: (CATEGORIES[sku % 3], sku % 7, sku % 4) for sku in range(100, NEW + 1)}
"""Category, brand and stock of each; nobody has bought the last one."""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the README names."""
    generated = generate(GenerateConfig(num_users=60, num_items=40, num_interactions=900))
    pa_csv.write_csv(generated.table, tmp_path / "ratings.csv")
    pa_csv.write_csv(generated.items, tmp_path / "movies.csv")
    (tmp_path / "shop.csv").write_text(shop())
    products = "".join(f"{sku},{kind},{brand},{n}\n" for sku, (kind, brand, n) in PRODUCTS.items())
    (tmp_path / "products.csv").write_text("sku,category,brand,stock\n" + products)
    for block in blocks('toml title="rules.toml"'):
        (tmp_path / "rules.toml").write_text(block)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_run_in_order(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ours = [words[1:] for words in commands() if words[0] == "foretaste"]
    assert len(ours) >= 3
    for words in ours:
        if words[0] != "serve":
            main(words)
            assert capsys.readouterr().out
    check_the_shop(directory)


def check_the_shop(directory: Path) -> None:
    """Check that guests and returns are out, and that the served lists keep both rules."""
    counts = open_dataset("datasets/shop").manifest.counts
    assert counts["num_rows_with_an_empty_id"] == 100
    assert counts["num_rows_rated_too_low"] > 0
    (serve,) = (words for words in commands() if words[:3] == ["foretaste", "serve", "runs/shop"])
    (curl,) = (words for words in commands() if words[0] == "curl")
    assert serve[-1] == "&"
    with processes.serve(*serve[2:-1], cwd=directory) as served:
        assert "<html" in served.text("/")
        status, answer = served.ask("POST", urlsplit(curl[-1]).path, json.loads(curl[3]))
    assert status == 200
    (answered,) = answer["answers"]
    assert answered["known"]
    assert answered["items"]
    for item in answered["items"]:
        category, _, stock = PRODUCTS[item["item_id"]]
        assert category == "wine"
        assert stock > 0


def test_the_python_runs(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("user 42\n")


def test_every_other_command_is_of_the_clone() -> None:
    makefile = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    others = [words for words in commands() if words[0] != "foretaste"]
    targets = [words[1] for words in others if words[0] == "make"]
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    assert {words[0] for words in others} == {"make", "pip", "curl"}
