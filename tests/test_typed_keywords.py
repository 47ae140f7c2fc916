"""The keywords of the verbs are typed: a type checker finds a wrong name, value or model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import typed_keywords

ROOT = Path(__file__).parents[1]
RIGHT = """\
from pathlib import Path

import pandas as pd

import foretaste
from foretaste.training import Callback, TrainRequest, train_run

frame = pd.DataFrame({"user_id": [1], "item_id": [2]})
data = foretaste.prepare("ratings.csv", Path("data"), min_rating=4, events=["view", "buy=4"])
run: foretaste.Run = foretaste.train("vae", data, epochs=20, hidden=[200], learning_rate="auto")
foretaste.train("neumf", frame, pretrained_gmf="runs/gmf", pretrained_mlp=Path("runs/mlp"))
foretaste.train("ease", data, config=foretaste.TrainingConfig(device="cpu"), callback=Callback())
fitted: foretaste.Recommender = foretaste.fit("ease", frame, items=frame, l2=500)
foretaste.train("ease", frame, items=frame, l2=500)
fitted.recommend([1], k=5)
print(foretaste.tune_model("ials", data, trials=3, time_s=60, factors=64).best.settings)
foretaste.compete(data, models=["ease", "vae"], epochs=3, protocol="temporal")
for name in ("ease", "a-model-of-mine"):
    train_run(TrainRequest.of(name, data, device="cpu"), Callback())
"""

WRONG = {
    'foretaste.train("vae", data, epoch=1)': 'Unexpected keyword argument "epoch" for "train"; did',
    'foretaste.fit("easy", data)': 'Argument 1 to "fit" has incompatible type "Literal[\'easy\']"',
    'foretaste.train("vae", data, epochs="10")': 'Argument "epochs" to "train" has incompatible t',
    'foretaste.train("vae", data, precision="fp8")': 'Argument "precision" to "train" has incompa',
    'foretaste.prepare("r.csv", min_ratings=4)': 'Unexpected keyword argument "min_ratings" for',
    'foretaste.tune_model("ials", data, trial=3)': 'Unexpected keyword argument "trial" for "tun',
    "foretaste.compete(data, epoch=3)": 'Unexpected keyword argument "epoch" for "compete"',
}
"""Wrong lines, and the start of the type checker's message."""


def test_the_keywords_equal_the_configs() -> None:
    """`python -m tests.typed_keywords` writes the keywords again."""
    assert typed_keywords.FILE.read_text(encoding="utf-8") == typed_keywords.text()


@pytest.mark.slow
@pytest.mark.timeout(900)  # without the cache of `mypy` it reads the whole package
def test_a_type_checker_finds_what_is_wrong_in_a_script(tmp_path: Path) -> None:
    wrong = "".join(f"{line}\n" for line in WRONG)
    (script := tmp_path / "script.py").write_text(RIGHT + wrong)
    done = subprocess.run(
        # The settings of the clone are strict, and have a cache.
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(script)],
        cwd=ROOT,
        env=os.environ | {"MYPYPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    first = 1 + RIGHT.count("\n")
    assert len(errors) == len(WRONG), done.stdout + done.stderr
    for number, (error, message) in enumerate(zip(errors, WRONG.values(), strict=True), first):
        assert f"script.py:{number}: error: {message}" in error
