"""If a rank is killed, stopped, missing, different or failing, all ranks end with one message."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import Any

import pytest
import torch
import torch.distributed as dist

import foretaste
from foretaste.data import Dataset
from foretaste.distributed.checkpoint import SharedCheckpoints
from foretaste.distributed.launch import _TIMEOUT_S, TIMEOUT, join_ranks
from foretaste.errors import RunError
from foretaste.models.base import FitProgress
from foretaste.models.linear.ease import Ease
from foretaste.ops.histories import HistoryTensors
from foretaste.runs import Run
from foretaste.training.state import TrainingState
from tests.launched import Launched, launched
from tests.messages import says
from tests.training.trainings import numbers_of, weights_of

MODEL = "vae --hidden 12 --latent 4 --learning-rate 0.01 --batch-size 16 --eval-every 1"
ENDLESS = f"{MODEL} --epochs 100000 --patience 0 --checkpoint-every-s 1000"
SHORT = f"{MODEL} --epochs 8 --patience 0 --device cpu"
LOST = "another rank ended or did not answer in time, so all end"


def wait_for_file(name: str) -> None:
    while not Path(name).exists():
        time.sleep(0.01)


def waiting(rank: int) -> None:
    """Let an update wait for its signal, so that the signal comes before the end."""
    count, update = TrainingState.count, int(os.environ["WAITS_AT"])

    def counted(self: TrainingState, loss: torch.Tensor, num_samples: int) -> None:
        count(self, loss, num_samples)
        if self.global_step == update:
            Path(f"update-{update}-{rank}").write_text("now")
            wait_for_file(f"signalled-{update}")

    TrainingState.count = counted  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def whole(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A short training by two ranks that nobody interrupted."""
    place = tmp_path_factory.mktemp("whole")
    with launched(2, f"train {SHORT} {dataset.path} --run run", place) as ranks:
        assert ranks.statuses() == [0, 0]
    assert (place / "rank-1.stdout").read_text() == (place / "rank-1.stderr").read_text() == ""
    return Run.open(place / "run")


def wait_for_epochs(ranks: Launched) -> None:
    ranks.wait_for(ranks.directory / "run" / "metrics.jsonl", '"event": "epoch"')


def the_error(ranks: Launched) -> str:
    (line,) = ranks.errors()
    return line


def the_message(ranks: Launched) -> str:
    """The error without the number of the rank that printed it."""
    return re.sub(r"^error: (rank \d+: )?", "", the_error(ranks))


def test_a_rank_that_is_killed_ends_the_others(dataset: Dataset, tmp_path: Path) -> None:
    """The first rank is killed here; a later test kills another one."""
    with launched(3, f"train {ENDLESS} {dataset.path} --run run", tmp_path) as ranks:
        wait_for_epochs(ranks)
        ranks.send(0, signal.SIGKILL)
        assert ranks.statuses() == [-signal.SIGKILL, 2, 2]
    assert LOST in the_error(ranks)
    assert "resume with: torchrun --nproc-per-node 3 -m -- " in the_error(ranks)


def test_a_rank_that_stands_still_ends_the_others(dataset: Dataset, tmp_path: Path) -> None:
    line, env = f"train {ENDLESS} {dataset.path} --run run", {TIMEOUT: "5"}
    with launched(2, line, tmp_path, env=env) as ranks:
        wait_for_epochs(ranks)
        ranks.send(1, signal.SIGSTOP)
        assert ranks.statuses([0]) == [2]
    assert LOST in the_error(ranks)


def test_all_end_within_two_minutes_of_a_rank_that_stands_still() -> None:
    """torchrun kills what it cannot end 30 s after the first has ended."""
    assert _TIMEOUT_S + 30 < 120


def with_a_group_of_its_own(rank: int) -> None:
    dist.init_process_group(os.environ["BACKEND"])


def test_ranks_of_the_callers_process_group_end_together_too(
    dataset: Dataset, tmp_path: Path
) -> None:
    env = {"TORCHELASTIC_RUN_ID": "1", "BACKEND": "gloo"}
    line = f"train {ENDLESS} {dataset.path} --run run"
    with launched(2, line, tmp_path, prelude=with_a_group_of_its_own, env=env) as ranks:
        wait_for_epochs(ranks)
        ranks.send(1, signal.SIGKILL)
        assert ranks.statuses() == [2, -signal.SIGKILL]
    assert LOST in the_error(ranks)


def test_a_process_group_without_collectives_on_the_cpu_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    line, env = f"train {SHORT} {dataset.path} --run run", {"BACKEND": "cuda:gloo"}
    with launched(2, line, tmp_path, prelude=with_a_group_of_its_own, env=env) as ranks:
        assert ranks.statuses() == [2, 2]
    # Without collectives the first rank to arrive reports it, with its number unless it is rank 0.
    assert (
        "torch.distributed was initialised with the backend 'cuda:gloo', which has no "
        "collectives of tensors on the CPU; initialise it with"
    ) in the_error(ranks)


def joined_often(rank: int) -> None:
    """Let the ranks meet three times in one process."""
    for _ in range(3):
        with join_ranks():
            pass


def test_ranks_meet_again_for_each_training_of_a_program(dataset: Dataset, tmp_path: Path) -> None:
    line, env = f"train {SHORT} {dataset.path} --run run", {"FORETASTE_JOIN_TIMEOUT_S": "20"}
    with launched(2, line, tmp_path, prelude=joined_often, env=env) as ranks:
        assert ranks.statuses() == [0, 0]
    assert Run.open(tmp_path / "run").is_finished


def slow_first(rank: int) -> None:
    """Let the first rank take longer for a fit in one pass, and for a save, than others wait."""
    if rank:
        return
    fit, save = Ease.fit, Run.save_state

    def fitted(self: Ease, histories: HistoryTensors, progress: FitProgress) -> None:
        time.sleep(6)
        fit(self, histories, progress)

    def saved(self: Run, *args: Any) -> None:
        save(self, *args)
        time.sleep(6)

    Ease.fit, Run.save_state = fitted, saved  # type: ignore[method-assign]


@pytest.mark.parametrize("line", ["ease --no-search", f"{MODEL} --epochs 1"])
def test_ranks_wait_for_work_of_the_first_that_takes_longer_than_a_collective(
    dataset: Dataset, tmp_path: Path, line: str
) -> None:
    line, env = f"train {line} {dataset.path} --run run", {TIMEOUT: "5"}
    with launched(2, line, tmp_path, prelude=slow_first, env=env) as ranks:
        assert ranks.statuses() == [0, 0]
    assert Run.open(tmp_path / "run").is_finished


def test_a_rank_that_never_comes_is_missed_within_a_bounded_time(
    dataset: Dataset, tmp_path: Path
) -> None:
    line, env = f"train {SHORT} {dataset.path} --run run", {"FORETASTE_JOIN_TIMEOUT_S": "3"}
    # The third rank starts first, so it is there in time, and it waits 6 s for the first.
    with launched(4, line, tmp_path, only=[2, 0], env=env) as ranks:
        assert ranks.statuses() == [2, 2]
    says(the_error(ranks), 2, 4, "3 s", "1, 3", "FORETASTE_JOIN_TIMEOUT_S")
    assert not (tmp_path / "run").exists()


def other_version_and_threads(rank: int) -> None:
    if rank == 1:
        foretaste.__version__ = "0.0.1"
        torch.set_num_threads(2)


def test_a_rank_of_another_version_and_with_other_threads_is_refused(
    dataset: Dataset, tmp_path: Path
) -> None:
    line = f"train {SHORT} {dataset.path} --run run"
    with launched(2, line, tmp_path, prelude=other_version_and_threads) as ranks:
        assert ranks.statuses() == [2, 2]
    differ = [(foretaste.__version__, 0, "0.0.1", 1, gethostname()), (1, 0, 2, 1, gethostname())]
    says(the_message(ranks), *differ[0], *differ[1])


def another_dataset(rank: int) -> None:
    from foretaste.training import api

    opened = api.open_dataset
    if rank == 1:
        api.open_dataset = lambda path: opened(os.environ["OTHER"])  # type: ignore[assignment]


def test_a_rank_with_other_data_is_refused(
    dataset: Dataset, test_only: Dataset, tmp_path: Path
) -> None:
    line, env = f"train {SHORT} {dataset.path} --run run", {"OTHER": str(test_only.path)}
    with launched(2, line, tmp_path, prelude=another_dataset, env=env) as ranks:
        assert ranks.statuses() == [2, 2]
    digests = (test_only.manifest.digest[:12], dataset.manifest.digest[:12])
    says(the_message(ranks), 1, gethostname(), dataset.path, 0, *digests)


def other_defaults(rank: int) -> None:
    from foretaste.training import api

    resolved = api.resolve_config
    if rank == 1:
        api.resolve_config = lambda *given: replace(resolved(*given), beta1=0.5)


def test_a_rank_with_other_settings_is_refused(dataset: Dataset, tmp_path: Path) -> None:
    line = f"train {SHORT} {dataset.path} --run run"
    with launched(2, line, tmp_path, prelude=other_defaults) as ranks:
        assert ranks.statuses() == [2, 2]
    says(the_message(ranks), "beta1", 0.9, 0, 0.5, 1, gethostname())


def failing(rank: int) -> None:
    def fail(self: Run, *args: object) -> None:
        raise RunError("the disk is full")

    if rank == int(os.environ["FAILS"]):
        Run.save_state = fail  # type: ignore[assignment]
        if rank:  # the first rank alone writes
            SharedCheckpoints.write_state = fail  # type: ignore[assignment]


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_fails_by_itself_has_its_message_printed_alone(
    dataset: Dataset, tmp_path: Path, rank: int
) -> None:
    line, env = f"train {ENDLESS} {dataset.path} --run run", {"FAILS": str(rank)}
    line = line.replace("--checkpoint-every-s 1000", "--checkpoint-every-s 0")
    with launched(3, line, tmp_path, prelude=failing, env=env) as ranks:
        assert ranks.statuses() == [2, 2, 2]
    who = [f"rank {rank}: "] if rank else []
    command = "torchrun --nproc-per-node 3 -m -- foretaste train --resume"
    says(the_error(ranks), *who, "the disk is full", command)


def test_a_wrong_option_is_reported_once_and_nothing_on_stdout(tmp_path: Path) -> None:
    with launched(3, "train vae data --epocs 3", tmp_path) as ranks:
        assert ranks.statuses() == [2, 2, 2]
    assert len(ranks.errors()) == 1
    assert ranks.stdout == ""


def test_ctrl_c_to_one_rank_saves_a_state_for_all_ranks(
    dataset: Dataset, whole: Run, tmp_path: Path
) -> None:
    line = f"train {SHORT} {dataset.path} --run run"
    line, env = f"{line} --checkpoint-every-s 1000", {"WAITS_AT": "10"}
    with launched(2, line, tmp_path, prelude=waiting, env=env) as ranks:
        ranks.wait_for(tmp_path / "update-10-1", "now")
        ranks.send(1, signal.SIGINT)
        (tmp_path / "signalled-10").touch()
        assert ranks.statuses() == [130, 130]
        (told,) = ranks.errors()
        command = "torchrun --nproc-per-node 2 -m -- foretaste train --resume"
        assert told.startswith(("interrupted in epoch", "interrupted after epoch"))
        assert f"resume with: {command} " in told
        ranks.start("train --resume run", 2)
        assert ranks.statuses() == [0, 0]
    assert "resumed at" in ranks.stdout
    killed = Run.open(tmp_path / "run")
    assert weights_of(killed) == weights_of(whole)
    assert numbers_of(killed) == numbers_of(whole)
    assert killed.config.hardware["num_ranks"] == 2


def slow_to_fit(rank: int) -> None:
    """Let a fit in one pass wait for the signals."""
    fit = Ease.fit

    def fitted(self: Ease, histories: HistoryTensors, progress: FitProgress) -> None:
        Path("fitting").write_text("now")
        wait_for_file("signalled")
        fit(self, histories, progress)

    Ease.fit = fitted  # type: ignore[method-assign]


def test_sigterm_to_ranks_that_wait_for_the_first_ends_all_alike(
    dataset: Dataset, tmp_path: Path
) -> None:
    line = f"train ease {dataset.path} --no-search --run run"
    with launched(2, line, tmp_path, prelude=slow_to_fit) as ranks:
        ranks.wait_for(tmp_path / "fitting", "now")
        for rank in (1, 0):
            ranks.send(rank, signal.SIGTERM)
        (tmp_path / "signalled").touch()
        assert ranks.statuses() == [143, 143]
        (told,) = ranks.errors()
        says(told, "foretaste train --resume")


def test_sigterm_to_a_rank_that_waits_acts_once_the_first_is_done(
    dataset: Dataset, tmp_path: Path
) -> None:
    line = f"train ease {dataset.path} --no-search --run run"
    with launched(2, line, tmp_path, prelude=slow_to_fit) as ranks:
        ranks.wait_for(tmp_path / "fitting", "now")
        ranks.send(1, signal.SIGTERM)
        (tmp_path / "signalled").touch()
        assert ranks.statuses() == [2, 143]
    assert Run.open(tmp_path / "run").is_finished


def test_ranks_that_torchrun_restarts_resume_their_run(
    dataset: Dataset, whole: Run, tmp_path: Path
) -> None:
    line = f"train {SHORT} {dataset.path} --checkpoint-every-s 0 --run run --log-path log.jsonl"
    with launched(2, line, tmp_path, prelude=waiting, env={"WAITS_AT": "10"}) as ranks:
        for update, killed in ((10, 1), (20, 0)):
            ranks.wait_for(tmp_path / f"update-{update}-{killed}", "now")
            ranks.send(killed, signal.SIGKILL)
            (tmp_path / f"signalled-{update}").touch()
            assert ranks.statuses([1 - killed]) == [2]
            ranks.start(line, 2, prelude=waiting, env={"WAITS_AT": str(update + 10)})
        (tmp_path / "signalled-30").touch()
        assert ranks.statuses() == [0, 0]
    assert ranks.stdout.count("resumed at") == 2
    again = Run.open(tmp_path / "run")
    assert weights_of(again) == weights_of(whole)
    assert numbers_of(again) == numbers_of(whole)
    assert (tmp_path / "log.jsonl").read_bytes() == again.log.path.read_bytes()
