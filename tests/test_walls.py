"""Walls: arrows between rooms, heavy imports, re-exported names, ranks at the door, and the private
names of modules."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import foretaste
from foretaste import errors

PACKAGE = Path(foretaste.__file__).parent

BELOW = {
    "_util": set(),
    "ops": set(),
    "data": set(),
    "models": {"ops"},
    "evaluation": {"models", "ops", "data"},
    "runs": {"evaluation", "models", "ops", "data"},
    "training": {"runs", "evaluation", "models", "ops", "data"},
    "recommend": {"runs", "evaluation", "models", "ops", "data"},
    "distributed": {"training", "runs", "evaluation", "models", "ops", "data"},
    "measure": {"training", "runs", "evaluation", "models", "ops", "data"},
    "report": {"measure", "runs", "evaluation", "data"},
    "tune": {"measure", "training", "runs", "evaluation", "models", "ops", "data"},
    "bench": {"distributed", "recommend", "training", "evaluation", "models", "ops", "data"},
    "serve": {"recommend", "runs", "data"},
    "export": {"runs", "evaluation", "models", "data"},
    "cli": {
        *("serve", "export", "tune", "report", "measure", "bench", "recommend", "training"),
        *("runs", "evaluation", "models", "distributed", "ops", "data"),
    },
}
"""The rooms that each room may import; all rooms may import the modules beside them."""

BESIDE = {"_util", "errors", "host", "keywords"}

FORBIDDEN = {
    "ops": {"numpy", "duckdb", "pyarrow", "logging", "pathlib", "io"},
    "models": {"duckdb", "pyarrow", "safetensors", "logging", "pathlib", "io", "argparse"},
    "data": {"torch", "safetensors"},
}
"""Libraries that a room must not import at run time."""

DOOR = "training/strategy.py"
"""The only file below `distributed` that imports it, once, to ask for the role of this process."""

WEB = {"starlette", "uvicorn", "uvloop", "pydantic", "prometheus_client"}

HEAVY = {"torch", "duckdb", "pyarrow", "numpy", "numba", "pandas", "cyclopts", "rich"} | WEB


@dataclass(frozen=True)
class Import:
    """One imported module, and where."""

    file: Path
    line: int
    module: str
    is_typing_only: bool

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE)}:{self.line} imports {self.module}"


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports_of(file: Path) -> list[Import]:
    """Every import of a file, also inside functions; names imported from a package count."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            assert node.module is not None
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [Import(file, node.lineno, name, node in typing_only) for name in modules]
    return found


def room_of(file: Path) -> str:
    """The room of a file; empty for files beside the rooms."""
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


@cache
def all_imports() -> list[tuple[str, Import]]:
    return [(room_of(file), found) for file in sources() for found in imports_of(file)]


def test_arrows_point_one_way() -> None:
    wrong = []
    for room, found in all_imports():
        package, _, rest = found.module.partition(".")
        target = rest.partition(".")[0]
        if package != "foretaste" or not room or target in BESIDE | {"__version__", "", room}:
            continue
        is_door = target == "distributed" and str(found.file.relative_to(PACKAGE)) == DOOR
        if target not in BELOW[room] and not is_door:
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_modules_import_in_no_circle() -> None:
    names = {file: module_of(file) for file in sources()}
    graph: dict[str, set[str]] = {name: set() for name in names.values()}
    for _, found in all_imports():
        if found.is_typing_only or str(found.file.relative_to(PACKAGE)) == DOOR:
            continue
        module = found.module
        while module and module not in graph:
            module = module.rpartition(".")[0]
        # Packages re-export names, so a module may import its package.
        if module and not names[found.file].startswith(module):
            graph[names[found.file]].add(module)
    TopologicalSorter(graph).prepare()  # raises CycleError with the modules of a circle


def module_of(file: Path) -> str:
    path = file.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(path.parts).removesuffix(".__init__")


def test_the_host_is_set_by_commands_alone() -> None:
    """The other importers need it before a library is loaded."""
    importers = {
        str(found.file.relative_to(PACKAGE))
        for _, found in all_imports()
        if found.module.startswith("foretaste.host")
    }
    assert importers == {
        *("__init__.py", "__main__.py", "cli/app.py"),
        *("export/formats.py", "report/contents.py"),
    }


SETTINGS_OF_THE_PROCESS = re.compile(
    r"mallopt|setswitchinterval|gc\.(freeze|disable)|os\._exit|os\.environ(\[.*\] =|\.setdefault)"
    r"|use_deterministic_algorithms\(|set_float32_matmul_precision\("
)


def test_nothing_else_sets_the_process() -> None:
    found = {
        str(file.relative_to(PACKAGE))
        for file in sources()
        if SETTINGS_OF_THE_PROCESS.search(file.read_text(encoding="utf-8"))
    }
    assert found == {"host.py"}


def test_every_room_is_on_the_map() -> None:
    assert {room_of(file) for file in sources()} - {""} == BELOW.keys()


def test_errors_import_no_room() -> None:
    modules = {found.module for found in imports_of(PACKAGE / "errors.py")}
    own = {module for module in modules if module.startswith("foretaste")}
    # The module removes secrets from messages, and imports nothing itself.
    assert own == {"foretaste._util.formatting.without_secrets"}


def test_rooms_keep_to_their_libraries() -> None:
    wrong = [
        str(found)
        for room, found in all_imports()
        if found.module.partition(".")[0] in FORBIDDEN.get(room, set()) and not found.is_typing_only
    ]
    assert not wrong, "\n".join(wrong)


def test_ops_stand_on_torch_alone() -> None:
    libraries = {
        found.module.partition(".")[0]
        for room, found in all_imports()
        if room == "ops" and not found.is_typing_only
    }
    assert libraries - sys.stdlib_module_names <= {"torch", "triton", "foretaste"}


def test_private_parts_of_torch_are_in_one_file() -> None:
    users = {
        str(file.relative_to(PACKAGE))
        for file in sources()
        if re.search(r"\btorch(\.\w+)*\._(?!_version__)", file.read_text(encoding="utf-8"))
    }
    assert users == {"ops/torch_internals.py"}


def test_ranks_stay_at_the_door() -> None:
    rooms = {
        room for room, found in all_imports() if f"{found.module}.".startswith("torch.distributed.")
    }
    assert rooms == {"distributed"}
    below = {"models", "evaluation", "runs", "recommend", "training", "ops", "data"}
    doors = [
        found for room, found in all_imports() if room in below and "distributed" in found.module
    ]
    assert [str(found.file.relative_to(PACKAGE)) for found in doors] == [DOOR]


def modules_after(*statements: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after some statements."""
    code = "; ".join([*statements, "import sys", "print(*sys.modules)"])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_importing_foretaste_imports_nothing_heavy() -> None:
    assert not modules_after("import foretaste") & HEAVY


def test_rooms_hand_their_names_on_lazily() -> None:
    assert not modules_after(*(f"import foretaste.{room}" for room in BELOW)) & {
        "torch",
        "duckdb",
        *WEB,
    }


def test_numba_is_imported_by_the_first_fit_alone() -> None:
    """Training's settings, answering, serving and export do not need Numba."""
    modules = [
        ".".join(["foretaste", *file.relative_to(PACKAGE).with_suffix("").parts])
        for file in sources()
        if file.parent.name == "linear" and file.stem != "kernels"
    ]
    rooms = ["foretaste.serve.app", "foretaste.recommend.recommender", "foretaste.export.program"]
    assert "numba" not in modules_after(*(f"import {name}" for name in modules + rooms))
    importers = {
        str(found.file.relative_to(PACKAGE))
        for _, found in all_imports()
        if found.module.startswith("numba")
    }
    assert importers == {"models/linear/kernels.py"}


def torch_free_modules() -> list[str]:
    """The registry and every module of settings."""
    files = [*PACKAGE.rglob("config.py"), PACKAGE / "models" / "registry.py"]
    return sorted(
        ".".join(["foretaste", *file.relative_to(PACKAGE).with_suffix("").parts]) for file in files
    )


def test_settings_need_neither_torch_nor_duckdb() -> None:
    modules = torch_free_modules()
    assert {"foretaste.training.config", "foretaste.models.neumf.config"} <= set(modules)
    assert not modules_after(*(f"import {module}" for module in modules)) & {"torch", "duckdb"}


@pytest.mark.parametrize("room", ["", *BELOW])
def test_a_name_that_is_promised_exists_and_no_other_is_shown(room: str) -> None:
    """The names stay correct after all modules are loaded: a module must not hide its own name."""
    module = __import__(f"foretaste.{room}".rstrip("."), fromlist=["*"])
    names = getattr(module, "__all__", [])
    for name in names:
        assert not isinstance(getattr(module, name), type(sys)), f"{room}.{name} is a module"
    assert not names or dir(module) == sorted(names)
    with pytest.raises(AttributeError):
        _ = module.predict


@cache
def calls_in_tests() -> list[tuple[Path, ast.Call]]:
    return [
        (file, node)
        for file in Path(__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]


def test_tests_replace_public_names_alone() -> None:
    """A name of ours that a test replaces belongs to the design, so it is public."""
    for file, call in calls_in_tests():
        match call:
            case ast.Call(
                ast.Attribute(attr="setattr" | "delattr"),
                [ast.Constant(str(name)), *_] | [_, ast.Constant(str(name)), *_],
            ):
                is_private = re.search(r"(^|\.)_(?!_)", name)
                assert not is_private or "torch." in ast.unparse(call), (file, call.lineno, name)


def test_sentences_of_our_errors_are_stored() -> None:
    """`raises` of tests/messages.py expects an error by what it names, not by its sentence."""
    for file, call in calls_in_tests():
        match call:
            case ast.Call(
                ast.Attribute(attr="raises"), [kind, *_], [ast.keyword("match", pattern)]
            ):
                is_ours = vars(errors).keys() & {*re.findall(r"\w+", ast.unparse(kind))}
                sentence = re.search(r"[A-Za-z]+( [a-z]+){2}", ast.unparse(pattern))
                assert not (is_ours and sentence), (file, call.lineno, sentence)
