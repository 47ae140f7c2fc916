"""The walls between rooms, what importing costs, the public names, and how long things may be."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import foretaste

PACKAGE = Path(foretaste.__file__).parent

BELOW = {
    "_util": set(),
    "ops": set(),
    "launch": {"ops"},
    "data": set(),
    "models": {"ops"},
    "evaluation": {"models", "ops", "data"},
    "runs": {"evaluation", "models", "ops", "data"},
    "training": {"runs", "evaluation", "models", "launch", "ops", "data"},
    "recommend": {"runs", "evaluation", "models", "launch", "ops", "data"},
    "report": {"recommend", "training", "runs", "evaluation", "models", "launch", "ops", "data"},
    "tune": {"report", "training", "runs", "evaluation", "models", "ops", "data"},
    "bench": {"recommend", "training", "runs", "evaluation", "models", "launch", "ops", "data"},
    "serve": {"recommend", "runs", "evaluation", "models", "launch", "ops", "data"},
    "export": {"runs", "evaluation", "models", "ops", "data"},
    "cli": {
        *("serve", "export", "tune", "report", "bench", "recommend", "training"),
        *("runs", "evaluation", "models", "launch", "ops", "data"),
    },
}
"""What each room may import of the others; all may import what lies beside them."""

BESIDE = {"_util", "errors"}

FORBIDDEN = {
    "ops": {"numpy", "duckdb", "pyarrow", "logging", "pathlib", "io"},
    "models": {"duckdb", "pyarrow", "safetensors", "logging", "pathlib", "io", "argparse"},
    "data": {"torch", "safetensors"},
}
"""Libraries that have no business in a room, imported at run time."""

PUBLIC_NAMES = [
    "Answer",
    "DAEConfig",
    "Dataset",
    "EaseConfig",
    "Evaluation",
    "EvaluationConfig",
    "ForetasteError",
    "GMFConfig",
    "GivenSplit",
    "IALSConfig",
    "ItemKNNConfig",
    "LogConfig",
    "MLPConfig",
    "NeuMFConfig",
    "PrepareConfig",
    "PretrainingConfig",
    "RP3betaConfig",
    "RecVAEConfig",
    "Recommender",
    "Run",
    "SamplingConfig",
    "TrainingConfig",
    "VAEConfig",
    "__version__",
    "blend",
    "compare_runs",
    "compete",
    "evaluate_run",
    "export_run",
    "fit",
    "load",
    "open_dataset",
    "prepare",
    "report_runs",
    "resume",
    "train",
    "tune_model",
]

RELATIVE = re.compile(r"(What|Whatever|Whether|Who|Whom|Whose|How|Where|Which)\b")
"""Words that begin a docstring in the place of the object it is about."""

DIALECT = re.compile(
    r"\b(told|tell|tells|telling|Several|Judging|judge|judged|Shelf|shelf|Given|Asked|Made|aside|"
    r"opponent|powers|places|wording|odd_ids|take_up|carry_out)\b"
)
"""Words for which the field has others, such as callback, validation, item filter, ranks."""

MAX_CALLED_ONCE = 10
"""Private functions that are called once, for every thousand lines of code."""

MAX_SMALL_MODULES = 1
MAX_RELATIVE = 0
MAX_DIALECT = 2
MAX_IMPORTED = 105

WEB = {"starlette", "uvicorn", "uvloop", "pydantic", "prometheus_client"}

HEAVY = {"torch", "duckdb", "pyarrow", "numpy", "pandas", "cyclopts", "rich"} | WEB


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
    """Every import of a file, those within functions too; names imported from a package count."""
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
    """The room a file lies in; empty for files beside the rooms."""
    parts = file.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def all_imports() -> Iterator[tuple[str, Import]]:
    for file in sources():
        for found in imports_of(file):
            yield room_of(file), found


def test_arrows_point_one_way() -> None:
    wrong = []
    for room, found in all_imports():
        package, _, rest = found.module.partition(".")
        target = rest.partition(".")[0]
        if package != "foretaste" or not room or target in BESIDE | {"__version__", "", room}:
            continue
        if target not in BELOW[room]:
            wrong.append(str(found))
    assert not wrong, "\n".join(wrong)


def test_every_room_is_on_the_map() -> None:
    assert {room_of(file) for file in sources()} - {""} == BELOW.keys()


def test_errors_import_no_room() -> None:
    modules = {found.module for found in imports_of(PACKAGE / "errors.py")}
    assert not any(module.startswith("foretaste") for module in modules)


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


@pytest.mark.parametrize("room", ["models", "ops"])
def test_models_and_ops_open_no_files_and_print_nothing(room: str) -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)}:{node.lineno} calls {node.func.id}"
        for file in sorted((PACKAGE / room).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "print", "input"}
    ]
    assert not wrong, "\n".join(wrong)


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


def test_baselines_hand_their_settings_over_without_torch() -> None:
    """The command line shows every model's settings; help must not wait for torch."""
    names = "from foretaste.models.registry import MODEL_NAMES, config_class"
    loaded = modules_after(names, "[config_class(name) for name in MODEL_NAMES]")
    assert not loaded & {"torch", "duckdb"}


def test_public_names() -> None:
    assert sorted(foretaste.__all__) == PUBLIC_NAMES
    assert dir(foretaste) == PUBLIC_NAMES
    for name in PUBLIC_NAMES:
        assert getattr(foretaste, name) is not None
    with pytest.raises(AttributeError, match="module 'foretaste' has no attribute 'predict'"):
        _ = foretaste.predict


@pytest.mark.parametrize("room", BELOW)
def test_every_name_a_room_promises_exists(room: str) -> None:
    """Also once its modules are loaded: a module must not hide the name it provides."""
    module = __import__(f"foretaste.{room}", fromlist=["*"])
    for name in getattr(module, "__all__", []):
        assert not isinstance(getattr(module, name), type(sys)), f"{room}.{name} is a module"


@dataclass(frozen=True)
class Function:
    """A function as it is written, and the number of times that its file reads its name."""

    file: Path
    name: str
    num_lines: int
    num_reads: int

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE)}:{self.name} ({self.num_lines})"


def functions_of(file: Path) -> list[Function]:
    """Every function of a file, those of one name too, with signature and docstring."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    reads = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    reads += Counter(node.attr for node in nodes if isinstance(node, ast.Attribute))
    return [
        Function(file, node.name, (node.end_lineno or 0) - node.lineno + 1, reads[node.name])
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def docstrings_of(file: Path) -> list[tuple[ast.AST, str]]:
    """Every docstring of a file and what has it."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node, text)
        for node in ast.walk(tree)
        if isinstance(node, documented) and (text := ast.get_docstring(node))
    ]


def num_code_lines(file: Path) -> int:
    """Lines with a token that is neither comment nor docstring."""
    text = file.read_text(encoding="utf-8")
    docs = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    used = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in skipped | {tokenize.ENDMARKER}
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(used - docs)


def test_the_training_loop_is_at_most_sixty_lines() -> None:
    loop = functions_of(PACKAGE / "training" / "loop.py")
    assert [function.num_lines <= 60 for function in loop if function.name == "fit"] == [True]


def test_few_functions_are_long() -> None:
    functions = [function for file in sources() for function in functions_of(file)]
    long = [function for function in functions if function.num_lines > 50]
    assert len(long) * 25 <= len(functions), "\n".join(map(str, long))


def test_few_private_functions_are_called_once() -> None:
    """Such a function must say something that its body does not."""
    once = [
        function
        for file in sources()
        for function in functions_of(file)
        if function.name.startswith("_")
        and not function.name.startswith("__")
        and function.num_reads == 1
    ]
    num_lines = sum(map(num_code_lines, sources()))
    assert len(once) * 1000 <= MAX_CALLED_ONCE * num_lines, "\n".join(map(str, once))


def test_files_are_short() -> None:
    lengths = {
        str(file.relative_to(PACKAGE)): len(file.read_text(encoding="utf-8").splitlines())
        for file in sources()
    }
    assert not {name: length for name, length in lengths.items() if length > 350}


def test_no_small_module_serves_one_other_alone() -> None:
    """The two are one, unless the docstring says that it is apart for the cost of an import."""
    importers: dict[str, set[Path]] = {}
    for file in sources():
        for found in imports_of(file):
            for name in (found.module, found.module.rpartition(".")[0]):
                importers.setdefault(name, set()).add(file)
    wrong = []
    for file in sources():
        name = ".".join(["foretaste", *file.relative_to(PACKAGE).with_suffix("").parts])
        text = file.read_text(encoding="utf-8")
        says_why = "import" in (ast.get_docstring(ast.parse(text)) or "")
        is_small = file.stem != "__init__" and len(text.splitlines()) < 40
        if is_small and not says_why and len(importers.get(name, set()) - {file}) == 1:
            wrong.append(name)
    assert len(wrong) <= MAX_SMALL_MODULES, "\n".join(wrong)


def test_docstrings_name_their_object_first() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)}:{getattr(node, 'name', '')}: {text.splitlines()[0]}"
        for file in sources()
        for node, text in docstrings_of(file)
        if RELATIVE.match(text)
    ]
    assert len(wrong) <= MAX_RELATIVE, "\n".join(wrong)


def test_names_are_those_of_the_field() -> None:
    wrong = [
        f"{file.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for file in sources()
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1)
        if DIALECT.search(line)
    ]
    assert len(wrong) <= MAX_DIALECT, "\n".join(wrong)


def test_training_a_neumf_imports_few_modules(tmp_path: Path) -> None:
    rows = "".join(f"{n % 20},{n % 13},{n}\n" for n in range(200))
    (tmp_path / "ratings.csv").write_text("user_id,item_id,timestamp\n" + rows)
    code = (
        "import sys; from foretaste.cli.app import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    foretaste.prepare(tmp_path / "ratings.csv", tmp_path / "data")
    line = "train neumf data --factors 2 --layers 4 2 --epochs 1 --device cpu --run run"
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()],
        cwd=tmp_path, check=True, capture_output=True, text=True,
        env={"PYTHONPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    own = {name for name in done.stderr.split() if name.startswith("foretaste.")}
    assert 40 < len(own) <= MAX_IMPORTED, sorted(own)
