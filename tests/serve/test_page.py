"""The page of the service in a real browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from foretaste.data import PrepareConfig, prepare
from foretaste.recommend import Recommender, load
from foretaste.training import train
from tests.browser import LIMIT_MS, SHAPES, check_fits
from tests.runs.tiny import FIRST_USER, interactions
from tests.serve.processes import Served, serve

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")

TOKEN = "0123456789abcdef"
KNOWN = FIRST_USER
HOSTILE = '<img src=x onerror="document.title=1"><b>&amp;</b>'
BIG = 2**60
"""Added to ids of the run without titles: a number of JavaScript cannot hold them."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ease and vae of a shop with markup in a title, and plain, without titles."""
    folder = tmp_path_factory.mktemp("page")
    table, config = interactions(), PrepareConfig(protocol="held-out-users", num_heldout_users=12)
    ids = table["item_id"].unique()
    titles = [HOSTILE if n == 0 else f"The Book of {n}" for n in ids.to_pylist()]
    pa_csv.write_csv(pa.table({"item_id": ids, "title": titles}), folder / "titles.csv")
    shop = prepare(table, folder / "shop", config, items=folder / "titles.csv")
    train("ease", shop, run=folder / "ease", device="cpu")
    train("vae", shop, run=folder / "vae", device="cpu", hidden=(8,), latent=4, epochs=3)
    big = pa.array([n + BIG for n in table["item_id"].to_pylist()])
    plain = prepare(table.set_column(1, "item_id", big), folder / "numbers", config)
    train("itemknn", plain, run=folder / "plain", device="cpu")
    return folder


@pytest.fixture(scope="module")
def served(runs: Path) -> Iterator[Served]:
    """The service of the runs, which needs a token."""
    token = runs / "token"
    token.write_text(TOKEN)
    with serve(
        *(runs / name for name in ("ease", "vae", "plain")), "--token-file", token
    ) as served:
        yield served


class Tab:
    """A tab of the browser with its requests and complaints."""

    def __init__(self, browser: Any, url: str, **settings: Any) -> None:
        context = browser.new_context(**settings)
        context.set_default_timeout(LIMIT_MS)
        self.page = context.new_page()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.url = url

    def open(self) -> Any:
        """Load the page with the token, and wait for the lists."""
        self.page.add_init_script(f"sessionStorage.setItem('foretaste token', '{TOKEN}')")
        self.page.goto(self.url)
        self.page.wait_for_selector("#lists li")
        return self.page


@pytest.fixture
def tab(browser: Any, served: Served, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A tab; it must end without complaints and requests to other hosts."""
    url = f"http://127.0.0.1:{served.port}"
    tab = Tab(browser, url, **getattr(request, "param", {}))
    yield tab
    tab.page.context.close()
    assert not tab.complaints
    assert {each for each in tab.asked if not each.startswith(url + "/")} == set()


def titles(page: Any, selector: str = "#lists article:first-child .title") -> list[str]:
    found: list[str] = page.locator(selector).all_text_contents()
    return found


def expected_titles(recommender: Recommender, *history: int) -> list[str]:
    return [item.title or "" for item in recommender.recommend_for([list(history)])[0].items]


def like(page: Any, title: str) -> None:
    """Find an item and click it."""
    page.get_by_label("Search items").fill(title)
    page.locator("#found").get_by_role("button", name=title, exact=True).click()


def check_lists(page: Any, expected: list[str]) -> None:
    """Wait until the first list is this one."""
    sync_api.expect(page.locator("#lists article:first-child .title")).to_have_text(expected)


def test_the_token_is_asked_for_and_kept_in_the_tab_alone(tab: Tab) -> None:
    page = tab.page
    page.goto(tab.url)
    for token in ("another", TOKEN):
        page.get_by_label("Token", exact=True).fill(token)
        page.get_by_role("button", name="Go on").click()
        if token != TOKEN:
            page.get_by_text("did not accept").wait_for()
    page.wait_for_selector("#lists li")
    assert page.evaluate("[document.cookie, localStorage.length]") == ["", 0]
    page.reload()
    page.wait_for_selector("#lists li")
    assert tab.complaints
    assert all("401" in complaint for complaint in tab.complaints)
    tab.complaints.clear()


def test_likes_change_the_lists_by_keyboard_alone(tab: Tab, runs: Path) -> None:
    page, ease = tab.open(), load(runs / "ease", "cpu")
    assert page.get_by_text("Popularity order: the history is empty.").is_visible()
    page.get_by_label("Search items").focus()
    page.keyboard.type("book of 5")
    sync_api.expect(page.locator("#found li").first).to_have_text("The Book of 5")
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    check_lists(page, expected_titles(ease, 5))
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    nearest = page.locator("#lists small").all_text_contents()
    assert set(nearest) == {"Because of The Book of 5"}
    assert page.get_by_role("status").text_content() == (
        f"10 recommendations of ease, first {expected_titles(ease, 5)[0]}."
    )

    second = titles(page)[1]
    page.get_by_role("button", name=f"Like {second}", exact=True).focus()
    page.keyboard.press("Enter")
    check_lists(page, expected_titles(ease, 5, int(second.rpartition(" ")[2])))
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == (
        f"Like {titles(page)[1]}"
    )

    page.get_by_role("button", name="Remove The Book of 5").focus()
    page.keyboard.press("Enter")
    check_lists(page, expected_titles(ease, int(second.rpartition(" ")[2])))
    assert page.evaluate("document.activeElement.textContent") == second


def test_a_known_user_is_shown_with_history_and_likes(tab: Tab, runs: Path) -> None:
    page, ease = tab.open(), load(runs / "ease", "cpu")
    page.get_by_label("User id").fill(str(KNOWN))
    page.get_by_role("button", name="Show").click()
    check_lists(page, [item.title or "" for item in ease.recommend(KNOWN)[0].items])
    assert page.get_by_text("None yet: the lists have what suits this user's history.").is_visible()
    history = page.get_by_role("list", name=f"User {KNOWN}").get_by_role("listitem")
    index = ease.known_histories.rows(ease.users.lookup([KNOWN])).item_index
    assert sorted(history.all_text_contents()) == sorted(map(str, ease.items.titles(index) or []))
    page.get_by_role("button", name="Leave this user").click()
    page.get_by_text("Popularity order: the history is empty.").wait_for()
    assert page.evaluate("document.activeElement.id") == "user"


def test_two_models_side_by_side(tab: Tab, runs: Path) -> None:
    page = tab.open()
    page.get_by_role("combobox", name="Beside it").select_option("vae")
    like(page, "The Book of 5")
    expected = [expected_titles(load(runs / name, "cpu"), 5) for name in ("ease", "vae")]
    check_lists(page, expected[0])
    assert titles(page, "#lists article:last-child .title") == expected[1]
    shared = set(expected[0]) & set(expected[1])
    assert page.get_by_text(f"{len(shared)} of 10 items in both lists").is_visible()
    assert page.get_by_text("in both", exact=True).count() == 2 * len(shared)
    page.get_by_role("combobox", name="Model").select_option("vae")
    check_lists(page, expected[1])
    assert page.locator("#beside option").all_text_contents() == ["none", "ease", "plain"]


def test_titles_are_text_and_ids_are_exact(tab: Tab, runs: Path) -> None:
    page = tab.open()
    like(page, HOSTILE)
    check_lists(page, expected_titles(load(runs / "ease", "cpu"), 0))
    assert page.get_by_text(HOSTILE, exact=True).count() >= 2
    assert page.locator("img").count() == 1  # the icon
    page.get_by_role("combobox", name="Model").select_option("plain")
    like(page, str(BIG + 5))
    plain = load(runs / "plain", "cpu").recommend_for([[BIG + 5]])[0]
    check_lists(page, list(map(str, plain.item_ids)))


def test_a_browser_that_would_round_ids_shows_a_warning(tab: Tab) -> None:
    # Older browsers: JSON.parse does not give its function the text of numbers.
    tab.page.add_init_script(
        "const parse = JSON.parse; JSON.parse = (text, each) => parse(text, (k, v) => each(k, v))"
    )
    page = tab.open()
    like(page, "The Book of 5")
    page.get_by_role("combobox", name="Model").select_option("plain")
    sync_api.expect(page.get_by_role("alert")).to_contain_text("This browser rounds long numbers")


def test_errors_are_shown_and_pass(tab: Tab) -> None:
    page = tab.open()
    page.route("**/v1/recommend", lambda route: route.fulfill(
        status=503, json={"error": {"code": "overloaded", "message": "too many wait"}}
    ))  # fmt: skip
    like(page, "The Book of 5")
    sync_api.expect(page.get_by_role("alert")).to_have_text("too many wait")
    page.unroute_all()
    page.route("**/v1/recommend", lambda route: route.abort())
    page.get_by_role("button", name="Remove The Book of 5").click()
    unreachable = "The service cannot be reached."
    sync_api.expect(page.get_by_role("alert")).to_have_text(unreachable)
    page.unroute_all()
    like(page, "The Book of 4")
    sync_api.expect(page.get_by_role("alert")).to_have_count(0)
    assert all("503" in said or "ERR_FAILED" in said for said in tab.complaints)
    tab.complaints.clear()


@pytest.mark.parametrize("tab", SHAPES.values(), indirect=True, ids=SHAPES)
def test_the_page_fits_and_passes_the_rules_of_axe(tab: Tab) -> None:
    page = tab.open()
    page.get_by_role("combobox", name="Beside it").select_option("vae")
    like(page, "The Book of 5")
    page.get_by_label("User id").fill(str(KNOWN))
    page.get_by_role("button", name="Show").click()
    page.locator("#history-items li").first.wait_for()
    page.locator("#lists small").first.wait_for()
    check_fits(page)


def test_a_product_added_overnight_is_found_and_listed(browser: Any, tmp_path: Path) -> None:
    """The products of the morning's training have one more product, which nobody has touched."""
    table = interactions()
    ids = table["item_id"].unique().to_pylist()
    overnight = max(ids) + 1

    def trained(name: str, products: list[int]) -> None:
        items = pa.table(
            {
                "item_id": products,
                "title": [f"The Book of {n}" for n in products],
                "kind": [n % 12 for n in products],
            }
        )
        shop = prepare(table, tmp_path / f"{name}-data", items=items, features=["kind"])
        train("ease", shop, run=tmp_path / name, device="cpu", feature_weight=300.0)

    trained("first", ids)
    trained("second", [*ids, overnight])
    current = tmp_path / "current"
    current.symlink_to("first")
    alike = next(n for n in ids if n % 12 == overnight % 12)
    with serve(current) as served:
        tab = Tab(browser, f"http://127.0.0.1:{served.port}")
        page, search = tab.open(), tab.page.get_by_label("Search items")
        search.fill(f"book of {overnight}")
        sync_api.expect(page.locator("#none-found")).to_be_visible()
        current.unlink()
        current.symlink_to("second")
        assert served.ask("POST", "/v1/reload", {})[0] == 200
        page.reload()
        search.fill(f"book of {overnight}")
        sync_api.expect(page.locator("#found li").first).to_have_text(f"The Book of {overnight}")
        like(page, f"The Book of {alike}")
        sync_api.expect(
            page.locator("#lists").get_by_text(f"The Book of {overnight}", exact=True)
        ).to_be_visible()
        page.context.close()
        assert not tab.complaints
