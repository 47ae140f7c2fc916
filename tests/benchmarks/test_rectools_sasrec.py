"""Places of another program's lists, measured beside a run of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import foretaste
from benchmarks import rectools_sasrec
from foretaste.data import GenerateConfig, generate, prepare


def test_places_are_measured_on_the_same_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = GenerateConfig(num_users=40, num_items=20, num_interactions=300, num_genres=2)
    dataset = prepare(generate(shape).table, tmp_path / "data")
    foretaste.train("popularity", dataset, run=tmp_path / "run")
    users = dataset.heldout("test").user_index.tolist()
    seconds = {"fit_s": 2.0, "fit_and_validation_s": 3.0, "peak_mib": 400.0}
    # First in the list of every second user, and not among ten of the others.
    found = {"user_index": users, "place": [1, 0] * (len(users) // 2), "epochs": 4, "best": 2}
    places = tmp_path / "places.json"
    places.write_text(json.dumps(found | seconds))
    monkeypatch.setattr("sys.argv", ["", "compare", str(places), str(tmp_path / "run")])
    rectools_sasrec.main()
    shown = capsys.readouterr().out
    assert "SASRec hr@10 0.5000" in shown
    assert "SASRec ndcg@10 0.5000" in shown
    assert "Difference(name='hr@10'" in shown
