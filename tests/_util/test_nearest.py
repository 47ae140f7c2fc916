"""Names that may have been meant."""

from __future__ import annotations

from pathlib import Path

from foretaste._util.nearest import did_you_mean


def test_the_nearest_name_of_the_folder(tmp_path: Path) -> None:
    for name in ("ratings.csv", "movies.csv"):
        (tmp_path / name).touch()
    assert did_you_mean(tmp_path / "rating.csv") == f"; did you mean {tmp_path}/ratings.csv?"
    assert did_you_mean(tmp_path / "users.parquet") == ""
    assert did_you_mean(tmp_path / "*.csv") == ""
    assert did_you_mean(tmp_path / "absent" / "ratings.csv") == ""
    assert did_you_mean(tmp_path / "rating\0.csv") != "", "the folder is read, not the name"


def test_what_holds_the_file_that_makes_it_one(tmp_path: Path) -> None:
    for name in ("run-1", "run-12", "run-3"):
        (tmp_path / name).mkdir()
    (tmp_path / "run-3" / "config.json").touch()
    meant = did_you_mean(tmp_path / "run-2", holding="config.json")
    assert meant == f"; did you mean {tmp_path}/run-3?"
    assert did_you_mean(tmp_path / "run-2", holding="manifest.json") == ""
