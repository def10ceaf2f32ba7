"""A real vLLM server, in an environment of its own that DOJO_VLLM_PYTHON names; see docs/policy.md."""

import os
import signal
import subprocess
import time

import httpx
import pytest

PYTHON = os.environ.get("DOJO_VLLM_PYTHON")
needs_vllm = [
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON is None, reason="DOJO_VLLM_PYTHON names no environment with vLLM"),
]


class Served:
    """Serves a policy's folder and its adapters on a port."""

    def __init__(self, base, port, max_context=512):
        self.base, self.port, self.max_context = base, port, max_context
        self.endpoint = f"http://127.0.0.1:{port}"
        self.start()

    def start(self):
        environment = os.environ | {
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        self.process = subprocess.Popen(
            [
                *(PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.base)),
                *("--port", str(self.port), "--enable-lora", "--max-lora-rank", "16", "--max-loras", "2"),
                *("--dtype", "float32", "--max-model-len", str(self.max_context), "--enforce-eager"),
                *("--logprobs-mode", "processed_logprobs"),
            ],
            env=environment,
            start_new_session=True,
        )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                if httpx.get(f"{self.endpoint}/health", timeout=5).is_success:
                    return
            except httpx.HTTPError:
                time.sleep(1)
        raise AssertionError("vLLM did not come up")

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
