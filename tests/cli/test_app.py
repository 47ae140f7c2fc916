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
from tests.cli.conftest import Done, Foretaste, call, refused
from tests.messages import Named, says

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


MISTYPED: dict[str, Named] = {
    "train vae dta": ("dta", "data"),
    "train --like runs/vea data": ("runs/vea", "runs/vae"),
    "train --resume runs/vea": ("runs/vea", "runs/vae"),
    "compare runs/vae runs/gmff": ("runs/gmff", "runs/gmf"),
    "similar runs/vea --item 1": ("runs/vea", "runs/vae"),
    "recommend runs/vae --users-file no.txt": ("no.txt",),
    "recommend runs/vae --histories-file no.csv": ("no.csv",),
    "recommend runs/vae --user 1 --candidates @no.txt": ("no.txt",),
    "recommend runs/vae --user 1 --output no/a.csv": ("no/a.csv", "directory no"),
    "evaluate runs/vae --dataset nowhere": ("nowhere", "foretaste prepare"),
    "train nuemf data": ("nuemf", "neumf", "foretaste train --help"),
    "train vae data --run runs/vae": ("runs/vae", "--overwrite"),
    "train vae data --from nowhere": ("nowhere",),
    "train neumf data --pretrained-gmf no --pretrained-mlp no": ("no",),
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
    for said, named in zip(done.stderr.split("---\n"), MISTYPED.values(), strict=False):
        says(said, *named)


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
    ("line", "named"),
    [
        ("trian", ("trian", "train")),
        ("resume runs/mine", ("resume", "foretaste train --resume RUN")),
        ("train neumf data --lr 3", ("--lr", "--learning-rate")),
        ("train ease data --runs-root r", ("--runs-root", "--run")),
        ("blend a b --output r", ("--output", "--run")),
        ("recommend r --exclude-file f", ("--exclude-file", "--exclude")),
        ("compare a b --metric hr@5", ("--metric", "--metrics")),
        ("train ratings.csv", ("ratings.csv", "ease", "neumf", "popularity")),
        ("tune ratings.csv", ("ratings.csv", "recvae, ials, ease")),
        ("train ease data --seed 3", ("--seed", "neumf", "sasrec")),
        ("train ials data --batch-size 5", ("--batch-size", "recvae, sasrec")),
        ("recommend runs/vae --output", ("--output",)),
        ("prepare a.csv --user who", ("--user", "--user-column", "--user-id-type")),
        ("train vae data --loss-sclae 3", ("--loss-sclae", "--loss-scale")),
        ("train gmf a.csv --encoding latin1", ("--encoding", "prepare SOURCES --encoding ...")),
        (
            "tune gmf a.csv --user_column who",
            ("--user-column", "prepare SOURCES --user-column ..."),
        ),
        ("train neumf --layers 64 32 data", ("DATASET",)),
        ("recommend runs/vae --user -HIwk8B", ("--user", "--user=-x")),
        ("recommend runs/vae --user u2 -HIwk8B", ("-HIwk8B", "--user=-x")),
        ("recommend runs/vae --exclude --top", ("--exclude", "--user=-x")),
        ("similar runs/vae --item -FLnsWA", ("--item", "--user=-x")),
        ("similar runs/vae 1", (1,)),
        ("train neumf data --factors many", ("--factors", "many", "a whole number")),
        ("train neumf data --epochs 3.5", ("--epochs", 3.5, "a whole number or auto")),
        ("train gmf data -l fast", ("-l", "fast", "a number or auto")),
        (
            "train ease data --neighbors few",
            ("--neighbors", "few", "a whole number, all or auto"),
        ),
        ("recommend runs/vae --users 7", ("--users", "--user", "--users-file")),
        ("recommend r --item 50", ("--item", "foretaste similar", "--history")),
        ("similar runs/vae --user 7", ("--user", "foretaste recommend")),
        ("similar runs/vae --ids 7", ("--ids",)),
        (
            "train slist a.csv --feature brand",
            ("--feature", "--features", "--feature-power", "--feature-weight"),
        ),
        (
            "train neumf data --batch-layout rows",
            ("rows", "--batch-layout", "grouped", "shuffled"),
        ),
        ("train gmf absent.csv --epochs 0", ("epochs", 0, 1)),
        ("tune gmf absent.csv --factors -3", ("factors", -3, 1)),
        ("train vae data --device warp", ("device", "warp", "auto, cpu, cuda or cuda:N")),
        ("train vae data --candidates some", ("candidates", "some", "full, new, fixed, sampled-N")),
        ("train vae data --select-by luck", ("luck", "hr, ndcg", "ndcg@10")),
        ("train vae data --protocol none", ("data", "protocol")),
        ("prepare ratings.csv --output data", ("data", "--overwrite")),
        (
            "prepare ratings.csv --user-column userid",
            ("ratings.csv", "userid", "--user-column", "user_id", "user_id"),
        ),
        ("evaluate data", ("data", "foretaste train MODEL data")),
        ("evaluate runs", ("runs", "config.json", "runs/gmf, runs/popularity, runs/vae")),
        ("recommend ratings.csv --user 1", ("ratings.csv", "foretaste train MODEL ratings.csv")),
        ("recommend runs/vae --history 1,5", ("1,5", "--history 1 5")),
        ("evaluate absent -k 0", ("k", 0, 1)),
        ("compare runs/vae -m ndcg@10 runs/gmf", (1,)),
        ("recommend runs/vae", ("--user ID", "--histories-file FILE", "none of them")),
        ("recommend runs/vae --user 1 --history 2", ("--all", "--user and --history")),
        ("recommend runs/vae --all", ("--all", "--output FILE")),
        (
            "recommend runs/vae --user 1 --output a.csv --format csv",
            ("--format", "--output FILE"),
        ),
        (
            "recommend runs/vae --histories-file items.csv",
            ("items.csv", "user_id", "item_id", "title", "--user-column"),
        ),
        ("recommend runs/vae --user 1 --output a.txt", ("a.txt", ".parquet, .csv, .jsonl")),
        ("recommend runs/vae --user 1 -k 0", ("k", 0, 1)),
        ("similar runs/popularity --item 1", ("popularity",)),
        ("similar runs/vae", ("--item ID", "--all", "neither")),
        ("evaluate runs/vae -k 5 --metrics hr@10", ("--metrics", "--k")),
        ("evaluate runs/vae --metrics ndgc@5", ("ndgc@5", "hr, ndcg", "ndcg@5")),
    ],
)
def test_mistakes_are_named(foretaste: Foretaste, line: str, named: Named) -> None:
    refused(foretaste(line), *named)


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
    says(err, re.compile("interrupted .*?(?=;)"), f"foretaste train --resume {tmp_path / 'run'}\n")
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
    refused(call("train", "vae", "data"))


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
