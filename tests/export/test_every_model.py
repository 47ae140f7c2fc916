"""Every model as a program: the program's lists equal the model's, for any number of users."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from foretaste._util.signed_json import check_signed
from foretaste.data import Dataset
from foretaste.data.ids import IdTable
from foretaste.export import Exported, export_run
from foretaste.export.formats import Call, load
from foretaste.export.program import NO_ITEM
from foretaste.recommend import Recommender
from foretaste.runs import Run
from foretaste.testing import NUM_ITEMS, NUM_USERS, Trained, make_board
from tests.models.recipes import RECIPES

K = 5
OF_USERS = ("neumf", "gmf", "mlp")
WITHOUT_SCORER = ("sasrec",)
AS_TORCH = ("neumf", "vae", "ials", "sparse ease", "sasrec", "blend")
"""A recipe of each kind of scorer for the second format."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_board(tmp_path_factory.mktemp("board") / "dataset")


@pytest.fixture(scope="module")
def trained(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Train:
    return Train(dataset, tmp_path_factory.mktemp("runs"), {})


@dataclass(frozen=True)
class Train:
    """Trains each model once."""

    dataset: Dataset
    root: Path
    made: dict[str, Trained]

    def __call__(self, name: str) -> Trained:
        if name not in self.made:
            recipe = RECIPES[name]
            run = recipe.train(self.dataset, self.root / name)
            self.made[name] = Trained(recipe, self.dataset, Run.open(run.path))
        return self.made[name]


@dataclass(frozen=True)
class Made:
    """An exported run, loaded like a client loads it."""

    trained: Trained
    exported: Exported
    call: Call

    def lists(self, histories: list[list[int]], users: list[int] | None = None) -> list[list[int]]:
        items = np.array([item for row in histories for item in row], dtype=np.int64)
        inputs = {
            "history": items,
            "history_length": np.array([len(row) for row in histories], dtype=np.int64),
        }
        if "user_index" in self.exported.inputs:
            inputs["user_index"] = np.array(users or [0] * len(histories), dtype=np.int64)
        return self.call(inputs)[0].tolist()


@pytest.fixture(scope="module", params=[one for one in RECIPES if one not in WITHOUT_SCORER])
def made(
    request: pytest.FixtureRequest, trained: Train, tmp_path_factory: pytest.TempPathFactory
) -> Made:
    run = trained(request.param)
    path = tmp_path_factory.mktemp("exported") / request.param
    exported = export_run(run.run, path, k=K)
    return Made(run, exported, load("onnx", path))


class TestEveryModel:
    def test_lists_of_a_program_equal_the_models(self, made: Made) -> None:
        parity = made.exported.parity
        assert parity.num_lists == NUM_USERS + 3
        assert parity.different == 0
        assert parity.equal >= 0.9 * parity.num_lists

    def test_lists_of_a_program_equal_recommend(self, made: Made) -> None:
        recommender = Recommender.open(made.trained.run, "cpu")
        users = [3, 11, 20]
        histories = [list(made.trained.histories[u : u + 1].item_index.tolist()) for u in users]
        if "user_index" in made.exported.inputs:
            answers = recommender.recommend(users, k=K)
        else:
            answers = recommender.recommend_for(histories, k=K)
        found = made.lists(histories, users)
        assert [len(set(row)) for row in found] == [K] * len(users)
        same = [set(row) == {item.item_id for item in answer.items}
                for row, answer in zip(found, answers, strict=True)]  # fmt: skip
        assert sum(same) >= 2

    def test_a_program_answers_any_number_of_users_and_items(self, made: Made) -> None:
        assert made.lists([]) == []
        (alone,) = made.lists([[2, 4, 6]])
        (repeated, shuffled) = made.lists([[6, 4, 2, 2], [4, 6, 2]])
        if made.trained.model.config.uses_order:
            # An item that comes twice has its last place.
            (repeated,) = made.lists([[4, 2, 6, 4, 6]])
            assert shuffled != alone
            shuffled = alone
        assert alone == repeated == shuffled
        assert not {2, 4, 6} & set(alone)

    def test_short_lists_end_in_no_item(self, made: Made) -> None:
        everything = list(range(NUM_ITEMS))
        (none, two) = made.lists([everything, everything[2:]])
        assert none == [NO_ITEM] * K
        assert sorted(two) == [NO_ITEM] * (K - 2) + [0, 1]

    def test_without_a_history_it_is_popularity_order(self, made: Made) -> None:
        count_I = made.trained.model.item_count_I.numpy()
        expected = np.lexsort((np.arange(NUM_ITEMS), -count_I))[:K]
        assert made.lists([[]]) == [expected.tolist()]

    def test_numbers_that_do_not_fit_are_refused(self, made: Made) -> None:
        with pytest.raises(Exception, match="indice"):
            made.lists([[NUM_ITEMS]])
        two = np.array([1, 2])
        inputs = {"history": two, "history_length": np.array([3])}
        if "user_index" in made.exported.inputs:
            inputs["user_index"] = np.array([0])
        with pytest.raises(Exception, match="indice"):
            made.call(inputs)

    def test_the_ids_lie_in_the_same_folder(self, made: Made) -> None:
        path, of_users = made.exported.path, "user_index" in made.exported.inputs
        assert IdTable.read(path / "items.parquet").ids() == list(range(NUM_ITEMS))
        assert (path / "users.parquet").is_file() == of_users
        assert of_users == (made.trained.recipe.model in OF_USERS)
        if of_users:
            assert IdTable.read(path / "users.parquet").ids() == list(range(NUM_USERS))

    def test_the_signature_says_what_it_takes(self, made: Made) -> None:
        text = (made.exported.path / "export.json").read_text()
        check_signed(text)
        document = json.loads(text)
        assert [each["name"] for each in document["inputs"]] == list(made.exported.inputs)
        assert document["outputs"][0]["shape"] == ["users", K]
        assert document["model"] == made.trained.recipe.model
        histories = [[2, 4, 6], [6, 4, 2]]
        (oldest_first, turned) = made.lists(histories)
        assert document["reads_order"] == made.exported.reads_order == (oldest_first != turned)
        assert document["compared"]["different"] == 0
        names = {file.name for file in made.exported.path.iterdir()}
        assert document["files"].keys() == names - {"export.json"}

    def test_no_path_of_this_machine_is_in_it(self, made: Made) -> None:
        assert b"site-packages" not in made.exported.program.read_bytes()
        graph = onnx.load(made.exported.program).graph
        assert {node.domain for node in graph.node} == {""}

    @pytest.mark.parametrize("made", AS_TORCH, indirect=True)
    def test_a_torch_program_gives_the_same_lists(self, made: Made, tmp_path: Path) -> None:
        exported = export_run(made.trained.run, tmp_path / "program", format="torch", k=K)
        assert exported.parity.different == 0
        assert exported.parity.equal >= 0.9 * exported.parity.num_lists
        with zipfile.ZipFile(exported.program) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        assert not [name for name, content in contents.items() if b"site-packages" in content]
        configs = [json.loads(text) for name, text in contents.items() if "_config.json" in name]
        kept = [each for config in configs for each in config["config"].values()]
        assert kept
        assert not [each for each in kept if each["use_pickle"]]
        assert [text for name, text in contents.items() if "sample_inputs" in name] == [b""]
        inputs = {name: np.array([1]) for name in exported.inputs}
        program = torch.export.load(exported.program).module()
        found = program(*map(torch.from_numpy, inputs.values()))
        assert not [one for one in found if one.requires_grad]  # outside of no_grad, too
        torch_made = Made(made.trained, exported, load("torch", exported.path))
        for histories in ([], [[]], [[2, 4, 6]], [[], [1]]):
            assert torch_made.lists(histories) == made.lists(histories)
