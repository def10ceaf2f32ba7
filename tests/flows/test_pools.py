"""The job templates under deploy/pools: every setting has its variable, and GPUs arrive where asked for."""

import json
import re

import pytest
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


@pytest.mark.parametrize("name", ["docker-cuda.json", "kubernetes-cuda.json"])
def test_what_the_cuda_deployments_ask_for_is_a_variable_of_the_template(name):
    variables = json.loads((POOLS / name).read_text())["variables"]["properties"]
    assert {"env", "gpu_count"} <= set(variables)
