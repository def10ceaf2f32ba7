"""The judge over HTTP: verdicts, keys, room, and what becomes of calls when things die."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from exploit_files import PROBLEMS, SMALL_SOFTMAX, text_of
from http_server import is_healthy
from judge_load import judged_by_service, judges_killed, put_load, silent_client
from waiting import LIMIT_S, eventually

from kernel_core.errors import ConfigError, GymUnavailable, NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.gym.contract.version import GYM_VERSION
from kernel_core.gym.pool.pool import PooledGym
from kernel_core.records import Candidate, NoCandidate, Verdict
from kernel_core.serve.body_limit import MOST_BYTES
from kernel_core.serve.client import JudgeClient
from kernel_core.serve.messages import JudgeCall

HONEST = text_of("honest_softmax")
KEYS = ("key-of-ada-0123456789", "key-of-bea-0123456789")
KEY = KEYS[0]
Serve = Callable[..., AbstractContextManager[str]]


def _call(**changes: Any) -> JudgeCall:
    values = {"id": uuid.uuid4().hex, "problem": SMALL_SOFTMAX.source, "kernel": HONEST, "seed": 1}
    return JudgeCall.model_validate(values | changes)


class Held:
    """The real gym, whose judgements begin once it is told that they may."""

    def __init__(self, gym: PooledGym) -> None:
        self._gym, self.asked, self._may_begin = gym, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._gym, name)

    def judge_each(self, requests: Any) -> Any:
        self.asked.set()
        self._may_begin.wait(LIMIT_S)
        return self._gym.judge_each(requests)

    def begins_once(self, holds: Callable[[], bool]) -> None:
        """Begin when this holds; another thread asks."""
        threading.Thread(target=lambda: (eventually(holds), self._may_begin.set()), daemon=True).start()


def _post(url: str, path: str, body: Any, key: str = KEY) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}{path}", json=body, headers=headers, timeout=LIMIT_S)


def test_the_client_is_a_gym(url: str, gym: PooledGym) -> None:
    problem = PROBLEMS["softmax_rows"]
    requests = [
        JudgeRequest(problem=problem, candidate=Candidate.from_source(HONEST), seed=3),
        JudgeRequest(problem=problem, candidate=NoCandidate(reason="no <KERNEL> block"), seed=3),
        JudgeRequest(problem=problem, candidate=Candidate.from_source(HONEST), seed=3, sizes={"M": 3}),
    ]
    seen: list[int] = []
    with JudgeClient(url, KEY) as client:
        served = client.judge(requests, lambda label, done, total: seen.append(done))
        assert client.version == GYM_VERSION
        assert client.taken_out == ()
    here = gym.judge(requests)
    ignored = {"seconds", "phases_s"}
    assert [one.model_dump(exclude=ignored) for one in served] == [
        one.model_dump(exclude=ignored) for one in here
    ]
    assert seen == [1, 2, 3]


def test_a_whole_completion_is_parsed_by_the_service(url: str) -> None:
    with JudgeClient(url, KEY) as client:
        wrapped = _call(kernel=None, completion=f"<think>rows</think><KERNEL>{HONEST}</KERNEL>")
        assert client.ask(wrapped).correct
        assert client.ask(_call(kernel=None, completion="no idea")).verdict is Verdict.MALFORMED


@pytest.mark.parametrize("authorization", [None, "Bearer wrong", "Basic !!", f"Digest {KEY}"])
def test_a_wrong_key_is_refused(url: str, authorization: str | None) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    answers = [
        httpx.post(f"{url}/v1/judge", json=_call().model_dump(), headers=headers),
        httpx.get(f"{url}/metrics", headers=headers),
        httpx.post(f"{url}/reset", json={}, headers=headers),
    ]
    assert [one.status_code for one in answers] == [401] * 3


def _metrics(url: str) -> str:
    return httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {KEY}"}).text


def test_a_wrong_key_is_an_error_of_the_caller(url: str) -> None:
    with JudgeClient(url, "wrong") as client, pytest.raises(ConfigError, match="wrong key"):
        client.ask(_call())


def test_what_is_no_call_is_refused_in_words(url: str) -> None:
    two = _call().model_dump() | {"completion": "text"}
    assert "exactly one" in _post(url, "/v1/judge", two).json()["message"]
    with JudgeClient(url, KEY) as client:
        with pytest.raises(NotAProblem, match="class Model"):
            client.ask(_call(problem="x = 1"))
        with pytest.raises(ConfigError, match="no constant K"):
            client.ask(_call(sizes={"K": 1}))


@pytest.mark.parametrize("content_type", [None, "application/x-www-form-urlencoded"])
def test_json_needs_no_content_type(url: str, content_type: str | None) -> None:
    headers = {"Authorization": f"Bearer {KEY}"} | ({"Content-Type": content_type} if content_type else {})
    call = _call(kernel="class ModelNew(:").model_dump_json()
    answer = httpx.post(f"{url}/v1/judge", content=call.encode(), headers=headers, timeout=LIMIT_S)
    assert answer.json()["evaluation"]["verdict"] == "malformed"
    for body, words in ((b"{bad", "body: invalid json"), (b'{"id": "short"}', "body.id: ")):
        refused = httpx.post(f"{url}/v1/judge", content=body, headers=headers)
        assert refused.status_code == 422 and refused.json()["message"].startswith(words)


def test_a_body_that_is_too_large_is_refused(url: str) -> None:
    answer = _post(url, "/v1/judge", _call(kernel="#" * (MOST_BYTES + 1)).model_dump())
    assert answer.status_code == 413
    assert answer.json() == {
        "error": "ConfigError",
        "message": f"the body is larger than {MOST_BYTES} bytes",
    }
    assert httpx.get(f"{url}/health").json()["status"] == "ok"


def test_a_repeated_call_is_judged_once_and_an_id_serves_one_call(url: str) -> None:
    call = _call(seed=77, rejudge=True)
    before = judged_by_service(url, KEY)["correct"]
    with JudgeClient(url, KEY) as client:
        first, again = client.ask(call), client.ask(call)
        assert again == first  # the seconds too
        with pytest.raises(ConfigError, match="used for another call"):
            client.ask(call.model_copy(update={"seed": 78}))
    assert judged_by_service(url, KEY)["correct"] == before + 1


def test_ids_of_two_clients_are_apart(url: str) -> None:
    call = _call(seed=79, rejudge=True).model_dump()
    answers = [_post(url, "/v1/judge", call, key).json() for key in KEYS]
    assert answers[0]["evaluation"]["seconds"] != answers[1]["evaluation"]["seconds"]


def test_calls_beyond_the_room_are_refused_and_the_client_asks_again(gym: PooledGym, serve: Serve) -> None:
    held = Held(gym)
    with serve(held, capacity=2, share=1) as url:
        held.begins_once(lambda: 'dojo_refused_total{error="Busy"}' in _metrics(url))
        requests = [
            JudgeRequest(problem=SMALL_SOFTMAX, candidate=Candidate.from_source(f"{HONEST}\n# {n}"), seed=n)
            for n in range(4)
        ]
        with JudgeClient(url, KEY, at_once=4) as client:
            assert all(one.correct for one in client.judge(requests))
        metrics = _metrics(url)
        assert 'dojo_refused_total{error="Busy"}' in metrics
        assert "dojo_in_work 0.0" in metrics


def test_a_service_that_is_gone_is_said_so() -> None:
    with JudgeClient("nowhere", KEY) as client, pytest.raises(ConfigError, match="nowhere"):
        client.ask(_call())
    with JudgeClient("http://127.0.0.1:9", KEY, patience_s=0.1) as client:
        with pytest.raises(GymUnavailable, match="no answer of"):
            client.ask(_call())
        with pytest.raises(GymUnavailable, match="no judge service"):
            client.health()


@pytest.mark.exhaustive
def test_under_load_no_call_is_lost_or_judged_twice(gym: PooledGym, serve: Serve) -> None:
    """Judges are killed, connections are cut, and one client never reads."""
    with serve(gym, capacity=32, share=32) as url:
        with silent_client(url, KEY) as sent, judges_killed(os.getpid(), 1.0, most=3) as killed:
            load = put_load(url, list(KEYS), 24, clients=12)
        judged = judged_by_service(url, KEY)
    assert load.faults == []
    assert len(load.seconds) == 24
    assert load.num_cut > 0
    assert killed
    assert sent
    assert {verdict: n for verdict, n in judged.items() if verdict != "malformed"} == load.verdicts


def test_calls_in_work_are_finished_when_the_service_stops(gym: PooledGym, serve: Serve) -> None:
    """The judgement begins when the service takes no calls any more."""
    answers: list[httpx.Response] = []
    held = Held(gym)
    with serve(held) as url:
        body = _call(seed=91, rejudge=True).model_dump()
        asking = threading.Thread(target=lambda: answers.append(_post(url, "/v1/judge", body)))
        asking.start()
        assert held.asked.wait(LIMIT_S)
        assert httpx.get(f"{url}/health").json()["in_work"] == 1
        held.begins_once(lambda: not is_healthy(url))
    asking.join()
    assert [one.status_code for one in answers] == [200]
