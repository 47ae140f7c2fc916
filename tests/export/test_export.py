"""Exports one by one: refusals, places of files, and the client of the documentation."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

import foretaste
from foretaste.data import Dataset
from foretaste.errors import SettingError, UnsupportedError
from foretaste.export import export_run, formats, parity
from foretaste.export.program import ListProgram
from foretaste.models.ials.scorer import FoldInScorer
from foretaste.models.scorer import item_chunks
from foretaste.ops.least_squares import FixedVectors, solve_rows
from foretaste.recommend import load
from foretaste.runs import Run
from foretaste.runs.run import load_model
from foretaste.testing import make_board
from foretaste.training import Callback
from tests.cli.conftest import call
from tests.docs.pages import page
from tests.messages import raises
from tests.ops.cases import histories_of
from tests.recommend.conftest import VAE
from tests.runs.tiny import make_dataset, make_run

CLIENT = next(
    block.text
    for block in page("recommending.md").blocks
    if block.language == "python" and block.title is None
)
"""The program's client."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_dataset(tmp_path_factory.mktemp("shop"), titles=True)


@pytest.fixture(scope="module")
def run(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "vae", dataset, "vae", **VAE)


@pytest.fixture(scope="module")
def exported(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(run, tmp_path_factory.mktemp("out") / "out", format="torch", k=2).path


@pytest.fixture
def output(exported: Path, tmp_path: Path) -> Path:
    """A copy of an export of two items each."""
    return shutil.copytree(exported, tmp_path / "out")


def with_places(loaded: formats.Call, places: Sequence[int]) -> formats.Call:
    def swapped(inputs: formats.Inputs) -> Any:
        item_index, score = loaded(inputs)
        return item_index[:, places], score[:, places]

    return swapped


def test_other_lists_are_refused_and_nothing_is_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = formats.load
    monkeypatch.setattr(
        "foretaste.export.exporting.load", lambda *given: with_places(plain(*given), [1, 0, 2])
    )
    with raises(UnsupportedError, "vae", 63):
        export_run(run, tmp_path / "out", format="torch", k=3)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(parity, "NEAR", 1.0)  # every difference is a near tie
    found = export_run(run, tmp_path / "out", format="torch", k=3).parity
    assert found.different == 0
    assert found.near_ties >= found.num_lists - 1  # no item of the catalogue is left


def test_only_an_export_is_replaced(run: Run, output: Path) -> None:
    with raises(SettingError, output, "--overwrite"):
        export_run(run, output, format="torch")
    assert export_run(run, output, format="torch", k=3, overwrite=True).k == 3
    assert json.loads((output / "export.json").read_text())["k"] == 3
    (output / "client.py").touch()
    with raises(SettingError, output, "client.py"):
        export_run(run, output, format="torch", overwrite=True)
    (output / "client.py").unlink()
    for content in ("{}", "[", '{"format": "another", "files": {}}'):
        (output / "export.json").write_text(content)
        with raises(SettingError, output, "export.json"):
            export_run(run, output, format="torch", overwrite=True)
    (output / "export.json").unlink()
    with raises(SettingError, output, "items.parquet"):
        export_run(run, output, format="torch", overwrite=True)
    assert (output / "model.pt2").is_file()


def test_an_export_of_another_format_is_not_replaced(run: Run, output: Path) -> None:
    signature = output / "export.json"
    text = signature.read_text().replace('"format_version": 1', '"format_version": 2')
    signature.write_text(text)
    with raises(SettingError, output, 2, 1, "update foretaste"):
        export_run(run, output, format="torch", overwrite=True)
    assert signature.read_text() == text


def test_large_weights_have_a_file_of_their_own(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "MOST_BYTES_INSIDE", 1000)
    made = export_run(run, tmp_path / "out")
    assert (made.path / "model.onnx.data").stat().st_size > made.program.stat().st_size
    assert made.parity.different == 0
    moved = made.path.rename(tmp_path / "moved")
    assert formats.load("onnx", moved)


def test_a_blend_with_neumf_takes_users(dataset: Dataset, tmp_path: Path) -> None:
    runs = [
        foretaste.train(name, dataset, run=tmp_path / name, factors=4, epochs=1, device="cpu")
        for name in ("gmf", "ials")
    ]
    blend = foretaste.blend(runs, weights=[0.5, 0.5], run=tmp_path / "blend", device="cpu")
    made = export_run(blend.path, tmp_path / "out", format="torch")
    assert made.inputs == ("history", "history_length", "user_index")
    assert made.parity.different == 0
    alone = foretaste.blend(runs, weights=[0.0, 1.0], run=tmp_path / "alone", device="cpu")
    assert len(ListProgram(load_model(alone, "cpu"), 10).inputs) == 2


def test_a_quiet_command_says_where_the_program_is(run: Run, tmp_path: Path) -> None:
    line = ["export", run.path, "--format", "torch", "-k", 10_000, "--output", tmp_path / "out"]
    done = call(*line, "--quiet")
    assert (done.status, done.out) == (0, f"{tmp_path}/out/model.pt2\n")
    # A list is no longer than the catalogue.
    assert json.loads((tmp_path / "out" / "export.json").read_text())["k"] == run.num_items


def test_the_client_of_the_page(run: Run, tmp_path: Path) -> None:
    export_run(run, tmp_path / "exported" / "vae")
    history = [int(run.items.ids()[3]), int(run.items.ids()[7]), 424242]
    asked = f"import json; print(json.dumps(recommend([{history}, []])))"
    # With None in their place, importing them fails.
    code = f"import sys; sys.modules.update(torch=None, foretaste=None)\n{CLIENT}\n{asked}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, check=True, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    answers = load(run, "cpu").recommend_for([history, []])
    for row, answer in zip(found, answers, strict=True):
        assert [(one[0], one[1]) for one in row] == [(i.item_id, i.title) for i in answer.items]


def test_the_client_of_the_page_takes_text_ids_without_titles(tmp_path: Path) -> None:
    pairs = [(user, "abcdefgh"[(user + step) % 8]) for user in range(16) for step in (0, 1, 3)]
    rows = pa.table({"user_id": [u for u, _ in pairs], "item_id": [i for _, i in pairs]})
    shop = foretaste.prepare(rows, tmp_path / "shop")
    run = foretaste.train("vae", shop, epochs=1, run=tmp_path / "run", device="cpu")
    export_run(run, tmp_path / "exported" / "vae", k=8)
    namespace: dict[str, Any] = {}
    with contextlib.chdir(tmp_path):
        # The call of the page asks about a shop's numbers.
        exec(CLIENT[: CLIENT.rindex("\n\n\n")], namespace)
    recommend = namespace["recommend"]
    assert recommend([]) == []
    for asked in ([[]], [[], ["a"]], [["a", "none"]]):
        answers = load(run, "cpu").recommend_for(asked)
        found = [[(item_id, title) for item_id, title, _ in row] for row in recommend(asked)]
        assert found == [[(i.item_id, i.title) for i in answer.items] for answer in answers]


@pytest.mark.parametrize(("factors", "unobserved_weight"), [(3, 0.9), (16, 0.01), (16, 1e-4)])
def test_an_exported_ials_folds_in_like_the_model(
    factors: int, unobserved_weight: float, generator: torch.Generator
) -> None:
    vector_ID = torch.randn(40, factors, generator=generator)
    items = FixedVectors.of(vector_ID)
    scorer = FoldInScorer(items, unobserved_weight, 0.01)
    histories = histories_of([[], [5], [1, 2, 3], list(range(40)), [0, 39, 7, 11]], 40)
    ridge_B = 0.01 * (histories.lengths().double() + unobserved_weight * 40)
    solution_BD = solve_rows(items, histories, unobserved_weight, ridge_B)
    found_BI = scorer(histories.to_dense(), None)
    torch.testing.assert_close(found_BI, solution_BD @ vector_ID.T, rtol=1e-4, atol=1e-4)


def test_ials_takes_more_steps_the_less_is_unobserved(generator: torch.Generator) -> None:
    items = FixedVectors.of(torch.randn(400, 200, generator=generator))
    few, more = (FoldInScorer(items, weight, 0.01).num_steps for weight in (0.5, 0.05))
    assert 5 < few < more < 100
    with raises(UnsupportedError, 400, 256, "--unobserved-weight", "--regularization"):
        FoldInScorer(items, 1e-6, 0.01)


@pytest.fixture(scope="module")
def blend_of_kinds(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A blend of models that read orders and of one that reads sets."""
    root = tmp_path_factory.mktemp("blend")
    data = make_board(root / "board")
    members = [
        foretaste.train(model, data, run=root / model, callback=Callback(), **settings)
        for model, settings in (
            ("slist", {"window": 3}),
            ("sasrec", {"max_length": 5, "factors": 8, "blocks": 1, "epochs": 3}),
            ("ease", {}),
        )
    ]
    return foretaste.blend(members, weights=[0.4, 0.3, 0.3], run=root / "blend")


@pytest.mark.parametrize("format", ["onnx", "torch"])
def test_a_blend_hands_sets_and_orders_to_its_models(
    blend_of_kinds: Run, tmp_path: Path, format: formats.Format
) -> None:
    found = export_run(blend_of_kinds, tmp_path / "out", format=format, k=3).parity
    assert found.different == 0
    assert found.equal >= 0.9 * found.num_lists


def test_chunks_cover_the_catalogue() -> None:
    for num_items, width in ((1, 1), (1000, 256), (5000, 256), (200_000, 256), (7, 1 << 20)):
        chunks = list(item_chunks(num_items, width))
        covered = [item for chunk in chunks for item in range(num_items)[chunk]]
        assert covered == list(range(num_items))
        assert len(chunks) <= 64 or num_items < 64
    assert len(list(item_chunks(5000, 256))) == 5
