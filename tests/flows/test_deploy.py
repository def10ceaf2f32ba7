"""`dojo deploy` on a real server: a plan, a difference, switches kept; mistakes by line; nothing twice."""

import os
import subprocess
import sys

import pytest
import yaml
from prefect.client.orchestration import get_client

from flows.automations import AUTOMATIONS_YAML, load_automations
from flows.cli import run as dojo
from flows.presets import PREFECT_YAML
from kernel_core.config.yaml_lines import line_of
from kernel_core.errors import ConfigError


@pytest.fixture(scope="module")
def small_file(tmp_path_factory):
    """Our own file with a few deployments, so that deploying takes seconds, and one with all that differs."""
    content = yaml.safe_load(PREFECT_YAML.read_text())
    kept = ("smoke", "learn-two-steps", "every-night", "gate")
    content["deployments"] = [entry for entry in content["deployments"] if entry["name"] in kept]
    (nightly,) = (entry for entry in content["deployments"] if entry["name"] == "every-night")
    often = nightly | {"name": "often", "concurrency_limit": 1, "version": "2"}
    often["schedules"] = [
        {"interval": 3600, "slug": "hourly", "active": False},
        {"rrule": "FREQ=DAILY", "slug": "daily", "active": False},
        {"cron": "0 4 * * *", "timezone": "Europe/Berlin", "slug": "early", "active": False},
    ]
    often["work_pool"] = nightly["work_pool"] | {"work_queue_name": "urgent"}
    often["pull"] = [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}]
    content["deployments"].append(often)
    file = tmp_path_factory.mktemp("repository") / "prefect.yaml"
    file.write_text(yaml.safe_dump(content))
    (file.parent / "flows").symlink_to(PREFECT_YAML.parent / "flows")
    return file


@pytest.fixture(scope="module")
def deployed(prefect_api, small_file):
    assert dojo(["deploy", "--file", str(small_file)]) == 0
    return small_file


def test_pools_limit_automations_and_schedule_are_there(deployed):
    with get_client(sync_client=True) as client:
        assert {pool.name for pool in client.read_work_pools()} >= {"cpu"}
        assert client.read_global_concurrency_limit_by_name("cuda").limit == 1
        names = {automation.name for automation in client.read_automations()}
        nightly = client.read_deployment_by_name("nightly/every-night")
        (promotes,) = client.read_automations_by_name("dojo-promote-cpu")
    assert names == {"dojo-lost-runs", "dojo-nightly-alert", "dojo-promotion-alert", "dojo-promote-cpu"}
    assert promotes.trigger.expect == {"kernel-dojo.training.finished"}
    assert promotes.actions[0].parameters["candidate"] == "{{ event.resource['kernel-dojo.checkpoint'] }}"
    assert not nightly.paused and nightly.concurrency_options.collision_strategy.value == "CANCEL_NEW"
    assert [schedule.slug for schedule in nightly.schedules] == ["every-night"]


@pytest.mark.exhaustive
def test_the_documented_command_starts_the_nightly(deployed, prefect_api):
    page = (PREFECT_YAML.parent / "docs" / "operations.md").read_text()
    assert "prefect deployment schedule resume nightly/every-night ID" in page
    with get_client(sync_client=True) as client:
        (schedule,) = client.read_deployment_by_name("nightly/every-night").schedules
        assert not schedule.active
        command = ["deployment", "schedule", "resume", "nightly/every-night", str(schedule.id)]
        environment = os.environ | {"PREFECT_API_URL": prefect_api}
        subprocess.run([sys.executable, "-m", "prefect", *command], env=environment, check=True)
        nightly = client.read_deployment_by_name("nightly/every-night")
        assert nightly.schedules[0].active and not nightly.paused
        client.update_deployment_schedule(nightly.id, schedule.id, active=False)


@pytest.mark.exhaustive
def test_what_an_operator_switched_stays_so_when_deployed_again(deployed):
    with get_client(sync_client=True) as client:
        nightly = client.read_deployment_by_name("nightly/every-night")
        client.pause_deployment(nightly.id)
        client.update_deployment_schedule(nightly.id, nightly.schedules[0].id, active=True)
        alert = client.read_automations_by_name("dojo-nightly-alert")[0]
        client.pause_automation(alert.id)
        client.pause_automation(client.read_automations_by_name("dojo-promote-cpu")[0].id)
        often = client.read_deployment_by_name("nightly/often")
        assert not any(one.active for one in often.schedules)
        by_cron = next(one for one in often.schedules if getattr(one.schedule, "cron", None))
        client.update_deployment_schedule(often.id, by_cron.id, active=True)
        assert dojo(["deploy", "--file", str(deployed)]) == 0
        after = client.read_deployment_by_name("nightly/every-night")
        assert after.paused and after.schedules[0].active
        often = client.read_deployment_by_name("nightly/often")
        assert [hasattr(one.schedule, "cron") for one in often.schedules if one.active] == [True]
        for name in ("dojo-nightly-alert", "dojo-promote-cpu"):
            assert [a.enabled for a in client.read_automations_by_name(name)] == [False]


def test_plain_prefect_deploy_makes_the_limit_and_alerts_and_leaves_a_resumed_night_on(deployed, prefect_api):
    with get_client(sync_client=True) as client:
        client.delete_global_concurrency_limit_by_name("cuda")
        (alert,) = client.read_automations_by_name("dojo-promotion-alert")
        client.delete_automation(alert.id)
        there = client.read_deployment_by_name("nightly/every-night")
        client.update_deployment_schedule(there.id, there.schedules[0].id, active=True)
        command = [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "-n", "nightly/every-night"]
        done = subprocess.run(
            [*command, "--prefect-file", str(deployed)],
            cwd=deployed.parent,
            env=os.environ | {"PREFECT_API_URL": prefect_api, "PWD": str(deployed.parent)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        again = client.read_deployment_by_name("nightly/every-night")
        assert [schedule.active for schedule in again.schedules] == [True]
        assert client.read_global_concurrency_limit_by_name("cuda").limit == 1
        assert client.read_automations_by_name("dojo-promotion-alert")
        client.update_deployment_schedule(again.id, again.schedules[0].id, active=False)


def test_interval_rule_queue_and_limit_are_deployed(deployed):
    with get_client(sync_client=True) as client:
        found = client.read_deployment_by_name("nightly/often")
    assert len(found.schedules) == 3
    assert (found.work_queue_name, found.global_concurrency_limit.limit) == ("urgent", 1)


def test_a_mistake_is_told_with_its_line_and_nothing_is_deployed(small_file, prefect_api, capsys):
    text = small_file.read_text().replace("collision_strategy: CANCEL_NEW", "colision_strategy: CANCEL_NEW")
    broken = small_file.with_name("broken.yaml")
    broken.write_text(text)
    line = next(n for n, line in enumerate(text.splitlines(), start=1) if "colision" in line)
    for options in (["--dry-run"], []):
        assert dojo(["deploy", *options, "--file", str(broken)]) == 2
        error = capsys.readouterr().err
        assert (
            f"broken.yaml, line {line}: every-night: unknown key concurrency_limit.colision_strategy" in error
        )


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("deployments", 1, "parameters", "config", "train", "policy", "model"), "model: new"),
        (("deployments", 2, "parameters", "config", "train", "rollout", "sampling"), "sampling:"),
        (("deployments", 3, "parameters", "config", "train", "policy", "dtype"), "dtype: bfloat16"),
        (("deployments", "schedules", "cron"), "cron:"),
        (("pull", "prefect.deployments.steps.set_working_directory", "directory"), "directory:"),
        (("nothing",), None),
    ],
)
def test_the_line_of_a_setting_also_through_anchors_and_merges(path, words):
    line = line_of(PREFECT_YAML, path)
    assert (line is None) == (words is None)
    if words is not None:
        assert words in PREFECT_YAML.read_text().splitlines()[line - 1]


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("within: 240", "withing: 240", "unknown key trigger.withing"),
        ("posture: Proactive", "posture: Sleepy", "posture"),
        ("state: CRASHED", "state: GONE", "state"),
        ("body:", "boddy:", "no boddy"),
    ],
)
def test_an_automation_that_prefect_would_misread_is_refused(tmp_path, right, wrong, words):
    file = tmp_path / "automations.yaml"
    file.write_text(AUTOMATIONS_YAML.read_text().replace(right, wrong))
    with pytest.raises(ConfigError, match=words):
        load_automations(file, None)


def test_an_alert_without_a_block_only_leaves_its_event_and_with_one_is_sent():
    silent = load_automations(AUTOMATIONS_YAML, None)[1]["actions"]
    assert silent == [{"type": "do-nothing"}]
    block = {"type": "slack-webhook", "id": "3e19c039-fdd0-499a-8adc-a5f00a0f9328"}
    (told,) = load_automations(AUTOMATIONS_YAML, block)[1]["actions"]
    assert (told["type"], told["block_document_id"]) == ("send-notification", block["id"])
