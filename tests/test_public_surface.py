"""The public surface equals the stored one: commands, names, settings, routes and formats."""

from __future__ import annotations

from difflib import unified_diff

from tests.public_surface import FILE, text, untold


def test_the_public_surface_equals_the_stored_one() -> None:
    stored, found = FILE.read_text(encoding="utf-8").splitlines(), text().splitlines()
    differences = unified_diff(stored, found, "stored", "found", lineterm="", n=0)
    assert stored == found, "\n".join(
        [
            "the public surface has changed: say in CHANGELOG.md what its users do now, then run "
            "python -m tests.public_surface",
            *differences,
        ]
    )


def test_a_change_is_stored_once_the_changelog_has_its_names() -> None:
    stored, found = (
        "train: --run --seed\nfoo.fit(data, seed: int)\n",
        "train: --run\nfoo.fit(data)\n",
    )
    assert untold(stored, found, "") == ["--seed", "int", "seed"]
    assert untold(stored, found, "| `fit(seed: int)`, `--seed` | leave it out |") == []
