"""The vLLM server of `sampler.kind: vllm`: started on its GPUs, watched, started again, asleep between turns.

It serves one model: the base of LoRA adapters, or the folder of `served_weights.py`. On this host it listens
to this host alone, on a node of a cluster to the node's network. Where learners or judges have its GPU too,
it sleeps while they work: its weights go to the host's memory, and its keys and values are dropped.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import httpx

from kernel_core.config import TrainConfig
from kernel_core.errors import SourceUnavailable, WorkersLost
from kernel_core.places.place import place_of_sampler
from kernel_core.policy.base import Base

log = logging.getLogger(__name__)

MOST_SEQUENCES = 256
"""Requests that the server has in work at once."""
_GRAPHS = (1, 2, 4, 8, 16, *range(32, MOST_SEQUENCES + 1, 32))
"""Numbers of sequences that have a CUDA graph. By itself vLLM records 51, most of a start's seconds."""
START_S = 900.0
"""Longest wait for a server that starts; the first start on a GPU compiles."""
_LOOK_EVERY_S = 0.5
_NOT_AGAIN_S = 30.0
"""After a start that failed, no other is tried for so long: many requests wait for the same server."""
_CALL_S = 60.0
_LOAD_S = 600.0
"""Longest wait for a server that reads new weights."""
_ALONE, _SHARED = 0.9, 0.5
"""Share of the GPU's memory that the server takes, alone and on a shared GPU."""
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Values of --max-lora-rank."""
_IN_VLLM = Path(__file__).parent / "in_vllm"
"""Module on the server's path with the extension of its workers."""
_SETTINGS = {
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # it has /sleep, /wake_up and /collective_rpc
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # needed for top-k and top-p alone; the package may be missing
}


def shares_gpu(config: TrainConfig) -> bool:
    """Return True if learners or judges share a GPU with the sampler."""
    place = config.placement
    return bool({*place.sample} & {*place.learn, *place.judge})


def command_for(config: TrainConfig, base: Base, host: str, port: int) -> list[str]:
    """Return the server's command line."""
    rank = config.policy.lora_rank
    command = [config.sampler.python or sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    settings = {
        "model": base.name,
        "host": host,
        "port": port,
        "max-model-len": config.policy.max_context,
        "max-num-seqs": MOST_SEQUENCES,
        "dtype": config.policy.dtype,
        # Log-probabilities after the temperature, and no filters from the model's generation_config.json.
        "logprobs-mode": "processed_logprobs",
        "generation-config": "vllm",
        "uvicorn-log-level": "warning",
    }
    if base.revision is not None:
        settings["revision"] = base.revision
    switches = []
    if rank is None:
        settings["worker-extension-cls"] = "weights_of_training.TakesWeights"
    else:
        switches.append("--enable-lora")
        settings |= {"max-lora-rank": next((most for most in _RANKS if most >= rank), rank), "max-loras": 2}
    if config.policy_on_gpu:
        settings["gpu-memory-utilization"] = _SHARED if shares_gpu(config) else _ALONE
        switches += ["--cudagraph-capture-sizes", *map(str, _GRAPHS)]
        if len(config.placement.sample) > 1:
            settings["data-parallel-size"] = len(config.placement.sample)
    else:
        switches.append("--enforce-eager")  # on a CPU compilation takes longer than it saves
    if shares_gpu(config):
        switches.append("--enable-sleep-mode")
    return (
        command + [part for name, value in settings.items() for part in (f"--{name}", str(value))] + switches
    )


class VllmProcess:
    """vLLM server that is started when it is needed. `log_file` takes its output."""

    def __init__(self, config: TrainConfig, base: Base, log_file: Path) -> None:
        self._config, self._base, self._log = config, base, log_file
        self._lock = threading.Lock()
        self._client = httpx.Client(timeout=_CALL_S)
        self._endpoint, self._is_up, self._is_asleep = "", False, False
        self._fault, self._not_before = "", 0.0
        self._places = place_of_sampler(config)
        [self._place] = self._places.each
        self._started()

    def endpoint(self) -> str:
        """Return the address of the server, once it is up and awake. Raises `SourceUnavailable`."""
        with self._lock:
            if not self._is_up:
                self._wait()
            self._wake()
            return self._endpoint

    @property
    def model(self) -> str:
        """Return the name of the served model."""
        return self._base.name

    def take_weights(self) -> None:
        """Reload the server's folder.

        A server that cannot is restarted, which reads the folder too. Raises `SourceUnavailable`.
        """
        with self._lock:
            if not self._is_up:
                self._wait()
            self._wake()
            if not self._has_taken():
                log.warning("the vLLM server took no weights; it is started again (its log: %s)", self._log)
                self._restart()

    def mend(self) -> None:
        """After a request that failed: start the server again, unless it is well."""
        with self._lock:
            if not self._is_up or (not self._place.has_ended() and self._is_healthy()):
                return
            log.warning("the vLLM server has died; it is started again (its log: %s)", self._log)
            self._restart()

    def sleep(self) -> None:
        """Leave the GPU to the roles that share it, if any does, until the next call of `endpoint`."""
        with self._lock:
            if self._is_up and not self._is_asleep and shares_gpu(self._config):
                self._is_asleep = self._call("/sleep?level=1")

    def close(self) -> None:
        """End the server and everything that it started."""
        with self._lock:  # requests that wait for it start no other
            self._is_up, self._not_before, self._fault = False, math.inf, "the vLLM server is closed"
            self._place.end()
            self._places.close()
            self._client.close()

    def _has_taken(self) -> bool:
        """Return True if the server has read its folder.

        vLLM leaves the call open when its engine dies in it, so its health is asked meanwhile. The call ends
        with the server.
        """
        with ThreadPoolExecutor(1) as thread:
            call = thread.submit(self._call, "/collective_rpc", {"method": "take_weights"}, _LOAD_S)
            while wait([call], _LOOK_EVERY_S).not_done:
                if not self._is_healthy():
                    self._place.end()
            return call.result()

    def _restart(self) -> None:
        self._place.end()
        self._is_up = False
        self._wait()

    def _wake(self) -> None:
        if self._is_asleep:
            self._is_asleep = not self._call("/wake_up")

    def _started(self) -> None:
        host, port = self._place.free_address()
        self._endpoint, self._is_up, self._is_asleep = f"http://{host}:{port}", False, False
        paths = [str(_IN_VLLM), os.environ.get("PYTHONPATH", "")]
        environment = _SETTINGS | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        self._place.start(command_for(self._config, self._base, host, port), environment, self._log)

    def _wait(self) -> None:
        """Wait until the server is up; one that has ended is started again first."""
        if time.monotonic() < self._not_before:
            raise SourceUnavailable(self._fault)
        if self._place.has_ended():
            try:
                self._started()
            except WorkersLost as error:
                raise self._failed(str(error)) from error
        give_up = time.monotonic() + START_S
        while not self._is_healthy():
            ended = self._place.has_ended()
            if ended or time.monotonic() > give_up:
                what = "ended" if ended else f"was not up after {START_S:.0f} s"
                self._place.end()
                raise self._failed(
                    f"the vLLM server {what}: {self._last_words()}; its log is {self._log}. Set "
                    "sampler.python to the Python of an environment with vLLM"
                )
            time.sleep(_LOOK_EVERY_S)
        self._is_up = True

    def _failed(self, fault: str) -> SourceUnavailable:
        """Return the error for all that wait for a server which could not be started."""
        self._not_before, self._fault = time.monotonic() + _NOT_AGAIN_S, fault
        return SourceUnavailable(fault)

    def _is_healthy(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self._client.get(f"{self._endpoint}/health").is_success
        return False

    def _call(self, path: str, body: object = None, timeout_s: float = _CALL_S) -> bool:
        """Return True if the server did it; one that is dead holds no memory, and `mend` starts another."""
        try:
            answer = self._client.post(self._endpoint + path, json=body, timeout=timeout_s)
        except httpx.HTTPError as error:
            log.warning("the vLLM server did not answer %s (%s)", path, error)
            return False
        if not answer.is_success:
            log.warning(
                "the vLLM server answered %s with %d: %s", path, answer.status_code, answer.text[:200]
            )
        return answer.is_success

    def _last_words(self) -> str:
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if "Error" in line]
        return (errors or lines or ["it said nothing"])[-1]
