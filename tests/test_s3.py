"""A root in S3-compatible storage, on a real server that speaks S3."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_core.errors import Corrupt, NotFound
from kernel_core.runs.run_folder import Run
from kernel_core.store import Store

pytest.importorskip("s3fs", reason="s3fs is not installed")
REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bucket():
    """An empty bucket on a server of ours, to which the environment leads; its URI."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "any")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "any")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        s3fs.S3FileSystem().mkdir("dojo")
        yield "s3://dojo"
    server.stop()


def test_what_is_written_reads_back_checked_and_listed(bucket):
    store = Store(f"{bucket}/store").child("folder")
    sha = store.write("deep/file", b"content")
    assert store.read("deep/file", sha256=sha) == b"content"
    assert store.names() == ["deep"] and store.names("deep") == ["file"]
    with pytest.raises(NotFound, match="no complete thing"):
        store.open_sealed("thing")
    store.seal("thing", {"deep/file": sha}, meta={})
    assert store.open_sealed("thing").kind == "thing"
    store.write("deep/file", b"damaged")
    with pytest.raises(Corrupt, match=r"s3://dojo/store/folder/deep/file does not match"):
        store.open_sealed("thing")
    store.remove()
    assert not store.exists()


@pytest.mark.exhaustive
def test_another_process_sees_what_was_written_after_it_looked(bucket):
    """No listing is remembered: a parent must see what its child has made."""
    store = Store(f"{bucket}/seen")
    store.write("before", b"")
    assert store.names() == ["before"] and not store.exists("after")
    write = f"from kernel_core.store import Store; Store('{bucket}/seen').append_line('after', {{'n': 1}})"
    subprocess.run([sys.executable, "-c", write], check=True, cwd=REPOSITORY)
    assert store.exists("after") and store.names() == ["after", "before"]
    store.append_line("after", {"n": 2})
    assert [line["n"] for line in store.lines("after")] == [1, 2]


def test_storage_that_cannot_be_reached_is_one_clear_fault():
    code = """
from kernel_core.store import Store, StoreFault
store = Store("s3://nobody")
for ask in (lambda: store.write("x", b""), lambda: store.read("x"), store.names, lambda: store.exists("x")):
    try:
        ask()
    except StoreFault as fault:
        print(fault)
"""
    nowhere = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "a",
    }
    patient = {"AWS_MAX_ATTEMPTS": "1", "AWS_EC2_METADATA_DISABLED": "true"}
    command = [sys.executable, "-c", code]
    told = subprocess.run(
        command,
        cwd=REPOSITORY,
        env=os.environ | nowhere | patient,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert len(told) == 4
    assert all(line.startswith("could not ") and "s3://nobody" in line for line in told)


@pytest.mark.slow
def test_the_whole_pipeline_runs_in_a_bucket_and_a_second_time_has_nothing_to_do(bucket, tmp_path):
    command = [sys.executable, "-m", "flows.cli", "pipeline", "smoke", f"root={bucket}/runs"]
    environment = os.environ | {"PREFECT_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    for _ in range(2):
        done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert f"Files: {bucket}/runs/smoke/" in done.stdout
    run = Run(f"{bucket}/runs", "smoke")
    assert run.state().condition == "finished"
    assert len(run.stages()) == 7 and all(record.status == "done" for record in run.stages())
    assert [line["step"] for line in run.store.lines("metrics.jsonl")] == [0, 1, 2]
