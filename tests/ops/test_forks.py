"""A forked child of a process that has computed computes with one thread, and warns once."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import os, signal, warnings
import numpy as np, pyarrow as pa, torch
import foretaste

torch.set_num_threads(2)
pairs = np.random.default_rng(1).integers(0, 300, (2, 6000))
table = pa.table({"user_id": pairs[0], "item_id": pairs[1]})
recommender = foretaste.fit("gmf", table, callback=foretaste.training.Callback(), epochs=1)
users = list(range(300))
before = [answer.item_ids for answer in recommender.recommend(users)]
large = torch.ones(1500, 1500)
large @ large  # with all threads, whatever the model took
child = os.fork()
if not child:
    signal.alarm(100)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        large @ large
        for _ in range(2):
            after = [answer.item_ids for answer in recommender.recommend(users)]
        foretaste.fit("gmf", table, callback=foretaste.training.Callback(), epochs=1)
    print(after == before, torch.get_num_threads(), *[one.message for one in said], flush=True)
    os._exit(0)
print(os.waitpid(child, 0)[1], torch.get_num_threads())
"""


@pytest.mark.skipif(find_spec("duckdb") is None, reason="needs DuckDB, which prepares the data")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_answers_and_trains() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},  # a GPU works in no child
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    child, parent = done.stdout.splitlines()[-2:]
    assert child.startswith("True 1 this process was forked from one that had"), done.stderr
    assert child.count("forked") == 1
    assert parent == "0 2"
