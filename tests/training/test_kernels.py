"""The choice between the forms of the operations, and what measurements have to say in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from foretaste.errors import SettingError
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.ops.triton import support
from foretaste.training import kernels
from foretaste.training.kernels import case_of, chosen, keep_verdict, verdicts_path

MODEL = NeuMFConfig(factors=8, layers=(16, 8), negatives=4)
GPU = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def _a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(support, "is_installed", lambda: True)
    monkeypatch.setattr(support, "version", lambda: "3.7.1")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")


def auto(model: NeuMFConfig = MODEL, batch_size: int = 512, precision: str = "bf16") -> str:
    return chosen("auto", "cuda:0", model, batch_size, precision)


def measured(chunked_s: float, triton_s: float) -> Path:
    case = case_of(GPU, MODEL, 512, "bf16")
    return keep_verdict(case, {"chunked": chunked_s, "triton": triton_s})


def test_auto_is_the_chunked_form_until_it_is_measured(tmp_path: Path) -> None:
    assert auto() == "chunked"
    assert list(tmp_path.iterdir()) == []
    assert measured(2.0, 1.0) == verdicts_path() == tmp_path / "foretaste" / "kernels.json"
    assert auto() == "triton"
    assert chosen("auto", "cpu", MODEL, 512, "bf16") == "chunked"


def test_a_later_verdict_replaces_that_of_the_same_case() -> None:
    measured(2.0, 1.0)
    keep_verdict(case_of(GPU, MODEL, 1024, "bf16"), {"chunked": 2.0, "triton": 1.0})
    measured(1.0, 2.0)
    assert (auto(), auto(batch_size=1024)) == ("chunked", "triton")


def test_a_verdict_is_of_its_own_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(2.0, 1.0)
    assert auto(replace(MODEL)) == "triton"
    for other in ({"factors": 16}, {"layers": (16, 4)}, {"negatives": 5}, {"dropout": 0.1}):
        assert auto(replace(MODEL, **other)) == "chunked", other
    assert auto(batch_size=511) == "chunked"
    assert auto(precision="fp16") == "chunked"
    with monkeypatch.context() as patched:
        patched.setattr(torch, "__version__", "2.11.0")
        assert auto() == "chunked"
    with monkeypatch.context() as patched:
        patched.setattr(support, "version", lambda: "3.6.0")
        assert auto() == "chunked"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    assert auto() == "chunked"


def test_kernels_are_those_asked_for() -> None:
    measured(2.0, 1.0)
    case = ("cuda:0", MODEL, 512, "bf16")
    assert [chosen(one, *case) for one in ("chunked", "triton")] == ["chunked", "triton"]
    with pytest.raises(SettingError, match=r"kernels is triton.*the device is the CPU"):
        chosen("triton", "cpu", *case[1:])


def test_a_cache_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(SettingError, match=r"kernels\.json .*XDG_CACHE_HOME"):
        measured(2.0, 1.0)


def test_nothing_is_read_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    measured(2.0, 1.0)

    def homeless() -> Path:
        raise SettingError("there is no home directory")

    monkeypatch.setattr(kernels, "cache_directory", homeless)
    assert auto() == "chunked"
