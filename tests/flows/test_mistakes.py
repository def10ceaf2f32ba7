"""A mistake of the caller's is one line in Prefect's log, and no secret reaches state, log or artifact."""

import pytest
from prefect.client.orchestration import get_client
from prefect.logging.handlers import APILogWorker
from server_pages import all_pages
from waiting import LIMIT_S

from flows.automations import AUTOMATIONS_YAML, load_automations
from flows.stage_flow import REFUSED, stage_flow
from kernel_core.errors import ConfigError, SourceUnavailable, redacted
from kernel_core.report.pages import Page, Rows
from kernel_core.store import Store
from tasks.artifacts import show
from tasks.faults import retried_task

KEY = "sk-0123456789abcdef"


def lines_of(client, flow_run_id):
    """What a flow run and its tasks logged."""
    APILogWorker.drain_all(timeout=LIMIT_S)
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId

    of_run = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[flow_run_id]))
    return [log.message for log in client.read_logs(log_filter=of_run)]


def test_a_callers_mistake_in_a_task_has_no_traceback_and_is_not_tried_again(prefect_api):
    tries = []

    @retried_task("refuses", "test")
    def refuses() -> None:
        tries.append(1)
        raise ConfigError("steps = 0: wanted 1 or more")

    @stage_flow("refused", run_name="refused")
    def refused() -> None:
        refuses()

    with pytest.raises(ConfigError, match="steps = 0"):
        refused()
    state = refused(return_state=True)
    assert len(tries) == 2
    assert (state.name, state.message) == (REFUSED, "steps = 0: wanted 1 or more")
    with get_client(sync_client=True) as client:
        lines = lines_of(client, state.state_details.flow_run_id)
    assert any("steps = 0: wanted 1 or more" in line for line in lines)
    assert not any("Traceback" in line for line in lines)
    assert sum(line.count("\n") + 1 for line in lines) < 12


def test_an_automation_that_waits_for_a_failed_run_waits_for_a_refused_one_too():
    """Prefect names the event of a state by the state's name."""
    expected = [entry["trigger"]["expect"] for entry in load_automations(AUTOMATIONS_YAML, None)]
    waiting = [events for events in expected if "prefect.flow-run.Failed" in events]
    assert len(waiting) == 3
    assert all(f"prefect.flow-run.{REFUSED}" in events for events in waiting)


def test_an_error_that_echoes_a_key_shows_it_nowhere(prefect_api, monkeypatch, tmp_path):
    monkeypatch.setenv("SOME_API_KEY", KEY)

    @stage_flow("echoes", run_name="echoes")
    def echoes() -> None:
        show(Page("echo", [f"it said {KEY}"], Store(tmp_path), "echo"))
        show(Rows("echo-rows", [{"said": f"it said {KEY}"}], "rows"))
        raise SourceUnavailable(f"the endpoint said: wrong key {KEY}")

    state = echoes(return_state=True)
    with get_client(sync_client=True) as client:
        found = [*lines_of(client, state.state_details.flow_run_id), str(state.message)]
        found += [
            str(artifact.data)
            for artifact in all_pages(client.read_artifacts)
            if "echo" in (artifact.key or "")
        ]
    assert sum("[secret]" in text for text in found) >= 4
    assert not any(KEY in text for text in found)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pass1234@host/v1 is away", "https://[secret]@host/v1 is away"),
        (f"key {KEY}.", "key [secret]."),
        ("nothing here", "nothing here"),
    ],
)
def test_keys_and_logins_are_redacted_and_other_text_stays(monkeypatch, text, shown):
    monkeypatch.setenv("SOME_TOKEN", KEY)
    assert redacted(text) == shown
