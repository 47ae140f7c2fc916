"""Training and answering do not import libraries that they do not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from foretaste.data import Dataset


def test_training_and_folding_in_import_neither_duckdb_nor_pandas_nor_the_compiler(
    dataset: Dataset, tmp_path: Path
) -> None:
    """A training that others watch imports no terminal library either."""
    code = (
        "import sys; sys.modules['rich'] = None; import foretaste.training.api;"
        "del sys.modules['rich'];"
        "from foretaste.cli.app import main; from foretaste import load;"
        "main(['train', 'gmf', *sys.argv[1:], '--epochs', '1', '--device', 'cpu', '--quiet']);"
        "recommender = load(sys.argv[-1]);"
        "(answer,) = recommender.recommend_for([recommender.items.ids()[:3]], k=2);"
        "assert len(answer.items) == 2 and not answer.reason;"
        "print({'duckdb', 'pandas', 'torch._dynamo'} & sys.modules.keys())"
    )
    command = [sys.executable, "-c", code, str(dataset.path), "--run", str(tmp_path / "run")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr
