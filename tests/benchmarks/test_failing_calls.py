"""The losses that the series of failing calls finds."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from benchmarks.failing_calls import WRITERS, lost_events, run


def test_lost_events_and_withdrawals_that_did_not_happen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert lost_events() == []
    done = run(WRITERS["events"].command)
    assert done.returncode == 0, done.stderr
    assert lost_events() == []
    connection = sqlite3.connect("events.db")
    with connection:
        connection.execute("DELETE FROM events WHERE event_id = 'event 3'")
        connection.execute("UPDATE events SET user_id = 'ana' WHERE event_id = 'event 0'")
    connection.close()
    assert lost_events() == ["event 3", "withdrawn"]
