"""``foretaste prepare`` and raw files given to ``train``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from foretaste.data import open_dataset
from tests.cli.conftest import Done

Foretaste = Callable[..., Done]


def test_prepare_says_what_it_made_and_what_is_next(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste("prepare ratings.csv --items items.csv --output", tmp_path / "made")
    dataset = open_dataset(tmp_path / "made")
    assert done.status == 0
    assert done.err == ""
    assert f"Dataset: {tmp_path / 'made'}" in done.out
    assert "leave-one-out" in done.out
    assert dataset.manifest.digest[:12] in done.out
    assert f"  foretaste train vae {tmp_path / 'made'}\n" in done.out
    assert dataset.items.has_column("title")


def test_settings_reach_the_dataset(foretaste: Foretaste, tmp_path: Path) -> None:
    options = "--protocol held-out-users --num_heldout_users 9 --min-item-users 2 --seed 5"
    done = foretaste(f"prepare ratings.csv {options} -o", tmp_path / "made")
    assert done.status == 0, done.err
    dataset = open_dataset(tmp_path / "made")
    manifest = dataset.manifest
    assert (manifest.protocol, manifest.seed) == ("held-out-users", 5)
    assert dataset.heldout("test").num_users == 9
    assert manifest.filters == {"min_item_users": 2}


def test_several_files_and_overwriting(foretaste: Foretaste, shop: Path, tmp_path: Path) -> None:
    header, *rows = (shop / "ratings.csv").read_text().splitlines(keepends=True)
    for name, part in (("a.csv", rows[::2]), ("b.csv", rows[1::2])):
        (tmp_path / name).write_text("".join([header, *part]))
    for more in ((), ("--overwrite",)):
        line = f"prepare {tmp_path}/a.csv {tmp_path}/b.csv --items items.csv -o {tmp_path}/made"
        done = foretaste(line, *more)
        assert done.status == 0, done.err
    assert open_dataset(tmp_path / "made").manifest.digest == open_dataset("data").manifest.digest


def test_a_path_with_spaces_is_quoted_in_what_is_next(foretaste: Foretaste, tmp_path: Path) -> None:
    done = foretaste("prepare ratings.csv -o", tmp_path / "two words")
    assert f"foretaste train vae '{tmp_path / 'two words'}'" in done.out


def test_train_prepares_a_raw_file_once(foretaste: Foretaste, tmp_path: Path) -> None:
    line = "train popularity ratings.csv --items items.csv --protocol temporal --runs-root"
    first, second = foretaste(line, tmp_path), foretaste(line, tmp_path)
    assert first.status == second.status == 0
    said = first.out.splitlines()[0]
    assert re.fullmatch(r"Prepared ratings.csv: datasets/ratings-[0-9a-f]+ \(temporal\)", said)
    assert second.out.splitlines()[0] == said
    assert len(list(tmp_path.iterdir())) == 2


def test_the_numbers_of_the_summary_stand_in_one_column(
    foretaste: Foretaste, tmp_path: Path
) -> None:
    done = foretaste(f"prepare ratings.csv -o {tmp_path}/data")
    summary = done.out.partition("\n")[2].partition("Next:")[0].splitlines()
    columns = {match.end() for line in summary if (match := re.match(r"  \S.*?\s{2,}", line))}
    assert len(summary) > 10
    assert len(columns) == 1
