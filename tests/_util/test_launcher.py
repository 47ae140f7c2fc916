"""Launchers are found by their variables: torchrun is supported, a single process refuses
others."""

from __future__ import annotations

import pytest

from foretaste._util.system import Launch, launch
from foretaste.cli.app import main
from foretaste.errors import RankError
from tests.messages import Named, raises, says

TORCHRUN = {"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
OTHERS = {
    "mpirun of Open MPI": {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_RANK": "{rank}"},
    "mpirun of MPICH": {"PMI_SIZE": "8", "PMI_RANK": "{rank}"},
    "horovodrun": {"HOROVOD_SIZE": "8", "HOROVOD_RANK": "{rank}"},
    "srun": {"SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "{rank}", "SLURM_NTASKS": "8"},
}


def set_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int = 0
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(rank=rank))


def test_torchrun_gives_the_rank_and_the_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launch() == Launch(0, 1, 0, 1)
    set_variables(monkeypatch, TORCHRUN)
    assert launch() == Launch(2, 4, 0, 2)


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"RANK": "0"}, ("RANK", 0, "WORLD_SIZE", "torchrun", "RANK")),
        ({"WORLD_SIZE": "2"}, ("WORLD_SIZE", 2, "RANK", "torchrun", "WORLD_SIZE")),
        ({"RANK": "2", "WORLD_SIZE": "2"}, ("RANK", 2, "WORLD_SIZE", 2)),
        ({"RANK": "one", "WORLD_SIZE": "2"}, ("RANK", "one")),
    ],
)
def test_an_environment_that_is_not_whole_is_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], named: Named
) -> None:
    set_variables(monkeypatch, variables)
    with raises(RankError, *named):
        launch()


def test_ranks_without_an_address_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, TORCHRUN)
    with raises(RankError, "WORLD_SIZE", 4, "MASTER_ADDR", "MASTER_PORT", "torchrun"):
        _ = launch().address


@pytest.mark.parametrize("variables", OTHERS.values(), ids=OTHERS)
def test_another_launcher_is_refused_by_its_first_process(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variables: dict[str, str]
) -> None:
    for rank, messages in ((0, 1), (3, 0)):
        set_variables(monkeypatch, variables, rank)
        with pytest.raises(SystemExit) as ended:
            main(["train", "vae", "data"])
        assert ended.value.code == 2
        errors = capfd.readouterr().err
        assert errors.count("error:") == messages
        command = "torchrun --nproc-per-node N -m -- foretaste ..."
        assert (command in errors) == (rank == 0)


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_NTASKS": "8", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},
        {**TORCHRUN, **OTHERS["srun"]},
    ],
    ids=["shell of sbatch", "srun of one", "mpirun of one", "torchrun within srun"],
)
def test_launchers_of_one_process_or_of_torchrun_are_accepted(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    set_variables(monkeypatch, variables)
    assert launch().size == (4 if "RANK" in variables else 1)


@pytest.mark.parametrize("verb", ["prepare", "recommend", "bench recommend"])
def test_a_verb_of_one_process_is_refused_among_ranks(
    verb: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    set_variables(monkeypatch, TORCHRUN | {"RANK": "0"})
    monkeypatch.setattr("foretaste.distributed.launch.agree_on_report", lambda error, started: None)
    with pytest.raises(SystemExit) as ended:
        main([*verb.split(), "neumf"])
    assert ended.value.code == 2
    says(capfd.readouterr().err, f"foretaste {verb}", "torchrun", 4)
