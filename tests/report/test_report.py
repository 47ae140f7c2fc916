"""A report is one file with the numbers of `evaluate`, and shows all values as text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from torch import Tensor

import foretaste
from foretaste.data import Dataset
from foretaste.errors import SettingError
from foretaste.evaluation import ranking
from foretaste.measure.tables import LENGTHS
from foretaste.report import RunsReport, plots, report_runs
from foretaste.report.records import settings
from foretaste.training import Callback
from tests.browser import LIMIT_MS, SHAPES, check_fits
from tests.forks import fork
from tests.messages import raises

HOSTILE = '<script>alert("1")</script> | <img src=x onerror=alert(2)> & *co*'
EASE = "<b>ease & 'co'"
NAMES = ("popularity", EASE, "vae")
METRICS = ("ndcg@10", "recall@20", "ndcg@100")

VOID = {"meta", "link", "img", "br", "hr"}


@dataclass
class Parsed(HTMLParser):
    """A page as a browser reads it: elements, and the rows of tables by their captions."""

    elements: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._open: list[str] = []
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "figcaption":
            self._caption = ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"{tag} ends out of turn"
        if tag == "table":
            self.tables[self._caption] = [[" ".join(c.split()) for c in r] for r in self._rows]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if "style" in self._open:
            return
        self.text += data
        if "figcaption" in self._open:
            self._caption += data
        elif {"td", "th"} & {*self._open}:
            self._rows[-1][-1] += data


def parsed(path: Path) -> Parsed:
    page = Parsed()
    page.feed(path.read_text(encoding="utf-8"))
    assert not page._open
    return page


def shop(path: Path, **settings: Any) -> Dataset:
    """People with two tastes, and items of hostile titles."""
    rng = np.random.default_rng(3)
    users = np.repeat(np.arange(60), 12)
    items = (rng.permuted(np.tile(np.arange(20), (60, 1)), axis=1)[:, :12]).ravel()
    items += np.where(users % 2, 10, 0)
    table = pa.table({"user_id": users, "item_id": items, "timestamp": np.arange(len(users))})
    titles = pa.table({"item_id": range(30), "title": [f"{n} {HOSTILE}" for n in range(30)]})
    return foretaste.prepare(table, path, items=titles, **settings)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[foretaste.Run]:
    root = tmp_path_factory.mktemp("report")
    dataset = shop(root / "shop", protocol="held-out-users", num_heldout_users=12)
    settings = {"vae": {"hidden": (8,), "latent": 4, "epochs": 3, "eval_every": 1}}
    return [
        foretaste.train(
            name if name != EASE else "ease",
            dataset,
            run=root / name,
            callback=Callback(),
            **settings.get(name, {}),
        )
        for name in NAMES
    ]


@pytest.fixture(scope="module")
def known_users(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return shop(tmp_path_factory.mktemp("known") / "shop", protocol="leave-one-out")


@pytest.fixture(scope="module")
def report(runs: list[foretaste.Run]) -> RunsReport:
    return report_runs(runs, metrics=METRICS, num_people=5)


@pytest.fixture(scope="module")
def page(report: RunsReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report.write(tmp_path_factory.mktemp("page") / "report.html")


def test_a_page_has_every_section(page: Path) -> None:
    ids = {about.get("id") for _, about in parsed(page).elements}
    assert ids >= {
        *("quality", "by-length", "learning", "groups", "history-lengths", "lists"),
        *("time", "settings", "origin", "people", "notes"),
    }
    linked = {about["href"] for tag, about in parsed(page).elements if tag == "a"}
    headings = {about["id"] for tag, about in parsed(page).elements if tag == "h2"}
    assert linked == {f"#{id}" for id in headings}


def test_numbers_of_the_report_equal_evaluate(page: Path, runs: list[foretaste.Run]) -> None:
    tables = parsed(page).tables
    heading, *rows = tables["Metrics with 95 % intervals over users"]
    assert tuple(heading[1:]) == METRICS
    for run, row in zip(runs, rows, strict=True):
        found = foretaste.evaluate_run(run, k=(10, 20, 100)).metrics
        expected = [f"{found[name].text()} {found[name].interval()}" for name in METRICS]
        assert row == [run.path.name, *expected]
    _, *rows = next(rows for caption, rows in tables.items() if caption.startswith("ndcg: "))
    by_length = foretaste.evaluate_run(runs[2], k=LENGTHS).metrics
    assert [cell.split()[0] for cell in rows[2][1:]] == [
        by_length[f"ndcg@{k}"].text() for k in LENGTHS
    ]


def test_groups_of_the_report_equal_evaluate(page: Path, runs: list[foretaste.Run]) -> None:
    groups = foretaste.evaluate_run(runs[1], k=100, more=True, history_lengths=(1, 5)).groups
    tables = parsed(page).tables
    captions = {
        "activity": "Users by the number of items in their history",
        "popularity": "Held-out items by their popularity in training",
        "history": "New users by the number of items known of them",
    }
    for group in groups:
        heading, *rows = tables[captions[group.by]]
        (row,) = [row for row in rows if row[0] == f"ndcg@100 {EASE}"]
        assert row[heading.index(group.name)].startswith(group.metrics["ndcg@100"].text())


def test_a_page_loads_nothing_and_runs_nothing(page: Path) -> None:
    text, elements = page.read_text(encoding="utf-8"), parsed(page).elements
    assert not {tag for tag, _ in elements} & {"script", "img", "link", "iframe", "object", "b"}
    for tag, about in elements:
        assert not [name for name in about if name.startswith("on")], tag
        for name in ("src", "href", "xlink:href"):
            assert (about.get(name) or "#").startswith("#")
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")
    assert len(text) < 500_000


def test_settings_have_the_weights_that_the_data_decided(
    known_users: Dataset, tmp_path: Path
) -> None:
    model, names = "ials", ("unobserved_weight", "regularization")
    given = {"epochs": 1, "device": "cpu", "run": tmp_path / model}
    run = foretaste.train(model, known_users, callback=Callback(), **given)
    (table,) = settings(report_runs([run], num_people=0).runs).tables
    found = {name: cells[0].value for name, cells in table.grid.rows}
    assert [found[name] for name in names] == [str(run.history[0][name]) for name in names]
    assert all(float(found[name]) > 0.0 for name in names)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_page_fits_screens_and_paper(shape: dict[str, Any], page: Path, browser: Any) -> None:
    tab = browser.new_page(**shape)
    tab.set_default_timeout(LIMIT_MS)
    tab.goto(page.as_uri())
    check_fits(tab)
    tab.set_viewport_size({"width": 680, "height": 1000})  # A4 less its margins
    tab.emulate_media(media="print")
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.close()


def test_titles_and_names_are_text(page: Path, report: RunsReport) -> None:
    found = parsed(page)
    assert HOSTILE in found.text
    assert EASE in found.text
    alternatives = [about["aria-label"] for tag, about in found.elements if tag == "svg"]
    assert len(alternatives) >= 12
    assert all(about for about in alternatives)


def test_lists_are_those_that_were_measured(report: RunsReport, runs: list[foretaste.Run]) -> None:
    dataset = foretaste.open_dataset(runs[0].config.dataset.path)
    heldout = dataset.heldout("test")
    assert len(report.people) == 5
    ease = foretaste.load(runs[1])
    for person in report.people:
        (row,) = np.flatnonzero(heldout.user_index == dataset.users.lookup([person.user_id]))
        history = dataset.items.ids(heldout.history[row : row + 1].item_index)
        assert person.num_history == len(history)
        (answer,) = ease.recommend_for([history], k=10)
        assert [title for title, _ in person.lists[EASE]] == answer.titles
        targets = dataset.items.ids(heldout.target[row : row + 1].item_index)
        marks = [item in targets for item in answer.item_ids]
        assert [is_found for _, is_found in person.lists[EASE]] == marks
    assert any(is_found for person in report.people for _, is_found in person.lists[EASE])


def test_people_are_ranked_a_batch_at_a_time(
    report: RunsReport, runs: list[foretaste.Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    top_k = ranking.top_k

    def counted(score: Tensor, k: int) -> ranking.TopK:
        sizes.append(len(score))
        return top_k(score, k)

    monkeypatch.setattr(ranking, "top_k", counted)
    monkeypatch.setattr(ranking, "users_at_once", lambda *_: 2)
    found = report_runs(runs[:1], metrics=METRICS, num_people=5).people
    assert sizes == [2, 2, 1]
    for person, before in zip(found, report.people, strict=True):
        ((label, shown),) = person.lists.items()
        assert shown == before.lists[label]


def test_plots_and_their_keys_distinguish_runs() -> None:
    marks = [(plots.shade(number), plots.shape(number)) for number in range(64)]
    assert len(set(marks)) == 64


def test_characters_that_command_or_turn_the_text_are_escaped(
    known_users: Dataset, tmp_path: Path
) -> None:
    """A plot of U+0001 or U+FFFE would end the process."""
    odd = "\x01\x1b\u202e\u2066\ufffe\uffff"
    run = foretaste.train("popularity", known_users, run=tmp_path / f"a{odd}b", callback=Callback())
    made = report_runs([run], num_people=1)
    for person in made.people:
        person.history.append(f"title {odd}")
    text = made.write(tmp_path / "page.html").read_text(encoding="utf-8")
    assert not any(character in text for character in odd)
    for name in ("a", "title "):
        assert rf"{name}\u0001\u001b\u202e" in text


def test_progress_covers_every_ranking(runs: list[foretaste.Run]) -> None:
    seen: list[tuple[int, int]] = []
    report_runs(runs[:2], history_lengths=(1, 2), progress=lambda *at: seen.append(at))
    done = [num_done for num_done, _ in seen]
    assert done == sorted(done)
    assert {total for _, total in seen} == {2 * 3 * 12}
    assert done[-1] == 2 * 3 * 12


def test_one_run_of_known_users(known_users: Dataset, tmp_path: Path) -> None:
    run = foretaste.train("popularity", known_users, run=tmp_path / "run", callback=Callback())
    made = report_runs([run], num_people=3, candidates="sampled-5")
    ids = {about.get("id") for _, about in parsed(made.write(tmp_path / "r.html")).elements}
    assert {"quality", "groups", "people"} <= ids
    assert not {"learning", "history-lengths", "lists"} & ids
    assert made.focus == "ndcg@10"


def test_a_place_for_a_report_is_checked(report: RunsReport, tmp_path: Path) -> None:
    (tmp_path / "there.html").touch()
    for name, next_step in (
        ("report.pdf", ".html"),
        ("no/report.html", "directory no"),
        ("there.html", "--overwrite"),
    ):
        with raises(SettingError, name, next_step):
            report.write(tmp_path / name)
    assert report.write(tmp_path / "there.html", overwrite=True).stat().st_size > 10_000


def test_a_page_that_another_process_made_first_is_kept(
    report: RunsReport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "page.html"

    def summary(*_: object) -> list[str]:
        page.write_text("another")
        return []

    monkeypatch.setattr("foretaste.report.sections.summary", summary)
    with raises(SettingError, "page.html", "--overwrite"):
        report.write(page)
    assert page.read_text() == "another"


def test_a_user_without_a_home_gets_a_report(tmp_path: Path) -> None:
    """A container's user may have no name; altair asks for the home at import."""
    code = (
        "import os, pathlib, sys\n"
        "assert 'altair' not in sys.modules\n"
        "os.environ.pop('HOME', None)\n"
        "def no_home(): raise RuntimeError('Could not determine home directory.')\n"
        "home = pathlib.Path.home\n"
        "pathlib.Path.home = lambda: home() if 'HOME' in os.environ else no_home()\n"
        "from foretaste.report.contents import check_output\n"
        f"check_output({str(tmp_path / 'report.html')!r})\n"
        "from foretaste.report import page\n"
    )
    process = fork(exec, code, {})
    process.join(60)
    assert process.exitcode == 0
