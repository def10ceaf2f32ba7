"""A person with a browser: opens the Prefect UI, fills the form, starts the pipeline, looks at what comes.

Screenshots are left in `DOJO_SCREENSHOTS` (else in the test's folder).
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 180_000


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """`dojo deploy --local` in a folder of its own."""
    from stack import stack

    with stack(tmp_path_factory.mktemp("stack")) as here:
        yield here


@pytest.fixture
def page(running):
    """A page of a headless browser on the UI."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    browser_path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser_path is None:
        pytest.skip(f"no browser here (looked for {', '.join(BROWSERS)})")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        page = browser.new_page(
            base_url=f"http://127.0.0.1:{running.port}", viewport={"width": 1400, "height": 1000}
        )
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()


def field(page, label):
    """The form's control under a label."""
    return page.locator(".p-label, .schema-form-property", has=page.get_by_text(label, exact=True)).last


def test_a_pipeline_is_started_from_its_form_and_its_evaluation_is_looked_at(running, page, tmp_path):
    pictures = Path(os.environ.get("DOJO_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)

    page.goto("/deployments")
    page.get_by_placeholder("Search deployments...").fill("smoke")
    page.get_by_role("link", name="smoke").first.wait_for()
    page.screenshot(path=pictures / "deployments.png")

    pipeline = running.deployment("pipeline/smoke")
    fill_form(
        page, pipeline["id"], {"Run (Optional)": "from-the-ui", "Root (Optional)": str(tmp_path / "runs")}
    )
    page.screenshot(path=pictures / "form.png")
    page.get_by_role("button", name="inline").last.press("ArrowDown")
    page.locator(".p-select-option__text", has_text="deployed").click()
    page.get_by_role("button", name="Submit").click()

    run = wait_for_run(running, pipeline["id"])
    assert run["parameters"]["mode"] == "deployed"
    assert run["parameters"]["config"]["run"] == "from-the-ui"
    assert run["parameters"]["config"]["train"]["steps"] == 2, "the preset's settings are in the form"

    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_role("tab", name="Subflow Runs").or_(page.get_by_text("Subflow Runs")).first.click()
    page.get_by_text("ingest").first.wait_for()
    page.get_by_text("cold-start").first.wait_for(timeout=3 * WAIT_MS)
    page.screenshot(path=pictures / "children.png")

    ended = running.wait(run["id"], timeout_s=1800)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    children = running.children(run["id"])
    assert [child["work_pool_name"] for child in children] == ["cpu"] * 7
    assert all(child["state_type"] == "COMPLETED" for child in children)
    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_text("Completed").first.wait_for()
    page.screenshot(path=pictures / "run.png")

    open_newest(page, "evaluate-after-problems").get_by_text("generated/").first.wait_for()
    page.screenshot(path=pictures / "evaluation.png")
    open_newest(page, "evaluate-after-summary").get_by_text("headline").first.wait_for()
    assert page.locator("img[alt=fast_p]").evaluate("picture => picture.naturalWidth") > 0
    page.screenshot(path=pictures / "summary.png", full_page=True)
    open_newest(page, "evaluate-after-code").get_by_text("Best answers").first.wait_for()
    page.screenshot(path=pictures / "code.png")


def test_a_pipeline_from_its_form_ends_with_a_promoted_checkpoint(running, page, tmp_path):
    """Its training sends an event, which starts the gate; both are as a person finds them in the UI."""
    pictures = Path(os.environ.get("DOJO_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    root = tmp_path / "runs"
    pipeline = running.deployment("pipeline/quickstart")
    fill_form(page, pipeline["id"], {"Root (Optional)": str(root)})
    page.get_by_role("button", name="Submit").click()
    run = wait_for_run(running, pipeline["id"])
    ended = running.wait(run["id"], timeout_s=3600)
    assert ended["state_type"] == "COMPLETED", ended["state"]

    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_text("Subflow Runs", exact=True).first.click()
    page.get_by_text("quickstart best-of-n: quickstart").first.wait_for()
    page.screenshot(path=pictures / "stages.png")
    (training,) = [child for child in running.children(run["id"]) if "train" in child["name"]]
    page.goto(f"/runs/flow-run/{training['id']}")
    page.get_by_text("Task Runs", exact=True).first.click()
    page.get_by_text("format, from step 1").first.wait_for()
    page.screenshot(path=pictures / "curriculum.png")

    promoting = wait_for_run(running, running.deployment("promote/cpu")["id"])
    assert running.wait(promoting["id"], timeout_s=1200)["state_type"] == "COMPLETED"
    assert promoting["parameters"]["candidate"] == "quickstart"
    open_newest(page, "gate").get_by_text("Promoted: clearly better").first.wait_for()
    page.screenshot(path=pictures / "gate.png")
    assert (root / "promoted" / "checkpoints" / "step-000001" / "manifest.json").exists()
    again = dojo(running, "pipeline", f"root={root}")
    assert again.returncode == 0, "the command line goes on with what the form began"


def dojo(running, *words):
    """A command of `dojo` against the stack's server."""
    url = f"http://127.0.0.1:{running.port}/api"
    command = [sys.executable, "-m", "flows.cli", *words]
    return subprocess.run(command, env=running.environment | {"PREFECT_API_URL": url}, check=False)


def fill_form(page, deployment_id, values):
    """Open a deployment's form and write into its fields."""
    page.goto(f"/deployments/deployment/{deployment_id}")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_text("Custom run").click()
    page.get_by_text("Folder under the root.").wait_for()
    for label, value in values.items():
        field(page, label).locator("textarea").fill(value)


def open_newest(page, key):
    """The page of the newest artifact of a key, reached as a person does: through the key's time line."""
    page.goto(f"/artifacts/key/{key}")
    page.locator("a[href*='/artifacts/artifact/']").first.click()
    return page


def wait_for_run(running, deployment_id):
    """The flow run that the form started."""
    import time

    for _ in range(240):
        runs = running.ask("POST", "/flow_runs/filter", deployments={"id": {"any_": [deployment_id]}})
        if runs:
            return runs[0]
        time.sleep(0.5)
    raise AssertionError("the form started nothing")
