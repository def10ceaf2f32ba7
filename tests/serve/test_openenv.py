"""OpenEnv's interface: reset, step and state over HTTP and over a WebSocket."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from exploit_files import text_of
from waiting import LIMIT_S
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

KEY = "key-of-ada-0123456789"
HEADERS = {"Authorization": f"Bearer {KEY}"}
SOFTMAX = "problems/softmax_rows"


def _answer(name: str) -> str:
    return f"<think>rows</think>\n<KERNEL>\n{text_of(name)}\n</KERNEL>"


def _post(url: str, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{url}{path}", json=body, headers=HEADERS, timeout=LIMIT_S)


def _say(socket: ClientConnection, type_: str, **data: Any) -> dict[str, Any]:
    socket.send(json.dumps({"type": type_, "data": data} if data else {"type": type_}))
    return json.loads(socket.recv(timeout=LIMIT_S))


def test_an_episode_over_http(url: str) -> None:
    begun = _post(url, "/reset", {"problem_id": SOFTMAX, "seed": 1}).json()
    assert [one["role"] for one in begun["observation"]["messages"]] == ["system", "user"]
    assert not begun["done"]
    id_ = begun["observation"]["metadata"]["episode_id"]
    first = _post(url, "/step", {"episode_id": id_, "action": {"completion": "no kernel"}}).json()
    assert first["observation"]["verdict"] == "malformed"
    assert first["observation"]["messages"][-2:][0]["role"] == "assistant"
    assert first["reward"] == 0.0
    last = _post(
        url, "/step", {"episode_id": id_, "action": {"completion": _answer("honest_softmax")}}
    ).json()
    assert last["observation"]["verdict"] == "correct"
    assert last["reward"] > 1.0
    assert last["done"]
    assert last["observation"]["messages"] == []
    state = httpx.get(f"{url}/state", params={"episode_id": id_}, headers=HEADERS).json()
    assert state["step_count"] == 2
    assert state["done"]
    assert state["total_reward"] == pytest.approx(last["reward"])
    over = _post(url, "/step", {"episode_id": id_, "action": {"completion": "more"}})
    assert over.status_code == 422
    assert "reset" in over.json()["message"]


def test_an_episode_over_a_websocket(url: str) -> None:
    with connect(url.replace("http", "ws") + "/ws", additional_headers=HEADERS) as socket:
        begun = _say(socket, "reset", problem_id=SOFTMAX, seed=1)
        assert begun["type"] == "observation"
        step = _say(socket, "step", completion=_answer("honest_softmax"))
        assert step["data"]["observation"]["verdict"] == "correct"
        assert _say(socket, "state")["data"]["step_count"] == 1
        socket.send(json.dumps({"type": "close"}))
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=10)


def test_the_key_may_be_in_the_url_of_a_websocket(url: str) -> None:
    with connect(url.replace("http://", f"ws://any:{KEY}@") + "/ws") as socket:
        assert _say(socket, "state") == {
            "type": "state",
            "data": {
                "episode_id": None, "step_count": 0, "problem_id": None, "total_reward": 0.0, "done": False
            },
        }  # fmt: skip
    with pytest.raises(InvalidStatus), connect(url.replace("http", "ws") + "/ws"):
        pass


def test_an_invalid_message_is_answered_and_the_session_goes_on(url: str) -> None:
    with connect(url.replace("http", "ws") + "/ws", additional_headers=HEADERS) as socket:
        for message, code in (
            ("{", "INVALID_JSON"),
            ('{"type": "dance"}', "VALIDATION_ERROR"),
            ("[]", "VALIDATION_ERROR"),
            ('{"type": "step", "data": {"completion": "early"}}', "VALIDATION_ERROR"),
            ('{"type": "reset", "data": {"problem_id": "none"}}', "VALIDATION_ERROR"),
            ('{"type": "step", "data": {"kernel": 1}}', "VALIDATION_ERROR"),
        ):
            socket.send(message)
            assert json.loads(socket.recv(timeout=10))["data"]["code"] == code, message
        assert _say(socket, "reset", problem_id=SOFTMAX)["type"] == "observation"


def test_the_same_seed_draws_the_same_problem(url: str) -> None:
    drawn = [
        _post(url, "/reset", {"seed": seed}).json()["observation"]["problem_id"] for seed in (7, 7, 8, 9)
    ]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_an_unknown_episode_is_not_found(url: str) -> None:
    answer = _post(url, "/step", {"episode_id": "none", "action": {"completion": "x"}})
    assert answer.status_code == 404
    assert set(httpx.get(f"{url}/schema").json()) == {"action", "observation", "state"}
