"""What deploy/README.md says of hosts, containers and GPUs holds as it stands there."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
import yaml
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.utilities.asyncutils import run_coro_as_sync
from prefect.utilities.templating import apply_values
from prefect.variables import Variable
from prefect.workers.base import BaseJobConfiguration
from prefect.workers.process import ProcessWorker

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
    assert pod["parallelism"] == pod["completions"] == 1, "Prefect's worker refuses a job without them"
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    assert container["securityContext"] == {"allowPrivilegeEscalation": False}


def test_the_manifest_has_the_claim_and_the_secret_that_pods_ask_for():
    """`kubernetes_validate` checks each document by the schemas of Kubernetes, where it is installed."""
    documents = list(yaml.safe_load_all((POOLS.parent / "kubernetes.yaml").read_text()))
    names = {document["kind"]: document["metadata"]["name"] for document in documents}
    template = json.loads((POOLS / "kubernetes-cuda.json").read_text())
    variables = template["variables"]["properties"]
    assert names["PersistentVolumeClaim"] == variables["runs_claim"]["default"]
    assert names["Secret"] == variables["secret_name"]["default"]
    (worker,) = documents[-1]["spec"]["template"]["spec"]["containers"]
    assert worker["image"] == variables["image"]["default"]
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for document in documents:
        schemas.validate(document, schemas.latest_version(), strict=True)


def test_containers_of_compose_and_of_the_docker_pools_share_the_volume_of_runs():
    compose = yaml.safe_load((POOLS.parent / "compose.yaml").read_text())
    volume = compose["volumes"]["runs"]["name"]
    for name in ("docker-cpu.json", "docker-cuda.json"):
        variables = json.loads((POOLS / name).read_text())["variables"]["properties"]
        assert variables["volumes"]["default"] == [f"{volume}:/runs"]


@pytest.mark.parametrize("name", ["kubernetes-cpu.json", "kubernetes-cuda.json"])
def test_prefects_worker_and_kubernetes_own_schema_take_the_job(name, prefect_api):
    """Needs packages that a host without Kubernetes lacks; deploy/README.md has the command."""
    worker = pytest.importorskip("prefect_kubernetes.worker", reason="prefect-kubernetes is not installed")
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    template = json.loads((POOLS / name).read_text())
    asked = {"env": {"DO_NOT_TRACK": "1"}, "node_selector": {"gpu": "h200"}}
    made = worker.KubernetesWorkerJobConfiguration.from_template_and_values(template, asked)
    job = run_coro_as_sync(made)
    job.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="night"))
    manifest = job.job_manifest
    pod = manifest["spec"]["template"]["spec"]
    assert {"name": "DO_NOT_TRACK", "value": "1"} in pod["containers"][0]["env"]
    # Prefect asks for these two in the pod, where Kubernetes has no such fields and drops them.
    assert pod.pop("parallelism") == pod.pop("completions") == 1
    schemas.validate(manifest, schemas.latest_version(), strict=True)
    pod["nodeSelektor"] = {}
    with pytest.raises(schemas.ValidationError, match="nodeSelektor"):
        schemas.validate(manifest, schemas.latest_version(), strict=True)


@pytest.mark.parametrize("name", ["docker-cpu.json", "docker-cuda.json"])
def test_prefects_docker_worker_takes_the_container(name, prefect_api):
    worker = pytest.importorskip("prefect_docker.worker", reason="prefect-docker is not installed")
    template = json.loads((POOLS / name).read_text())
    job = run_coro_as_sync(worker.DockerWorkerJobConfiguration.from_template_and_values(template, {}))
    job.prepare_for_flow_run(FlowRun(id=uuid4(), flow_id=uuid4(), name="night"))
    assert job.image == template["variables"]["properties"]["image"]["default"]


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


CLONE_AND_LOAD = """
import os, sys
from prefect.deployments.steps import git_clone
os.chdir(git_clone(**eval(sys.argv[1]))["directory"])
from prefect.flows import load_flow_from_entrypoint
flow = load_flow_from_entrypoint("flows/index.py:index")
import kernel_core
print(flow.name, os.path.relpath(kernel_core.__file__))
"""


@pytest.mark.exhaustive
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


def with_the_pages_env(template):
    """A pool's template with the `env` of deploy/README.md as its default."""
    page = (POOLS.parent / "README.md").read_text()
    (env,) = (json.loads(text) for text in re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    template["variables"]["properties"]["env"]["default"] = env
    return template


@pytest.fixture(scope="module")
def stored(prefect_api, tmp_path_factory):
    """The variable and the block of the page, on the server; gives the root that they name."""
    root = str(tmp_path_factory.mktemp("stored") / "runs")
    Variable.set("dojo_root", root, overwrite=True)
    checkout = tmp_path_factory.mktemp("kernelbench")
    for level in (1, 2, 3, 4):
        folder = checkout / "KernelBench" / f"level{level}"
        folder.mkdir(parents=True)
        shutil.copy(PREFECT_YAML.parent / "data" / "problems" / "huber_mean.py", folder / "1_Huber.py")
    Variable.set("kernelbench_root", str(checkout), overwrite=True)
    Secret(value="sesame").save("endpoint-key", overwrite=True)
    return root


def templates():
    """Templates of every kind of pool, by name."""
    shipped = {file.name: json.loads(file.read_text()) for file in sorted(POOLS.glob("*.json"))}
    return shipped | {"process": ProcessWorker.get_default_base_job_template()}


@pytest.mark.parametrize("kind", templates())
def test_a_run_gets_its_root_and_key_from_the_server(kind, stored):
    template = with_the_pages_env(templates()[kind])
    asked = {"env": {"DO_NOT_TRACK": "1"}}
    job = run_coro_as_sync(BaseJobConfiguration.from_template_and_values(template, asked))
    checkout = Variable.get("kernelbench_root")
    given = {"DOJO_ROOT": stored, "KERNELBENCH_ROOT": checkout, "OPENAI_API_KEY": "sesame"}
    assert job.env == given | {"DO_NOT_TRACK": "1"}


@pytest.mark.exhaustive
def test_a_worker_writes_to_the_root_that_the_server_names_and_no_deployment_has_the_key(
    stored, prefect_api, tmp_path
):
    """The commands of the page: deploy, change the pool, and let a worker run one stage."""
    content = yaml.safe_load(PREFECT_YAML.read_text())
    content["deployments"] = [one for one in content["deployments"] if one["name"] == "generated-corpus"]
    pull = {"prefect.deployments.steps.set_working_directory": {"directory": str(PREFECT_YAML.parent)}}
    content["pull"] = [pull]
    content["deployments"][0]["work_pool"] = {"name": "stored"}
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(content))
    (tmp_path / "flows").symlink_to(PREFECT_YAML.parent / "flows")
    (tmp_path / "pool.json").write_text(json.dumps(with_the_pages_env(templates()["process"])))
    environment = os.environ | {"PREFECT_API_URL": prefect_api, "PYTHONPATH": str(PREFECT_YAML.parent)}
    environment.pop("DOJO_ROOT", None)
    small = json.dumps({"generator_rows": 10})
    for command in (
        ["flows.cli", "deploy", "--file", str(tmp_path / "prefect.yaml")],
        ["prefect", "work-pool", "update", "stored", "--base-job-template", str(tmp_path / "pool.json")],
        ["prefect", "deployment", "run", "ingest/generated-corpus", "-p", f"config={small}"],
        ["prefect", "worker", "start", "--pool", "stored", "--run-once"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "sesame" not in done.stdout + done.stderr
    assert (Path(stored) / "corpus" / "snapshot" / "manifest.json").exists(), done.stdout + done.stderr
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name("ingest/generated-corpus")
        pool = client.read_work_pool("stored")
    assert "sesame" not in deployment.model_dump_json() + pool.model_dump_json()
