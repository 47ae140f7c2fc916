"""The kind of a test file, read from its imports: is it quick?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

_STARTS_PROCESSES = ("multiprocessing", "playwright", "pyspark", "subprocess")
_TRAINS = (
    *("foretaste.train", "foretaste.fit", "foretaste.training", "foretaste.tune", "foretaste.cli"),
    *("foretaste.export", "foretaste.bench", "foretaste.testing"),
)


@cache
def is_quick(path: Path) -> bool:
    """True if neither a file nor a `conftest.py` above a file of tests imports a module that starts
    processes or trains, or another file of ours that does."""
    above = [folder / "conftest.py" for folder in path.parents if ROOT / "tests" in folder.parents]
    own = [path, *(file for file in above if file.is_file() and path.name.startswith("test_"))]
    return not any(_is_slow(module) for file in own for module in _imports(file))


def _is_slow(module: str) -> bool:
    if any(f"{module}.".startswith(f"{slow}.") for slow in (*_STARTS_PROCESSES, *_TRAINS)):
        return True
    file = ROOT / f"{module.replace('.', '/')}.py"
    return module.startswith(("tests.", "benchmarks.")) and file.is_file() and not is_quick(file)


def _imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
