"""How the threads of PyTorch's operations share the cores with other programs."""

from __future__ import annotations

import os


def share_cores() -> None:
    """Have threads that wait for each other spin for a moment, then sleep.

    Goes through the environment, for GNU's OpenMP, and must come before PyTorch is imported.
    Measured on two cores with Mult-VAE's step of many short operations: sleeping at once
    (``OMP_WAIT_POLICY=PASSIVE``) costs a third of the speed; spinning for long, the default, gives
    a tenth of it where another program wants the same cores; this gives all of it alone and four
    fifths of what sleeping gives beside another.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
