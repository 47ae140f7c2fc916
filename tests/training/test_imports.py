"""Libraries that neither training nor answering needs, which are not imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from foretaste.data import Dataset


def test_a_training_that_is_watched_by_others_needs_no_terminal_library() -> None:
    code = "import sys; sys.modules['rich'] = None; import foretaste.training.verbs"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_training_on_a_prepared_dataset_does_not_import_duckdb(
    dataset: Dataset, tmp_path: Path
) -> None:
    code = (
        "import sys; from foretaste.cli.app import main;"
        "main(['train', 'gmf', *sys.argv[1:], '--epochs', '1', '--device', 'cpu', '--quiet']);"
        "sys.exit('duckdb' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(dataset.path), "--run", str(tmp_path / "run")]
    assert subprocess.run(command, check=False).returncode == 0
    assert (tmp_path / "run" / "best.safetensors").is_file()


def test_training_and_folding_in_do_not_import_the_compiler(
    dataset: Dataset, tmp_path: Path
) -> None:
    code = (
        "import sys; from foretaste import TrainingConfig, load, train;"
        "config = TrainingConfig(epochs=1, device='cpu');"
        "run = train('gmf', sys.argv[1], config=config, run=sys.argv[2]);"
        "(answer,) = load(run).recommend_for([run.items.ids()[:3]], k=2);"
        "assert len(answer.items) == 2 and not answer.reason;"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(dataset.path), str(tmp_path / "run")]
    assert subprocess.run(command, check=False).returncode == 0
