"""A person with a browser: opens the Prefect UI, fills the form, starts the pipeline, looks at what comes.

Screenshots are left in `DOJO_SCREENSHOTS` (else in the test's folder).
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fixtures.stack import stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WAIT_MS = 180_000
PATIENCE_S = 900


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """`dojo deploy --local` in a folder of its own."""
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
    submit(page)

    run = wait_for_run(running, pipeline["id"])
    assert run["parameters"]["mode"] == "deployed"
    assert run["parameters"]["config"]["run"] == "from-the-ui"
    assert run["parameters"]["config"]["train"]["steps"] == 2, "the preset's settings are in the form"

    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_role("tab", name="Subflow Runs").or_(page.get_by_text("Subflow Runs")).first.click()
    page.get_by_text("ingest").first.wait_for()
    page.get_by_text("cold-start").first.wait_for(timeout=3 * WAIT_MS)

    ended = running.wait(run["id"], timeout_s=1800)
    assert ended["state_type"] == "COMPLETED", ended["state"]
    children = running.children(run["id"])
    assert [child["work_pool_name"] for child in children] == ["cpu"] * 7
    assert all(child["state_type"] == "COMPLETED" for child in children)
    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_text("Subflow Runs").first.click()
    page.get_by_text("from-the-ui best-of-n").first.wait_for()
    page.screenshot(path=pictures / "children.png")

    open_newest(page, "from-the-ui-evaluate-after-problems").get_by_text("generated/").first.wait_for()
    page.screenshot(path=pictures / "problems.png")
    open_newest(page, "from-the-ui-evaluate-after-summary").get_by_text("headline").first.wait_for()
    assert page.locator("img[alt=fast_p]").evaluate("picture => picture.naturalWidth") > 0
    page.screenshot(path=pictures / "summary.png", full_page=True)
    open_newest(page, "from-the-ui-evaluate-after-code").get_by_text(
        "Best answer to every problem"
    ).first.wait_for()
    page.screenshot(path=pictures / "code.png")
    open_asset(page, running, tmp_path / "runs" / "from-the-ui" / "evaluate-after")
    page.get_by_text("from-the-ui/checkpoints/step-").first.wait_for()
    page.screenshot(path=pictures / "asset.png")


def test_a_form_begins_with_what_people_change_and_keeps_what_it_does_not_show(running, page, tmp_path):
    pictures = Path(os.environ.get("DOJO_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    training = running.deployment("train/learn")
    fill_form(page, training["id"], {"root (Optional)": str(tmp_path / "runs")})
    labels = page.locator(".p-label__label, h3").all_inner_texts()
    first = ["run (Optional)", "config", "Policy (Optional)", "Model (Optional)"]
    assert [label for label in labels if label in first] == first
    page.get_by_role("button", name="known", exact=True).first.wait_for()
    page.screenshot(path=pictures / "form.png")
    submit(page)
    run = wait_for_run(running, training["id"], root=str(tmp_path / "runs"))
    cancelled = {"type": "CANCELLED"}
    running.ask("POST", f"/flow_runs/{run['id']}/set_state", state=cancelled, force=True)
    assert run["parameters"]["config"]["steps"] == 60
    hidden = run["parameters"]["config"]["curriculum"]
    assert hidden["probe_problems"] == 24 and hidden["advanced"] == {}


def test_a_pipeline_from_its_form_ends_with_a_promoted_checkpoint(running, page, tmp_path):
    """Its training sends an event, which starts the gate; both are as a person finds them in the UI."""
    pictures = Path(os.environ.get("DOJO_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    root = tmp_path / "runs"
    pipeline = running.deployment("pipeline/quickstart")
    fill_form(page, pipeline["id"], {"Root (Optional)": str(root)})
    submit(page)
    run = wait_for_run(running, pipeline["id"])
    ended = running.wait(run["id"], timeout_s=3600)
    assert ended["state_type"] == "COMPLETED", ended["state"]

    page.goto(f"/runs/flow-run/{run['id']}")
    page.get_by_text("Subflow Runs", exact=True).first.click()
    page.get_by_text("quickstart best-of-n: quickstart").first.wait_for()
    page.screenshot(path=pictures / "stages.png")
    (scoring,) = [child for child in running.children(run["id"]) if "evaluate-before" in child["name"]]
    page.goto(f"/runs/flow-run/{scoring['id']}")
    page.get_by_text("Task Runs", exact=True).first.click()
    page.get_by_text("problems 1 to 8 of 24").first.wait_for()
    page.screenshot(path=pictures / "batches.png")
    (training,) = [child for child in running.children(run["id"]) if "train" in child["name"]]
    page.goto(f"/runs/flow-run/{training['id']}")
    page.get_by_text("Task Runs", exact=True).first.click()
    page.get_by_text("format, from step 1").first.wait_for()
    page.screenshot(path=pictures / "curriculum.png")

    promoting = wait_for_run(running, running.deployment("promote/gate")["id"], candidate="quickstart")
    assert running.wait(promoting["id"], timeout_s=1200)["state_type"] == "COMPLETED"
    open_newest(page, "promoted-gate").get_by_text("Promoted: clearly better").first.wait_for()
    page.screenshot(path=pictures / "gate.png")
    assert (root / "promoted" / "checkpoints" / "step-000001" / "manifest.json").exists()
    open_newest(page, "quickstart-evaluate-after-summary").get_by_text("headline").first.wait_for()
    page.screenshot(path=pictures / "scorecard.png")
    open_asset(page, running, root / "promoted" / "checkpoints" / "step-000001")
    page.get_by_text("quickstart/checkpoints/step-").first.wait_for()
    page.screenshot(path=pictures / "asset.png")
    again = dojo(running, "pipeline", f"root={root}")
    assert again.returncode == 0, "the command line goes on with what the form began"


def test_a_training_whose_process_died_is_retried_from_its_page(running, page, tmp_path):
    """Retry goes on from the newest checkpoint; what the first try left at work is crashed."""
    pictures = Path(os.environ.get("DOJO_SCREENSHOTS", tmp_path))
    pictures.mkdir(parents=True, exist_ok=True)
    run = running.start(
        "train/learn-two-steps", {"config": {"steps": 6}, "run": "again", "root": str(tmp_path)}
    )
    steps = tmp_path / "again" / "checkpoints.jsonl"
    wait_until(lambda: steps.exists() and steps.read_text().count("\n") >= 2, "two checkpoints")
    os.kill(running.process_of(run), signal.SIGKILL)
    assert running.wait(run, timeout_s=PATIENCE_S)["state_type"] == "CRASHED"

    for _ in range(3):  # the worker reports the crash once more, seconds later, over a retry
        page.goto(f"/runs/flow-run/{run}")
        page.get_by_role("button", name="Retry").first.click()
        with page.expect_response("**/set_state"):
            page.get_by_role("dialog").get_by_role("button", name="Retry").click()
        ended = running.wait(run, timeout_s=PATIENCE_S)
        if ended["state_type"] == "COMPLETED":
            break
    assert (ended["state_type"], ended["run_count"]) == ("COMPLETED", 2), ended["state"]
    page.get_by_text("Task Runs", exact=True).first.click()
    page.get_by_text("format, from step 1").first.wait_for()
    page.screenshot(path=pictures / "retried.png")
    lines = (tmp_path / "again" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(7)), "each step counts once"
    runs = running.ask("POST", "/task_runs/filter", task_runs={"flow_run_id": {"any_": [run]}}, limit=200)
    stages = [one["name"] for one in runs if one["name"].startswith("format, from step ")]
    assert len(set(stages)) == 2, stages
    assert sorted({one["state_type"] for one in runs}) == ["COMPLETED", "CRASHED"]


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
    page.get_by_text(next(iter(values)), exact=True).first.wait_for()
    for label, value in values.items():
        field(page, label).locator("textarea").fill(value)


def submit(page):
    """Send the form. It takes no click while it still checks what was typed, so the click is tried again."""
    from playwright.sync_api import TimeoutError as NotYet

    for _ in range(5):
        page.get_by_role("button", name="Submit").click()
        with contextlib.suppress(NotYet):
            page.wait_for_url("**?tab=Runs*", timeout=15_000)
            return
    raise AssertionError("the form was not sent")


def open_newest(page, key):
    """The page of the newest artifact of a key, reached as a person does: through the key's time line."""
    page.goto(f"/artifacts/key/{key}")
    page.locator("a[href*='/artifacts/artifact/']").first.click()
    return page


def open_asset(page, running, folder):
    """The page of the event that a stage made a folder."""
    made = {
        "event": {"name": ["prefect.asset.materialization.succeeded"]},
        "resource": {"id": [folder.as_uri()]},
    }
    event = wait_until(lambda: running.ask("POST", "/events/filter", filter=made)["events"], "an asset")[0]
    page.goto(f"/events/event/{event['occurred'][:10]}/{event['id']}")
    page.get_by_text("Related Resources").first.wait_for()
    page.wait_for_timeout(2_000)  # the page fades in


def wait_for_run(running, deployment_id, **parameters):
    """The flow run of a deployment that was started with these parameters."""

    def look():
        runs = running.ask("POST", "/flow_runs/filter", deployments={"id": {"any_": [deployment_id]}})
        return [run for run in runs if parameters.items() <= run["parameters"].items()]

    return wait_until(look, "a flow run")[0]


def wait_until(look, what):
    """What `look` gives, once it is something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := look()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.5)
    return found
