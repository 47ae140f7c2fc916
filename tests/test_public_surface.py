"""What users lean on is what is stored: commands, names, settings, routes and formats."""

from __future__ import annotations

from difflib import unified_diff

from tests.public_surface import FILE, text


def test_the_public_surface_is_as_it_was_stored() -> None:
    stored, found = FILE.read_text(encoding="utf-8").splitlines(), text().splitlines()
    differences = unified_diff(stored, found, "stored", "found", lineterm="", n=0)
    assert stored == found, "\n".join(
        [
            "the public surface has changed: say in CHANGELOG.md what its users do now, then run "
            "python -m tests.public_surface",
            *differences,
        ]
    )
