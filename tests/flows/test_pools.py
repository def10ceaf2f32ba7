"""What deploy/README.md says of hosts, containers and GPUs holds as it stands there."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml
from prefect.utilities.templating import apply_values

from flows.deployments import load_deployments
from flows.presets import PREFECT_YAML

POOLS = PREFECT_YAML.parent / "deploy" / "pools"


def filled(name, **values):
    """A template's job with its variables' defaults and these values."""
    template = json.loads((POOLS / name).read_text())
    properties = template["variables"]["properties"]
    defaults = {key: value.get("default") for key, value in properties.items()}
    asked = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(template["job_configuration"])))
    assert asked == set(properties), "every variable is used, and every one used is declared"
    return apply_values(template["job_configuration"], defaults | values)


def test_a_container_gets_its_gpus():
    job = filled("docker-cuda.json", gpu_count=2)
    (request,) = job["container_create_kwargs"]["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (2, [["gpu"]])


def test_a_pod_gets_its_gpus_and_time_to_fetch_its_image():
    job = filled("kubernetes-cuda.json", gpu_count=2, node_selector={"gpu": "h200"})
    pod = job["job_manifest"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert pod["nodeSelector"] == {"gpu": "h200"}
    assert job["pod_watch_timeout_seconds"] >= 600


def test_a_pod_has_its_secrets_and_the_shared_runs():
    job = filled("kubernetes-cpu.json", secret_name="keys", runs_claim="shared")
    pod = job["job_manifest"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["envFrom"] == [{"secretRef": {"name": "keys", "optional": True}}]
    assert {"name": "runs", "mountPath": "/runs"} in container["volumeMounts"]
    assert {"name": "runs", "persistentVolumeClaim": {"claimName": "shared"}} in pod["volumes"]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


def test_the_image_and_its_context():
    image = (POOLS.parent / "Dockerfile").read_text()
    assert "gcc" in image and "DOJO_ROOT=/runs" in image
    assert {".venv", ".git", "runs"} <= set((PREFECT_YAML.parent / ".dockerignore").read_text().split())


def test_compose_has_one_port_for_both_api_servers():
    compose = yaml.safe_load((POOLS.parent / "compose.yaml").read_text())
    ports = {name: one["ports"] for name, one in compose["services"].items() if "ports" in one}
    assert ports == {"proxy": ["4200:4200"]}
    upstream = compose["configs"]["proxy"]["content"]
    assert "server api:4200;" in upstream and "server api-2:4200;" in upstream


@pytest.mark.parametrize("name", ["docker-cuda.json", "kubernetes-cuda.json"])
def test_what_the_cuda_deployments_ask_for_is_a_variable_of_the_template(name):
    variables = json.loads((POOLS / name).read_text())["variables"]["properties"]
    assert {"env", "gpu_count"} <= set(variables)


def blocks_of_the_page():
    """The YAML blocks of deploy/README.md: the pull step, and a pool with a queue."""
    page = (POOLS.parent / "README.md").read_text()
    return [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]


def test_the_documented_pull_step_and_gpu_class_are_valid_in_our_file(tmp_path):
    pull, pool = blocks_of_the_page()
    content = yaml.safe_load(PREFECT_YAML.read_text()) | pull
    (chosen,) = [one for one in content["deployments"] if one["name"] == "learn-coder-7b"]
    chosen["work_pool"] = chosen["work_pool"] | pool["work_pool"]
    file = tmp_path / "prefect.yaml"
    file.write_text(yaml.safe_dump(content))
    deployments = {one.name: one for one in load_deployments(file, {"PWD": "/"})}
    trained = deployments["train/learn-coder-7b"]
    assert (trained.pool, trained.entry.work_pool.work_queue_name) == ("cuda", "h200")
    assert trained.entry.work_pool.job_variables["gpu_count"] == 1, "the rest of the pool is as before"
    assert all(one.pull == pull["pull"] for one in deployments.values())


CLONE_AND_LOAD = """
import os, sys
from prefect.deployments.steps import git_clone
os.chdir(git_clone(**eval(sys.argv[1]))["directory"])
from prefect.flows import load_flow_from_entrypoint
flow = load_flow_from_entrypoint("flows/index.py:index")
import kernel_core
print(flow.name, os.path.relpath(kernel_core.__file__))
"""


def test_a_worker_without_the_repository_loads_the_flows_of_a_clone(tmp_path):
    """The step of the page, run by Prefect, on a repository with our packages."""
    origin, worker = tmp_path / "kernel-dojo", tmp_path / "worker"
    worker.mkdir()
    for package in ("flows", "tasks", "kernel_core"):
        shutil.copytree(
            PREFECT_YAML.parent / package, origin / package, ignore=shutil.ignore_patterns("*.pyc")
        )
    git = ["git", "-C", str(origin), "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    pull, _ = blocks_of_the_page()
    (step,) = pull["pull"][0].values()
    asked = {"repository": origin.as_uri(), "branch": step["branch"]}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", CLONE_AND_LOAD, repr(asked)],
        cwd=worker,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["index", "kernel_core/__init__.py"], done.stdout


def test_a_class_and_a_number_of_gpus_are_chosen_for_a_single_run():
    page = (POOLS.parent / "README.md").read_text()
    selector, count = re.findall(r"--job-variable (?:'([^']*)'|(\S+))", page)
    values = dict(one.split("=", 1) for one in (selector[0], count[1]))
    job = filled("kubernetes-cuda.json", **{key: json.loads(value) for key, value in values.items()})
    pod = job["job_manifest"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 2
