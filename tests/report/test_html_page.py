"""A page of a run is one file: only its own script runs in it, and its tables sort and filter offline."""

import shutil

import pytest

from kernel_core.report.html_page import Code, code_block, document, table

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ROWS = [
    {"problem": "softmax", "speed-up": 10.5, "verdict": "correct", "code": Code("a\nb")},
    {"problem": "matmul", "speed-up": 9.25, "verdict": "correct", "code": Code("")},
    {"problem": "scan", "speed-up": None, "verdict": "wrong <b>", "code": Code("<script>alert(1)</script>")},
]


def test_text_of_others_is_shown_and_never_run():
    page = document("<i>", {"<u>": [table(ROWS, full=True), code_block("</pre><img onerror=x>")]})
    assert "<i>" not in page and "<u>" not in page and "wrong &lt;b&gt;" in page
    assert page.count("<script>") == 1 and "&lt;script&gt;alert(1)" in page and "<img" not in page
    assert "http://" not in page and "https://" not in page


def test_no_rows_say_so_and_numbers_that_are_not_finite_are_empty():
    assert "(nothing)" in table([])
    assert table([{"x": float("inf")}, {"x": None}]).count("data-value=''") == 2


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A table in a headless browser without a network."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip(f"no browser here (looked for {', '.join(BROWSERS)})")
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(document("a run", {"problems": [table(ROWS, full=True)]}))
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        context = browser.new_context(offline=True)
        opened = context.new_page()
        opened.goto(file.as_uri())
        yield opened
        browser.close()


def problems(page):
    """The first cells of the rows that are seen, in order."""
    return page.locator("tbody tr:visible td:first-child").all_inner_texts()


def test_a_click_on_a_heading_sorts_numbers_as_numbers_and_empty_cells_last(page):
    page.get_by_text("speed-up").click()
    assert problems(page) == ["matmul", "softmax", "scan"]
    page.get_by_text("speed-up").click()
    assert problems(page) == ["softmax", "matmul", "scan"]
    page.get_by_role("columnheader", name="problem").click()
    assert problems(page) == ["matmul", "scan", "softmax"]


def test_words_in_the_filter_leave_the_rows_that_have_all_of_them(page):
    page.get_by_placeholder("filter").fill("CORRECT mat")
    assert problems(page) == ["matmul"]
    assert page.get_by_text("1 of 3 rows").is_visible()
    page.get_by_placeholder("filter").fill("")
    assert len(problems(page)) == 3
