"""A real browser for tests of pages: Debian's Chromium, driven by Playwright, and axe's rules."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

from tests import programs

LIMIT_MS = 5_000
AXE = Path(__file__).parents[1] / "build" / "axe-core.tgz"
SHAPES = {
    "phone-light": {"viewport": {"width": 360, "height": 800}, "color_scheme": "light"},
    "desktop-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
}
"""Settings of a tab."""


def check_fits(page: Any) -> None:
    """Check that nothing is wider than the page, and that axe, if it is installed, finds
    nothing."""
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    if AXE.exists() or not programs.MAY_BE_MISSING:
        with tarfile.open(AXE) as archive:
            script = archive.extractfile("package/axe.min.js")
            assert script is not None
            page.evaluate(script.read().decode())
        violations = page.evaluate("axe.run().then((found) => found.violations)")
        assert [(one["id"], one["nodes"][0]["html"]) for one in violations] == []
