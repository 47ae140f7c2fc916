"""The page of the architecture agrees with the walls and the files."""

from __future__ import annotations

import re

from tests.docs.drawings import DRAWING, drawing, imported
from tests.docs.pages import ROOT, page
from tests.test_walls import BELOW

PACKAGE = ROOT / "src" / "foretaste"


def test_the_table_of_imports_equals_the_walls() -> None:
    rows = page("architecture.md").rows("Imports between rooms")
    shown = {room: set(filter(None, imports.split(", "))) for room, imports in rows}
    assert shown == {room: set(below) for room, below in BELOW.items()}


def test_the_drawing_equals_the_imports_of_the_code() -> None:
    assert DRAWING.read_text(encoding="utf-8") == drawing(), "run python -m tests.docs.drawings"
    assert all(f">{room}</text>" in drawing() for room in imported())
    assert "images/rooms.svg" in page("architecture.md").text


def test_no_arrow_of_the_drawing_passes_behind_a_room() -> None:
    """Every box that an arrow touches is the arrow's start or end."""
    numbers = re.findall(r'<rect x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"', drawing())
    boxes = [(x, y, x + wide, y + tall) for x, y, wide, tall in (map(int, one) for one in numbers)]
    assert len(boxes) == len(imported())
    curves = re.findall(r'd="M(-?\d+) (\d+)Q(-?\d+) (\d+) (-?\d+) (\d+)"', drawing())
    assert curves
    for x, y, bend_x, bend_y, to_x, to_y in (map(int, one) for one in curves):
        for t in (step / 100 for step in range(1, 100)):
            here_x = (1 - t) ** 2 * x + 2 * t * (1 - t) * bend_x + t * t * to_x
            here_y = (1 - t) ** 2 * y + 2 * t * (1 - t) * bend_y + t * t * to_y
            inside = [
                (left, top) for left, top, right, bottom in boxes
                if left <= here_x <= right and top < here_y < bottom
            ]  # fmt: skip
            assert not inside, (x, y, to_x, to_y)


def test_every_room_has_a_paragraph() -> None:
    rooms = re.findall(r"^\*\*`(\w+)`\*\*", page("architecture.md").section("Rooms"), re.MULTILINE)
    assert set(rooms) == BELOW.keys()


def test_every_module_that_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`", page("architecture.md").text)
    assert named
    for path in named:
        assert (PACKAGE / path).is_file() or (ROOT / path).is_file(), path
