"""The front door: help, mistakes, interrupts, and the cost of starting."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import foretaste as package
from foretaste.cli import app as front
from tests.cli.conftest import Done, Foretaste, call

VERBS = [word for word in front.app if word.isalpha()]


def python(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=cwd
    )


def test_help_lists_the_verbs() -> None:
    done = call("--help")
    assert done.status == 0
    assert re.findall("^│ ([a-z]+) ", done.out, re.MULTILINE) == VERBS


def test_nothing_given_is_help() -> None:
    assert call().out == call("--help").out


def test_version_is_printed() -> None:
    assert call("--version").out.strip() == package.__version__


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str) -> None:
    done = call(verb, "--help")
    assert done.status == 0
    assert f"Usage: foretaste {verb}" in done.text
    assert done.err == ""


def test_help_and_a_list_of_runs_wait_for_nothing_heavy(model_shop: Path) -> None:
    code = (
        "from foretaste.cli.app import main\n"
        "for line in ('', 'train', 'train ease', 'demo', 'recommend', 'similar'):\n"
        "    main([*line.split(), '--help'])\n"
        "main(['runs'])\n"
        "import sys; print(*sys.modules, file=sys.stderr)"
    )
    done = python("-c", code, cwd=model_shop)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert done.returncode == 0, done.stderr
    assert "cyclopts" in loaded
    assert not loaded & {"torch", "duckdb", "pyarrow", "numpy"}


MISTYPED = {
    "train vae dta": "; did you mean data?",
    "train --like runs/vea data": "; did you mean runs/vae?",
    "train --resume runs/vea": "; did you mean runs/vae?",
    "compare runs/vae runs/gmff": "; did you mean runs/gmf?",
    "similar runs/vea --item 1": "; did you mean runs/vae?",
    "recommend runs/vae --users-file no.txt": "no.txt: there is no such file",
    "recommend runs/vae --histories-file no.csv": "no.csv: there is no such file",
    "recommend runs/vae --user 1 --candidates @no.txt": "no.txt: there is no such file",
    "recommend runs/vae --user 1 --output no/a.csv": "there is no directory no",
    "evaluate runs/vae --dataset nowhere": "nowhere: is not a directory",
    "train nuemf data": 'Did you mean "neumf"?',
    "train vae data --run runs/vae": "runs/vae exists already",
    "train vae data --from nowhere": "nowhere is not a run",
    "train neumf data --pretrained-gmf no --pretrained-mlp no": "no is not a run",
}


def test_mistyped_names_are_named_before_torch_is_imported(shop: Path) -> None:
    code = (
        "import sys\n"
        "from foretaste.cli.app import main\n"
        f"for line in {[*MISTYPED]!r}:\n"
        "    try: main(line.split())\n"
        "    except SystemExit as exit: print(exit.code, *{'torch', 'pandas'} & {*sys.modules})\n"
        "    print('---', file=sys.stderr)"
    )
    done = python("-c", code, cwd=shop)
    assert done.stdout == "2\n" * len(MISTYPED)
    for said, expected in zip(done.stderr.split("---\n"), MISTYPED.values(), strict=False):
        assert expected in said


LONGEST_PAGE = {"neumf": 152, "vae": 139, "ease": 89, "popularity": 49}


@pytest.mark.parametrize("model", LONGEST_PAGE)
def test_a_model_is_explained_in_few_lines_what_is_used_most_first(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = call("train", model, "--help").out
    assert f"Usage: foretaste train {model} [OPTIONS] DATASET" in page
    assert len(page.splitlines()) <= LONGEST_PAGE[model]
    groups = re.findall("^╭─ (.+?) ─", page, re.MULTILINE)
    order = ["Arguments", "Settings", "More settings", "Raw files", "Rarely needed"]
    assert groups == [group for group in order if group in groups]
    first = page.partition("─ Settings ─")[2].partition("─ More settings ─")[0]
    assert len(re.findall("^│ --", first, re.MULTILINE)) <= 10
    if model in ("neumf", "vae"):
        assert re.findall("^│ (--[a-z0-9-]+)", page, re.MULTILINE)[:3] == [
            *("--epochs", "--batch-size", "--learning-rate"),
        ]
        assert page.index("--patience") < page.index("--dropout") < page.index("--device")


def test_a_default_is_shown_like_a_user_types_it() -> None:
    assert "[default: 256 256 128 64]" in call("train", "neumf", "--help").text
    page = call("train", "gmf", "--help").text
    assert "--negatives -n INT|auto" in page
    assert "[choices: auto]" not in page


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("trian", 'Did you mean "train"?'),
        ("resume runs/mine", "Say foretaste train --resume RUN."),
        ("train neumf data --lr 3", "Unknown option: --lr. Did you mean --learning-rate?"),
        ("train ease data --runs-root r", "Unknown option: --runs-root. Did you mean --run?"),
        ("blend a b --output r", "Unknown option: --output. Did you mean --run?"),
        ("recommend r --exclude-file f", "Unknown option: --exclude-file. Did you mean --exclude?"),
        ("compare a b --metric hr@5", "Unknown option: --metric. Did you mean --metrics?"),
        ("train ials data --lr 3", "Unknown option: --lr. Did"),
        ("train ratings.csv", "Name a model first, such as ease: neumf, "),
        ("tune ratings.csv", ", recvae, ials, ease, "),
        ("train ease data --seed 3", "Unknown option: --seed, which is for neumf, "),
        ("train ials data --batch-size 5", "Unknown option: --batch-size, which is for neumf, "),
        ("recommend runs/vae --output", "--output needs a value.\nSee"),
        ("prepare a.csv --user who", "Did you mean --user-column or --user-id-type?"),
        ("train vae data --weight-column x", "foretaste prepare SOURCES --weight-column ..."),
        ("train vae data --loss-sclae 3", "--loss-sclae. Did you mean --loss-scale?"),
        ("train neumf data --epoch 3", "Did you mean --epochs?"),
        ("train gmf a.csv --encoding latin1", "first: foretaste prepare SOURCES --encoding ..."),
        ("tune gmf a.csv --user_column who", "foretaste prepare SOURCES --user-column ..."),
        ("train neumf --layers 64 32 data", "DATASET is needed and not given; it goes before the"),
        ("train vae data --epochs", "--epochs needs a value."),
        ("recommend runs/vae --user -HIwk8B", "--user needs a value. An id that begins with -"),
        (
            "recommend runs/vae --user u2 -HIwk8B",
            "begins with - stands behind an equals sign: --user=-x.",
        ),
        ("recommend runs/vae --exclude --top", "behind an equals sign: --user=-x."),
        ("similar runs/vae --item -FLnsWA", "behind an equals sign: --user=-x."),
        ("recommend --user 5 7 runs/vae", "RUN is needed and not given; it goes"),
        ("similar runs/vae 1", "Nothing is known to do with '1'."),
        ("train neumf data --factors many", "--factors is 'many'; it must be a whole number\n"),
        ("train neumf data --epochs 3.5", "is '3.5'; it must be a whole number or auto\n"),
        ("train gmf data -l fast", "-l is 'fast'; it must be a number or auto\n"),
        ("train ease data --neighbors few", "it must be a whole number, all or auto\n"),
        ("recommend runs/vae --users 7", "Did you mean --user or --users-file?"),
        ("train slist a.csv --feature brand", "--features, --feature-power or --feature-weight?"),
        ("train neumf data --batch-layout rows", 'Choose from: "grouped", "shuffled"'),
    ],
)
def test_mistakes_on_the_command_line(foretaste: Foretaste, line: str, said: str) -> None:
    done = foretaste(line)
    assert done.status == 2
    assert done.err.startswith("error: ")
    assert said in done.err
    assert done.err.rstrip().endswith("--help.")
    assert "Traceback" not in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train gmf absent.csv --epochs 0", "epochs is 0; it must be a whole number of at least 1"),
        ("tune gmf absent.csv --factors -3", "factors is -3"),
        ("train vae data --device warp", "device is 'warp'; it must be auto, cpu"),
        ("train vae data --candidates some", "candidates is 'some'; it must be full, new, fixed"),
        ("train vae data --select-by luck", "there is no metric 'luck'"),
        ("train vae data --protocol none", "data: is prepared already"),
        ("prepare ratings.csv --output data", "holds a prepared dataset"),
        ("prepare ratings.csv --user-column userid", "; did you mean 'user_id'?"),
        ("evaluate data", "data is a dataset, not a run; train on it with foretaste train MODEL"),
        (
            "evaluate runs",
            "neither a run nor a dataset: it has no config.json; name a run in it: runs/",
        ),
        ("recommend ratings.csv --user 1", "ratings.csv is a file, not a run; train on it with"),
        ("recommend runs/vae --history 1,5", "takes ids with spaces between them: --history 1 5"),
        ("evaluate absent -k 0", "k is (0,); it must be a list of whole numbers of at least 1"),
        ("compare runs/vae -m ndcg@10 runs/gmf", "got 1; runs go before the options"),
        ("recommend runs/vae", "got none of them"),
        ("recommend runs/vae --user 1 --history 2", "got --user and --history"),
        ("recommend runs/vae --all", "--all needs --output FILE"),
        (
            "recommend runs/vae --user 1 --output a.csv --format csv",
            "--format is for printed lists",
        ),
        ("recommend runs/vae --user 1 --output a.txt", "must end in .parquet, .csv, .jsonl"),
        ("recommend runs/vae --histories-file items.csv", "looks like user_id"),
        ("recommend runs/vae --user 1 -k 0", "k is 0; it must be a whole number of at least 1"),
        ("recommend runs/vae --user 1 --user 999", "1 of 2 user ids are unknown to this run"),
        ("similar runs/vae", "name the items: --item ID, or --all for all of them; got neither"),
        (
            "evaluate runs/vae -k 5 --metrics hr@10",
            "--metrics and --k both give the length of lists",
        ),
        ("evaluate runs/vae --metrics ndgc@5", "; did you mean ndcg@5?"),
        ("similar runs/popularity --item 1", "popularity learns nothing about items"),
    ],
)
def test_mistakes_in_what_is_asked(foretaste: Foretaste, line: str, said: str) -> None:
    done = foretaste(line)
    assert done.status == 2
    assert done.err.startswith("error: ")
    assert said in done.err
    assert "Traceback" not in done.err
    assert done.out == ""


def test_a_bug_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **more: object) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(front, "app", broken)
    with pytest.raises(AssertionError, match="ours"):
        call("demo")


def test_an_interrupt_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(front, "app", interrupted)
    assert call("demo") == Done(130, "", "interrupted\n")


def read_one_line_of(*command: object, cwd: Path) -> tuple[int, str]:
    """Exit status and messages of a command after its reader leaves."""
    with subprocess.Popen(
        [sys.executable, "-m", "foretaste", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(Path(package.__file__).parents[1])},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        err = process.stderr.read()
    return process.returncode, err


def test_a_training_that_lost_its_reader_can_be_resumed(shop: Path, tmp_path: Path) -> None:
    line = ("train", "vae", "data", "--epochs", 500, "--patience", 0, "--run", tmp_path / "run")
    status, err = read_one_line_of(*line, cwd=shop)
    assert status == 141
    assert err.startswith("interrupted ")
    assert err.endswith(f"; resume with: foretaste train --resume {tmp_path / 'run'}\n")
    assert (tmp_path / "run" / "resume.safetensors").is_file()


def test_a_reader_that_goes_away_is_no_error(shop: Path) -> None:
    (shop / "all_users.txt").write_text("\n".join(map(str, [*range(1, 121)] * 4)))
    command = ("recommend", "runs/vae", "-k", 25, "--users-file", "all_users.txt")
    assert read_one_line_of(*command, cwd=shop) == (141, "")


def test_an_answer_imports_no_more_than_it_needs(shop: Path) -> None:
    line = "recommend runs/vae --user 1 -k 2"
    code = (
        f"import sys; from foretaste.cli.app import main; main({line.split()}); print(*sys.modules)"
    )
    loaded = set(python("-c", code, cwd=shop).stdout.splitlines()[-1].split())
    assert {"torch", "foretaste.recommend.recommender"} <= loaded
    unneeded = {"pandas", "duckdb", "pyarrow.dataset", "pyarrow.compute", "rich.progress", "sympy"}
    assert not loaded & {*unneeded, "torch._dynamo", "foretaste.training.trainer"}


def test_memory_that_the_system_refuses_is_one_message(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        bytearray(1 << 60)

    monkeypatch.chdir(shop)
    monkeypatch.setattr("foretaste.training.api.train_run", refuse)
    done = call("train", "vae", "data")
    assert done.status == 2
    assert done.err.startswith("error: memory was refused by the system; ask for less at once")
    assert done.err.count("\n") == 1


def test_an_interrupt_while_the_command_line_is_imported_is_no_traceback() -> None:
    code = (
        "import sys, foretaste.__main__ as entry\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'foretaste.cli.app':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "entry.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
