"""The job templates under deploy/pools: every setting has its variable, and GPUs arrive where asked for."""

import json
import re

import pytest
import yaml
from prefect.utilities.templating import apply_values

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
