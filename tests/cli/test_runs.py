"""``foretaste runs`` and ``foretaste verify``."""

from __future__ import annotations

import csv
import json
import re
import shutil
from pathlib import Path

from tests.cli.conftest import Done, Foretaste, refused
from tests.messages import says


def test_damaged_runs_are_named_and_left_out_of_what_programs_read(foretaste: Foretaste) -> None:
    Path("runs/gmf/config.json").write_text("{")
    done = foretaste("runs runs")
    assert done.status == 0
    note = re.search("^runs/gmf .*", done.out, re.MULTILINE)
    says(note and note[0], "runs/gmf", "runs/gmf/config.json", re.compile("(?<=JSON: ).*"))
    assert set(foretaste("runs --quiet").out.split()) == {"runs/popularity", "runs/vae"}
    records = {record["path"]: record for record in json.loads(foretaste("runs --format json").out)}
    assert records["runs/gmf"]["is_damaged"]
    assert records["runs/vae"]["protocol"] == "leave-one-out"
    rows = list(csv.DictReader(foretaste("runs --format csv").out.splitlines()))
    assert {row["path"] for row in rows} == set(records)


def test_other_candidates_are_reported(foretaste: Foretaste) -> None:
    foretaste("train popularity data --candidates sampled-9 --run runs/sampled")
    assert re.search(r"^ sampled .* candidates sampled-9 *$", foretaste("runs").out, re.M)


def test_a_folder_without_runs_is_reported(foretaste: Foretaste) -> None:
    Path("empty").mkdir()
    says(foretaste("runs empty").out, "empty")
    assert json.loads(foretaste("runs empty --format json").out) == []


def test_a_dataset_and_a_run_that_are_right(foretaste: Foretaste) -> None:
    done = foretaste("verify data runs/vae")
    assert (done.status, done.err) == (0, "")
    assert done.out == "data: ok\nruns/vae: ok\n"
    assert foretaste("verify data runs/vae --quiet") == Done(0, "", "")


def test_what_is_wrong_is_named(foretaste: Foretaste, tmp_path: Path) -> None:
    shutil.copytree("data", tmp_path / "torn")
    path = tmp_path / "torn" / "test.parquet"
    path.write_bytes(path.read_bytes()[:-1])
    done = foretaste("verify", tmp_path / "torn", "absent", "runs/gmf")
    assert done.status == 2
    says(done.err, path, "absent")
    assert done.out == "runs/gmf: ok\n"


def test_a_directory_that_is_neither_dataset_nor_run_is_named(foretaste: Foretaste) -> None:
    Path("empty").mkdir()
    refused(foretaste("verify --quiet empty"), "empty", "config.json")
