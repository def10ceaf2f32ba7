"""`prefect.yaml` is checked as Prefect does not check it."""

import pytest
import yaml

from flows.deployments import load_deployments
from flows.presets import PREFECT_YAML, STAGES
from flows.route import child_of
from kernel_core.errors import ConfigError

ENVIRONMENT = {"PWD": "/somewhere"}


def changed(tmp_path, change):
    """Our own file with one thing changed."""
    content = yaml.safe_load(PREFECT_YAML.read_text())
    change(content)
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_the_file_is_valid_and_has_every_flow():
    deployments = load_deployments(PREFECT_YAML, ENVIRONMENT)
    assert {deployment.stage for deployment in deployments} == set(STAGES)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_stage_that_a_pipeline_starts_has_one_deployment_on_each_pool(kind):
    deployments = {deployment.name: deployment for deployment in load_deployments(PREFECT_YAML, ENVIRONMENT)}
    tag = f"stage-{kind}"
    for stage in ("index", "cold-start", "train", "evaluate", "best-of-n"):
        child = child_of(stage, tag)
        assert deployments[child].pool == kind
        tagged = [one.name for one in deployments.values() if one.stage == stage and tag in one.entry.tags]
        assert tagged == [child]
    assert deployments[child_of("ingest", "stage-cpu")].pool == "cpu"
    with pytest.raises(ConfigError, match="no deployment of ingest"):
        child_of("ingest", "stage-cuda")


def test_only_what_writes_one_folder_runs_one_at_a_time_so_that_no_gpu_is_kept_idle():
    for deployment in load_deployments(PREFECT_YAML, ENVIRONMENT):
        starts_deployments = deployment.entry.parameters.get("mode") == "deployed"
        if "cuda" in deployment.entry.tags and not starts_deployments:
            assert deployment.pool == "cuda"
        limit = deployment.entry.concurrency_limit
        assert (getattr(limit, "limit", limit) == 1) == (deployment.stage in ("promote", "nightly"))


def test_the_schedule_of_the_nightly_is_off_until_it_is_switched_on():
    entries = yaml.safe_load(PREFECT_YAML.read_text())["deployments"]
    schedules = [schedule for entry in entries for schedule in entry.get("schedules", ())]
    assert [schedule["active"] for schedule in schedules] == ["{{ every_night_is_on }}"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["deployments"][0].update(concurency_limit=1), "did you mean .*concurrency_limit"),
        (lambda c: c["deployments"][0]["work_pool"].update(nme="cpu"), "did you mean .*name"),
        (lambda c: c["deployments"][-1]["schedules"][0].update(max_scheduled_runs=1), "unknown key"),
        (
            lambda c: c["deployments"][0].update(entrypoint="flows/nothing.py:nothing"),
            "no flow at entrypoint",
        ),
        (lambda c: c["deployments"][0]["parameters"]["config"].update(trian={}), "did you mean train"),
        (lambda c: c["deployments"][0]["parameters"].update(moode="inline"), "did you mean mode"),
        (lambda c: c["deployments"].append(c["deployments"][0]), "twice"),
        (lambda c: c["deployments"][-1]["schedules"][0].update(cron="0 25 * * *"), "Invalid cron string"),
        (lambda c: c["deployments"][-1]["schedules"][0].update(timezone="Mars/Base"), "Invalid timezone"),
        (
            lambda c: c["deployments"][-1]["schedules"][0].update(parameters={"wtch": []}),
            "did you mean watch",
        ),
        (lambda c: c["deployments"][-1]["schedules"][0].update(interval=60), "Exactly one of"),
        (lambda c: c["deployments"][0].update(triggers=[{"type": "event", "posture": "Sleepy"}]), "Reactive"),
        (lambda c: c.update(deployments=[]), "deployments"),
    ],
)
def test_what_prefect_ignores_is_refused(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        load_deployments(changed(tmp_path, change), ENVIRONMENT)


def test_a_variable_that_is_not_set_is_refused():
    with pytest.raises(ConfigError, match=r"\$PWD"):
        load_deployments(PREFECT_YAML, {})


@pytest.mark.parametrize("where", ["parameters", "job_variables"])
def test_a_block_whose_value_prefect_would_store_readable_is_refused(tmp_path, where):
    def with_it(content):
        entry = content["deployments"][0]
        reference = {"env": {"KEY": "{{ prefect.blocks.secret.key }}"}}
        if where == "parameters":
            entry["parameters"] = reference
        else:
            entry["work_pool"] = {"name": "cpu", "job_variables": reference}

    with pytest.raises(ConfigError, match=r"line \d+: quickstart: .*template of the work pool"):
        load_deployments(changed(tmp_path, with_it), ENVIRONMENT)


@pytest.mark.parametrize(
    "change",
    [
        {"schedules": [{"interval": 3600}]},
        {"schedules": [{"interval": "PT1H", "timezone": "Europe/Berlin", "active": False}]},
        {"schedules": [{"rrule": "FREQ=DAILY;BYHOUR=3"}]},
        {"schedules": [{"cron": "0 3 * * *"}]},
        {"schedules": [{"cron": "0 3 * * *", "parameters": {"config": {"steps": 2}}}]},
        {"concurrency_limit": 1},
        {"work_pool": {"name": "gpus-of-the-lab", "work_queue_name": "urgent"}},
        {"work_pool": None},
        {"version": "1.2", "tags": "one", "description": None},
        {"build": [], "push": None},
        {"pull": [{"prefect.deployments.steps.git_clone": {"repository": "https://host/repo"}}]},
        {"pull": [{"my.step": {"credentials": "{{ prefect.blocks.secret.key }}"}}]},
        {"triggers": [{"type": "event", "expect": ["external.data.arrived"], "match": {}}]},
    ],
)
def test_what_prefect_accepts_is_accepted(tmp_path, change):
    def with_it(content):
        entry = next(e for e in content["deployments"] if e["entrypoint"].startswith("flows/train"))
        entry.update(change)

    assert load_deployments(changed(tmp_path, with_it), ENVIRONMENT)
