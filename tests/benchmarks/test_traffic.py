"""Work of a step by formula, worked out by hand, and the table."""

from __future__ import annotations

import pytest

from benchmarks import traffic
from foretaste.models.neumf.config import NeuMFConfig
from foretaste.models.vae.config import VAEConfig

NEUMF = NeuMFConfig(factors=2, layers=(4, 3, 2), negatives=1)
VAE = VAEConfig(hidden=(3,), latent=2)


def test_work_of_neumf() -> None:
    """12 samples: a tower of 3 x 2, its output and the factors; 11 rows of 2 projected to 3."""
    work = traffic.neumf_work(NEUMF, parameters=10, items=5, rows=6)
    assert work.multiply_adds == 3 * (12 * (6 + 2 + 2) + 11 * 2 * 3)
    assert work.num_bytes == 4 * (12 * (2 + 3 * 3) + 2 * 6 * (2 + 2) + 10)
    assert work.update_bytes == 4 * 7 * 10


def test_work_of_mult_vae() -> None:
    """7 users, 20 interactions and 5 items; 3 to twice 2, then 2 to 3 in between."""
    work = traffic.vae_work(VAE, parameters=10, items=5, users=7, entries=20)
    assert work.multiply_adds == 2 * 20 * 3 + 3 * 7 * (3 * 4 + 2 * 3 + 3 * 5)
    assert work.num_bytes == 4 * (2 * 20 * 3 + 2 * 5 * 3 + 10)


def test_a_bound_takes_the_longer_of_traffic_and_products_then_adam() -> None:
    work = traffic.Work(num_bytes=20, update_bytes=30, multiply_adds=400)
    assert work.bound_s(10.0, 100.0) == pytest.approx(4.0 + 3.0)
    assert work.bound_s(1.0, 100.0) == pytest.approx(20.0 + 30.0)


def test_every_case_has_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = {"neumf": (NEUMF, "60x48x600", 64), "vae": (VAE, "60x48x600", 16)}
    monkeypatch.setattr(traffic, "CASES", cases)
    monkeypatch.setattr(traffic, "SIDE", 8)
    traffic.main(["--threads", "1", "--repeats", "1", "--steps", "2"])
    _, _, _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines] == [["| neumf", "64"], ["| vae", "16"]]
