"""Make the screenshots of the Prefect UI from a server that has the runs of docs/operations.md.

    python docs/pictures/screenshots.py http://127.0.0.1:4200 [NAME …]

It needs a browser (`chromium`). The server has a run of the pipeline `quickstart`, two checks of its
checkpoint by `dojo promote candidate=quickstart` (the second is refused), and two nights.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 60_000
SETTLE_MS = 3_000
"""Pages fade in, and rows get their figures after their names."""
COLOURS = 128
"""Colours of a picture: enough for the UI, and a third of the bytes."""


def main(url: str, names: list[str]) -> None:
    """Write the screenshots with these names, or all of them, beside this file."""
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        sys.exit(f"no browser here; install one of {', '.join(BROWSERS)}")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(base_url=url, viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(WAIT_MS)
        for name in names or PICTURES:
            PICTURES[name](page, url)
            page.wait_for_timeout(SETTLE_MS)
            shown = Image.open(BytesIO(page.screenshot()))
            shown.quantize(COLOURS).save(HERE / f"{name}.png", optimize=True)
        browser.close()


def deployments(page: Page, url: str) -> None:
    """Open the list of deployments."""
    page.goto("/deployments")
    page.locator("a[href*='/deployments/deployment/']").first.wait_for()


def stages(page: Page, url: str) -> None:
    """Open the stages of the newest pipeline `quickstart`."""
    page.goto(f"/runs/flow-run/{newest_run(url, 'pipeline', 'quickstart')}")
    page.get_by_text("Subflow Runs", exact=True).first.click()
    page.get_by_text("quickstart best-of-n").first.wait_for()


def scorecard(page: Page, url: str) -> None:
    """Open the scorecard of the trained policy."""
    open_newest(page, "quickstart-evaluate-after-summary").get_by_text("headline").first.wait_for()


def refusal(page: Page, url: str) -> None:
    """Open the last check of the checkpoint: it holds the name already, so it is refused."""
    open_newest(page, "promoted-gate").get_by_text("Not promoted:").first.wait_for()


def night(page: Page, url: str) -> None:
    """Open the change since the night before."""
    open_newest(page, "nightly-quickstart-change").locator("img[alt=trend]").wait_for()


PICTURES: dict[str, Callable[[Page, str], None]] = {
    made.__name__: made for made in (deployments, stages, scorecard, refusal, night)
}


def newest_run(url: str, flow: str, words: str) -> str:
    """Return the id of the newest completed run of a flow with these words in its name."""
    asked: dict[str, Any] = {
        "flows": {"name": {"any_": [flow]}},
        "flow_runs": {"name": {"like_": words}, "state": {"type": {"any_": ["COMPLETED"]}}},
        "sort": "START_TIME_DESC",
        "limit": 1,
    }
    answer = httpx.post(f"{url}/api/flow_runs/filter", json=asked, trust_env=False).raise_for_status()
    return str(answer.json()[0]["id"])


def open_newest(page: Page, key: str) -> Page:
    """Open the newest artifact of a key, as a person does: through the key's time line."""
    page.goto(f"/artifacts/key/{key}")
    page.locator("a[href*='/artifacts/artifact/']").first.click()
    return page


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1].rstrip("/"), sys.argv[2:])
