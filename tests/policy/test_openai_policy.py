"""The endpoint policy against a real HTTP server that speaks the subset it needs."""

import json
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from prefect.states import Failed
from waiting import LIMIT_S, eventually

from kernel_core.config import EvaluateConfig, PolicyConfig, TrainConfig
from kernel_core.errors import ConfigError, SourceUnavailable
from kernel_core.policy import open_policy, openai_policy
from kernel_core.runs.configure import build
from tasks.faults import may_pass


class Endpoint:
    """Answers each request with its question's text, seed and index; misbehaves as told."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.statuses: list[int] = []
        """Statuses of the next answers; 200 when empty."""
        self.body: bytes | None = None
        self.most_answers = 99
        """Answers a request at most: a server that ignores `n` gives one."""
        self.message: dict = {}
        """Keys that replace those of each answer's message."""
        self.answer_headers: dict[str, str] = {}
        self.num_answered = 0
        self.hangs = threading.Event()
        self.hangs.set()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                endpoint.requests.append({"path": self.path, **request})
                endpoint.headers.append(dict(self.headers))
                endpoint.hangs.wait(LIMIT_S)
                endpoint.num_answered += 1
                status = endpoint.statuses.pop(0) if endpoint.statuses else 200
                choices = [
                    {
                        "message": {"content": f"{request['messages'][-1]['content']}/{request['seed']}/{i}"}
                        | endpoint.message,
                        "finish_reason": "length" if request["max_tokens"] == 1 else "stop",
                    }
                    for i in range(min(request["n"], endpoint.most_answers))
                ]
                body = endpoint.body or json.dumps({"choices": choices}).encode()
                self.send_response(status)
                for name, value in endpoint.answer_headers.items():
                    self.send_header(name, value)
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
    monkeypatch.setenv("DOJO_TEST_KEY", "secret-of-mine")
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
    assert endpoint.headers[0]["Authorization"] == "Bearer secret-of-mine"
    assert samples[0].token_ids is None and samples[0].policy_version == "m"


def test_a_cut_off_answer_says_so(policy):
    [sample] = policy.sample([ask("a")], temperature=1.0, max_new_tokens=1, seed=0)
    assert sample.finish_reason == "length"


def test_a_server_that_stumbles_is_asked_again(endpoint, policy):
    endpoint.statuses = [500, 503, 429]
    [sample] = policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=5)
    assert sample.text == "a/5/0" and len(endpoint.requests) == 4


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, b"wrong key: secret-of-mine", r"HTTP 401: wrong key: \[secret\]; check"),
        (403, b"no", "HTTP 403"),
        (404, b"no such model m", "refused a request for m: HTTP 404: no such model m"),
        (200, b"<html>hello</html>", "not a chat completion"),
        (200, b'{"choices": []}', "gave 0 answers"),
    ],
)
def test_a_permanent_error_is_told_at_once_and_never_tried_again(endpoint, policy, status, body, message):
    endpoint.statuses, endpoint.body = [status] * 9, body
    with pytest.raises(ConfigError, match=message) as refused:
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)
    assert len(endpoint.requests) == 1
    assert not may_pass(None, None, Failed(data=refused.value))


def test_one_small_request_finds_a_wrong_key_before_any_work(endpoint, policy):
    endpoint.statuses = [401]
    with pytest.raises(ConfigError, match="HTTP 401"):
        policy.check()
    assert endpoint.requests[0]["max_tokens"] == 16


def test_a_server_that_fails_again_and_again_is_one_clear_error(endpoint, policy):
    endpoint.statuses = [500] * 4
    with pytest.raises(SourceUnavailable, match="after 4 attempts"):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)


def test_a_server_that_ignores_n_is_asked_one_by_one(endpoint, policy):
    endpoint.most_answers = 1
    samples = policy.sample([ask("a")] * 3, temperature=1.0, max_new_tokens=9, seed=[7, 8, 9])
    assert [sample.text for sample in samples] == ["a/7/0", "a/8/0", "a/9/0"]
    assert [request["n"] for request in endpoint.requests] == [3, 1, 1]


def test_a_server_that_hangs_is_asked_twice_and_no_longer_than_was_set(endpoint):
    config = PolicyConfig(kind="openai", model="m", endpoint=endpoint.url, timeout_s=0.2)
    policy = open_policy(config)
    endpoint.hangs.clear()
    with pytest.raises(SourceUnavailable, match=r"within policy.timeout_s = 0\.2, twice"):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)
    endpoint.hangs.set()
    policy.close()


def test_an_interrupt_waits_for_no_request_and_begins_none(endpoint, policy):
    endpoint.hangs.clear()

    def interrupt():
        eventually(lambda: len(endpoint.requests) == 16)  # policy.concurrency
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        prompts = [ask(str(number)) for number in range(40)]
        policy.sample(prompts, temperature=1.0, max_new_tokens=9, seed=list(range(40)))
    assert endpoint.num_answered == 0, "the server still hangs"
    endpoint.hangs.set()
    time.sleep(0.3)
    assert len(endpoint.requests) == 16


def test_a_server_is_given_the_time_that_it_asks_for(endpoint, policy, monkeypatch):
    waited = []
    monkeypatch.setattr(openai_policy, "sleep", waited.append)
    endpoint.statuses, endpoint.answer_headers = [429, 503], {"Retry-After": "7"}
    policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)
    assert waited == [0.0, 7.0, 7.0]


def test_empty_answers_are_told_with_their_reason(endpoint, policy, caplog):
    endpoint.message = {"content": None, "reasoning_content": "hm"}
    with caplog.at_level("WARNING"):
        policy.sample([ask("a")] * 2, temperature=1.0, max_new_tokens=9, seed=0)
    assert "2 of 2 answers are empty, 2 of them after reasoning that used up the 9 tokens" in caplog.text


def test_empty_answers_without_reasoning_get_no_advice_about_tokens(endpoint, policy, caplog):
    endpoint.message = {"content": ""}
    with caplog.at_level("WARNING"):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)
    assert "1 of 1 answers are empty" in caplog.text and "max_new_tokens" not in caplog.text


def test_further_keys_of_a_request_are_sent_and_make_another_version(endpoint):
    config = PolicyConfig(kind="openai", model="m", endpoint=endpoint.url, extra_body={"top_p": 0.5})
    policy = open_policy(config)
    policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)
    assert endpoint.requests[0]["top_p"] == 0.5 and policy.version.startswith("m+")
    policy.close()


def test_nobody_listening_is_one_clear_error(policy, endpoint, monkeypatch):
    monkeypatch.setattr(policy, "_endpoint", "http://127.0.0.1:9/v1")
    with pytest.raises(SourceUnavailable, match="start the server"):
        policy.sample([ask("a")], temperature=1.0, max_new_tokens=9, seed=0)


@pytest.mark.parametrize("endpoint", [None, "localhost:8000/v1"])
def test_an_endpoint_must_be_a_url(endpoint):
    with pytest.raises(ConfigError, match=r"needs policy\.endpoint"):
        build(EvaluateConfig, {"policy": {"kind": "openai", "model": "m", "endpoint": endpoint}})


def test_a_model_behind_an_endpoint_is_not_trained():
    with pytest.raises(ConfigError, match="cannot be trained"):
        build(TrainConfig, {"policy": {"kind": "openai", "model": "m", "endpoint": "http://h/v1"}})
