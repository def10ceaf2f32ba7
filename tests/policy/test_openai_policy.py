"""The endpoint policy against a real HTTP server that speaks the subset it needs."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernel_core.config import PolicyConfig
from kernel_core.errors import ConfigError, SourceUnavailable
from kernel_core.policy import open_policy, openai_policy


class Endpoint:
    """Answers each request with its question's text, seed and index; misbehaves as told."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.statuses: list[int] = []
        """Statuses of the next answers; 200 when empty."""
        self.body: bytes | None = None
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append({"path": self.path, **request})
                endpoint.headers.append(dict(self.headers))
                status = endpoint.statuses.pop(0) if endpoint.statuses else 200
                choices = [
                    {
                        "message": {"content": f"{request['messages'][-1]['content']}/{request['seed']}/{i}"},
                        "finish_reason": "length" if request["max_tokens"] == 1 else "stop",
                    }
                    for i in range(request["n"])
                ]
                body = endpoint.body or json.dumps({"choices": choices}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def endpoint():
    endpoint = Endpoint()
    yield endpoint
    endpoint.stop()


@pytest.fixture
def policy(endpoint, monkeypatch):
    monkeypatch.setattr(openai_policy, "BACKOFF_S", 0.01)
    monkeypatch.setenv("DOJO_TEST_KEY", "secret")
    policy = open_policy(
        PolicyConfig(kind="openai", model="m", endpoint=endpoint.url, api_key_env="DOJO_TEST_KEY")
    )
    yield policy
    policy.close()


def ask(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_one_request_a_distinct_prompt_and_samples_in_order(endpoint, policy):
    prompts = [ask("a"), ask("b"), ask("a"), ask("a")]
    samples = policy.sample(prompts, temperature=0.8, max_new_tokens=50, seed=[1, 2, 3, 4])
    assert [sample.text for sample in samples] == ["a/1/0", "b/2/0", "a/1/1", "a/1/2"]
    assert {request["n"] for request in endpoint.requests} == {1, 3}
    assert all(request["path"] == "/v1/chat/completions" for request in endpoint.requests)
    assert all(request["temperature"] == 0.8 and request["model"] == "m" for request in endpoint.requests)
    assert endpoint.headers[0]["Authorization"] == "Bearer secret"
    assert samples[0].token_ids is None and samples[0].policy_version == "m"


def test_a_cut_off_answer_says_so(policy):
    [sample] = policy.sample([ask("a")], temperature=1.0, max_new_tokens=1, seed=0)
    assert sample.finish_reason == "length"


def test_a_server_that_stumbles_is_asked_again(endpoint, policy):
    endpoint.statuses = [500, 503, 429]
    [sample] = policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=5)
    assert sample.text == "a/5/0" and len(endpoint.requests) == 4


@pytest.mark.parametrize(
    ("statuses", "body", "message"),
    [
        ([500] * 4, None, "after 4 attempts"),
        ([404], b"no such model m", "refused a request for m: HTTP 404: no such model m"),
        ([200], b"<html>hello</html>", "not a chat completion"),
        ([200], b'{"choices": []}', "gave 0 answers"),
    ],
)
def test_an_endpoint_that_does_not_work_is_one_clear_error(endpoint, policy, statuses, body, message):
    endpoint.statuses, endpoint.body = statuses, body
    with pytest.raises(SourceUnavailable, match=message):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)


def test_nobody_listening_is_one_clear_error(policy, endpoint, monkeypatch):
    monkeypatch.setattr(policy, "_endpoint", "http://127.0.0.1:9/v1")
    with pytest.raises(SourceUnavailable, match="start the server"):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)


def test_an_endpoint_must_be_named():
    with pytest.raises(ConfigError, match=r"policy\.endpoint"):
        open_policy(PolicyConfig(kind="openai", model="m"))
