"""A small real server that speaks the part of vLLM's protocol that training uses: BASE_FOLDER PORT [stale].

Completions of token ids with log-probabilities, and LoRA adapters by name, around transformers and PEFT.
Where a request does not say otherwise it samples from the TOP_K likeliest tokens, as vLLM does for models
whose generation_config.json has such a line. With `stale` it answers every load but the first with success
and goes on with the weights it had.
"""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import torch
from peft import PeftModel

from kernel_core.config import PolicyConfig
from kernel_core.policy.torch_policy import TorchPolicy

LOCK = threading.Lock()
TOP_K = 20


class Server:
    def __init__(self, base, stale):
        self.base, self.stale = base, stale
        self.policies = {}

    def load(self, name, path):
        if self.stale and self.policies:
            self.policies[name] = next(iter(self.policies.values()))
            return
        policy = TorchPolicy.load(self.base, PolicyConfig(max_context=512))
        model = PeftModel.from_pretrained(policy.model, path).eval()
        self.policies[name] = TorchPolicy(model, policy.tokenizer, policy.config, version=name)

    def complete(self, body):
        policy = self.policies[body["model"]]
        prompt = np.array(body["prompt"], np.int32)
        choice = {"prompt_token_ids": prompt.tolist()}
        if "prompt_logprobs" in body:
            scores = policy.logprobs(prompt[:1], prompt[1:], 1.0).tolist()
            named = zip(prompt[1:].tolist(), scores, strict=True)
            choice["prompt_logprobs"] = [None, *({str(t): {"logprob": s}} for t, s in named)]
        with likeliest(policy.model, body.get("top_k", TOP_K)):
            rows = policy._decode(
                [prompt],
                max_new=[body["max_tokens"]],
                uniforms_B_T=np.random.default_rng(body.get("seed", 0)).random((1, body["max_tokens"])),
                temperature=body["temperature"],
                end_ids=policy.end_ids,
                pad_id=0,
            )
        choice["token_ids"] = rows[0].token_ids.tolist()
        choice["logprobs"] = {"token_logprobs": rows[0].logprobs.tolist()}
        choice["finish_reason"] = "stop" if rows[0].stopped else "length"
        return {"model": body["model"], "choices": [choice]}


@contextmanager
def likeliest(model, top_k):
    """The model with the likeliest tokens alone; 0 and -1 keep all."""

    def keep(module, arguments, output):
        if top_k > 0:
            least = output.logits.topk(top_k).values[..., -1:]
            output.logits = output.logits.masked_fill(output.logits < least, -torch.inf)

    handle = model.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()


def handler_of(server):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with LOCK:
                status, answer = self.answer(body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def answer(self, body):
            if self.path == "/v1/load_lora_adapter":
                if body["lora_name"] in server.policies:
                    trouble = f"The lora adapter '{body['lora_name']}' has already been loaded."
                    return 400, {"error": {"message": trouble}}
                server.load(body["lora_name"], body["lora_path"])
                return 200, {}
            if self.path == "/v1/unload_lora_adapter":
                found = server.policies.pop(body["lora_name"], None)
                return (200 if found else 404), {}
            if body["model"] not in server.policies:
                return 404, {"error": f"no model {body['model']}"}
            return 200, server.complete(body)

        def log_message(self, *args):
            pass

    return Handler


if __name__ == "__main__":
    torch.set_num_threads(1)
    base, port, *rest = sys.argv[1:]
    listening = ThreadingHTTPServer(("127.0.0.1", int(port)), handler_of(Server(base, "stale" in rest)))
    print(listening.server_address[1], flush=True)
    listening.serve_forever()
