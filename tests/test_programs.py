"""Programs that some tests need: without them tests are skipped, but fail in `.ci/run`."""

from __future__ import annotations

import pytest

from tests import databases, programs, spark


@pytest.mark.parametrize(
    ("may_be_missing", "outcome"), [(True, pytest.skip.Exception), (False, pytest.fail.Exception)]
)
def test_a_program_that_is_missing(
    may_be_missing: bool, outcome: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "MAY_BE_MISSING", may_be_missing)
    monkeypatch.setattr(databases, "PROGRAMS", databases.PROGRAMS / "none")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(outcome, match="chromium is not installed"):
        programs.find("chromium")
    with pytest.raises(outcome, match="java is not installed"):
        spark.require_spark()
    with (
        pytest.raises(outcome, match="PostgreSQL is not installed"),
        databases.postgresql_server(),
    ):
        pass


def test_a_program_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAY_BE_MISSING", False)
    assert programs.find("sh").endswith("/sh")
