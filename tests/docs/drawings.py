"""The drawing of the rooms, docs/images/rooms.svg, made from their imports.

``python -m tests.docs.drawings`` writes it again, from the root of a clone.
"""

from __future__ import annotations

from functools import cache

from tests.docs.pages import DOCS
from tests.test_walls import BELOW, BESIDE, all_imports

DRAWING = DOCS / "images" / "rooms.svg"

_WIDTH, _ROW, _BOX, _TALL = 640, 84, 124, 40
_BOW = 234
"""How far the arrows that pass a row bend outwards, around the rooms in it."""


@cache
def imported() -> dict[str, set[str]]:
    """The rooms that each room imports, without look-ups through a door."""
    found: dict[str, set[str]] = {}
    for room, each in all_imports():
        if room and room not in BESIDE:
            found.setdefault(room, set())
            target = each.module.split(".")[1] if each.module.startswith("foretaste.") else ""
            found[room] |= {target} - {room}
    return {room: targets & BELOW[room] for room, targets in found.items()}


def drawing() -> str:
    """The drawing: a room stands below all that import it, and arrows that follow from others
    are left out."""
    imports = imported()
    rows = _rows(imports)
    depth = {room: number for number, row in enumerate(rows) for room in row}
    place: dict[str, tuple[float, float]] = {}
    for number, row in enumerate(rows):
        above = {room: [place[one][0] for one in imports if room in imports[one]] for room in row}
        # Among equals the longest arrows come first, because they pass outside.
        reach = {
            room: max((depth[one] for one in _direct(imports, room)), default=0) for room in row
        }
        row.sort(key=lambda room: (sum(above[room]) / max(1, len(above[room])), -reach[room], room))
        for position, room in enumerate(row, start=1):
            place[room] = (_WIDTH * position / (len(row) + 1), 24 + _ROW * number)
    arrows = [
        _arrow(*place[room], *place[target])
        for room in place
        for target in sorted(_direct(imports, room))
    ]
    boxes = [
        f'<rect x="{x - _BOX / 2:.0f}" y="{y}" width="{_BOX}" height="{_TALL}" rx="6" '
        f'fill="#e0f2f1" stroke="#00796b"/>\n<text x="{x:.0f}" y="{y + 25}" '
        f'text-anchor="middle">{room}</text>'
        for room, (x, y) in place.items()
    ]
    tall = _ROW * len(rows)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {tall}" width="{_WIDTH}" '
        f'height="{tall}" role="img" font-family="sans-serif" font-size="15">\n'
        "<title>Rooms and what they import</title>\n"
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#37474f"/></marker></defs>\n'
        f'<rect width="{_WIDTH}" height="{tall}" rx="8" fill="#fff"/>'
    )
    return "\n".join([head, *arrows, *boxes, "</svg>", ""])


def _arrow(x: float, y: float, to_x: float, to_y: float) -> str:
    y += _TALL
    bow = 0 if to_y - y < _ROW else _BOW if x >= _WIDTH / 2 else -_BOW
    return (
        f'<path d="M{x:.0f} {y:.0f}Q{(x + to_x) / 2 + bow:.0f} {(y + to_y) / 2:.0f} '
        f'{to_x:.0f} {to_y:.0f}" fill="none" stroke="#37474f" stroke-width="1.2" '
        'marker-end="url(#tip)"/>'
    )


def _rows(imports: dict[str, set[str]]) -> list[list[str]]:
    """Rows from the top: each room stands right below the lowest room that imports it."""
    depth: dict[str, int] = {}
    while len(depth) < len(imports):
        for room in imports:
            above = [one for one in imports if room in imports[one]]
            if all(one in depth for one in above):
                depth[room] = 1 + max((depth[one] for one in above), default=-1)
    rows: list[list[str]] = [[] for _ in range(1 + max(depth.values()))]
    for room, number in depth.items():
        rows[number].append(room)
    return rows


def _direct(imports: dict[str, set[str]], room: str) -> set[str]:
    """Rooms that a room imports and that no other imported room reaches."""

    def reached(one: str) -> set[str]:
        return imports[one].union(*map(reached, imports[one]))

    return imports[room] - set().union(*map(reached, imports[room]))


if __name__ == "__main__":
    DRAWING.write_text(drawing(), encoding="utf-8")
