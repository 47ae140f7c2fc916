"""The page of the service in Chromium: time from a click to the new lists, and pictures of it.

    python -m benchmarks.page runs/ease runs/vae --clicks 200 --pictures pictures

Items that the page offers are clicked, one after another, each liked or no longer liked, with one
list and then with two side by side. The clock, the page's own, begins as the script clicks, and
ends with the first frame after the lists were replaced. It prints a line of JSON for each. With
``--pictures`` it keeps what the page looks like, on a desktop and a phone, light and dark. Needs
``chromium`` in the PATH, and Playwright.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

LIKED = ("Star Wars", "Toy Story", "Matrix")
DEVICES = {"desktop": (1360, 900), "phone": (390, 844)}
CLICK = """
(number) => new Promise((resolve) => {
  const lists = document.getElementById("lists");
  const choices = document.querySelectorAll("#found button");
  const started = performance.now();
  new MutationObserver((_, observer) => {
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - started)));
  }).observe(lists, { childList: true });
  choices[number % choices.length].click();
})
"""


@contextmanager
def service(runs: Sequence[Path]) -> Iterator[str]:
    """Yield the URL of a service of these runs; it ends with the block."""
    command = [sys.executable, "-m", "foretaste", "serve", *map(str, runs)]
    command += ["--port", "0", "--device", "cpu", "--no-access-log"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split(" at ")[1].split(";")[0]
    finally:
        process.terminate()
        process.wait(60)


def opened(browser: Browser, url: str, device: str = "desktop", scheme: str = "light") -> Page:
    """The page, with its first list."""
    width, height = DEVICES[device]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("#lists li")
    page.wait_for_selector("#found li")
    return page


def show_beside(page: Page) -> None:
    """Have the page show the second run beside the first."""
    page.select_option("#beside", index=1)
    page.wait_for_selector("#lists article:nth-child(2)")


def times_ms(page: Page, num_clicks: int) -> dict[str, float]:
    """Milliseconds of clicks, after a tenth of them that do not count."""
    found = [page.evaluate(CLICK, number) for number in range(num_clicks + num_clicks // 10)]
    kept = np.array(found[num_clicks // 10 :])
    points = {"p50": 50, "p95": 95, "p99": 99, "max": 100}
    return {name: round(float(np.percentile(kept, at)), 1) for name, at in points.items()}


def take_pictures(page: Page, folder: Path, name: str, num_runs: int) -> None:
    """Keep the page of somebody who likes a few things."""
    for text in LIKED:
        page.fill("#search", text)
        choice = page.locator(f"#found button:has-text('{text}')").first
        choice.click()
    page.locator("#lists small").first.wait_for()
    if num_runs > 1:
        show_beside(page)
    page.wait_for_load_state("networkidle")
    page.screenshot(path=folder / f"{name}.png")


def main(tokens: Sequence[str] | None = None) -> None:
    """Measure, and take pictures where asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--clicks", type=int, default=100)
    parser.add_argument("--pictures", type=Path)
    asked = parser.parse_args(tokens)
    with service(asked.runs) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        page = opened(browser, url)
        for num_lists in range(1, min(2, len(asked.runs)) + 1):
            if num_lists == 2:
                show_beside(page)
            row = {"lists": num_lists, "clicks": asked.clicks, "ms": times_ms(page, asked.clicks)}
            print(json.dumps(row), flush=True)
        if asked.pictures:
            asked.pictures.mkdir(parents=True, exist_ok=True)
            for device in DEVICES:
                for scheme in ("light", "dark"):
                    page = opened(browser, url, device, scheme)
                    take_pictures(page, asked.pictures, f"{device}-{scheme}", len(asked.runs))
        browser.close()


if __name__ == "__main__":
    main()
