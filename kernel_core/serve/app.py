"""The HTTP application of the judge service."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Query, Request, WebSocket, WebSocketDisconnect
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ValidationError

from kernel_core.dialogue.environment import EpisodeSource
from kernel_core.errors import CallerError, ConfigError, DojoError, NotFound
from kernel_core.gym.contract.requests import JudgeRequest
from kernel_core.records import Evaluation
from kernel_core.serve.body_limit import BodyLimit
from kernel_core.serve.dispatcher import Busy, Conflict, Dispatcher
from kernel_core.serve.keys import Keys
from kernel_core.serve.messages import Health, JudgeCall, Judged, Refusal
from kernel_core.serve.openenv import Environment, Episodes, answer, schema

RETRY_AFTER_S = 1
"""Delay after which a client that was refused for lack of room retries."""


class WrongKey(DojoError):
    """A request without a key of a client."""


def create_app(
    dispatcher: Dispatcher, keys: Keys, source: EpisodeSource | None, *, only_known: bool = False
) -> FastAPI:
    """Create the service. Without a `source` of episodes there is no OpenEnv interface.

    With `only_known`, calls may name no other problem than those of the `source`.
    """
    known = {problem.sha256 for problem in source.problems.values()} if source is not None else set()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await dispatcher.drain()

    app = FastAPI(title="Kernel Dojo judge", lifespan=lifespan, strict_content_type=False)
    app.add_middleware(BodyLimit)

    def client_of(authorization: str | None = Header(None)) -> str:
        client = keys.client_of(authorization)
        if client is None:
            raise WrongKey("wrong key; send the header `Authorization: Bearer KEY`")
        return client

    @app.exception_handler(DojoError)
    async def refuse(request: Request, error: DojoError) -> JSONResponse:
        dispatcher.metrics.refused.labels(error=type(error).__name__).inc()
        return _refusal(error)

    @app.exception_handler(RequestValidationError)
    async def refuse_body(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return await refuse(request, ConfigError(f"{where}: {first['msg'].lower()}"))

    @app.get("/health")
    async def health() -> JSONResponse:
        state = _health(dispatcher)
        return JSONResponse(state.model_dump(mode="json"), 200 if state.judges else 503)

    @app.get("/metrics")
    async def metrics(client: str = Depends(client_of)) -> Response:
        dispatcher.metrics.judges.set(len(dispatcher.gym.places))
        return Response(dispatcher.metrics.text(), media_type="text/plain; version=0.0.4")

    @app.post("/v1/judge")
    async def judge(
        call: Annotated[JudgeCall, Depends(_call_in)], client: str = Depends(client_of)
    ) -> Judged:
        request = await asyncio.to_thread(call.request)
        if only_known and request.problem.sha256 not in known:
            raise NotFound(f"the problem is none of the {len(known)} of this service, and it takes no other")
        return Judged(id=call.id, evaluation=await dispatcher.judge(client, call.id, request))

    if source is not None:
        _add_openenv(app, dispatcher, keys, source, Depends(client_of))
    return app


async def _call_in(request: Request) -> JudgeCall:
    """Read the call in a JSON body, whatever its content type: curl's `-d` sends that of a form."""
    try:
        return JudgeCall.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError(
            [detail | {"loc": ("body", *detail["loc"])} for detail in error.errors()]
        ) from error


def _add_openenv(
    app: FastAPI, dispatcher: Dispatcher, keys: Keys, source: EpisodeSource, by_key: Any
) -> None:
    def make(client: str) -> Environment:
        secret = uuid.uuid4().hex  # two episodes with one id are judged apart

        async def judged(id: str, request: JudgeRequest) -> Evaluation:
            return await _patiently(dispatcher, client, f"{secret}/{id}", request)

        return Environment(source, judged)

    episodes = Episodes(make)

    @app.post("/reset")
    async def reset(body: dict[str, Any], client: str = by_key) -> dict[str, Any]:
        return (await episodes.reset(client, body)).model_dump()

    @app.post("/step")
    async def step(body: dict[str, Any], client: str = by_key) -> dict[str, Any]:
        return (await episodes.step(client, body)).model_dump()

    @app.get("/state")
    async def state(episode_id: str | None = Query(None), client: str = by_key) -> dict[str, Any]:
        return episodes.state(client, episode_id).model_dump()

    @app.get("/schema")
    async def schemas() -> dict[str, Any]:
        return schema()

    @app.get("/metadata")
    async def metadata() -> dict[str, Any]:
        return {
            "name": "kernel_dojo",
            "description": "Write a Triton kernel for a PyTorch module; a judge says whether it is right.",
            "version": dispatcher.gym.version,
        }

    @app.websocket("/ws")
    async def converse(socket: WebSocket) -> None:
        client = keys.client_of(socket.headers.get("authorization"))
        if client is None:
            dispatcher.metrics.refused.labels(error="WrongKey").inc()
            await socket.close(code=1008, reason="wrong key")
            return
        await socket.accept()
        await _converse(socket, make(client))


async def _converse(socket: WebSocket, environment: Environment) -> None:
    """Run one session of OpenEnv. An invalid message is answered with an error, and the session goes on."""
    try:
        while True:
            try:
                reply = await answer(environment, await socket.receive_json())
            except CallerError as error:
                reply = _ws_error("VALIDATION_ERROR", error)
            except ValueError as error:  # not JSON
                reply = _ws_error("INVALID_JSON", error)
            except DojoError as error:
                reply = _ws_error("EXECUTION_ERROR", error)
            if reply is None:
                await socket.close()
                return
            await socket.send_json(reply)
    except WebSocketDisconnect:
        return


async def _patiently(dispatcher: Dispatcher, client: str, id: str, request: JudgeRequest) -> Evaluation:
    """Judge for a session, and wait for room: its protocol has no word for a later attempt."""
    while True:
        try:
            return await dispatcher.judge(client, id, request)
        except Busy:
            await asyncio.sleep(RETRY_AFTER_S)


def _ws_error(code: str, error: Exception) -> dict[str, Any]:
    return {"type": "error", "data": {"code": code, "message": str(error)}}


def _health(dispatcher: Dispatcher) -> Health:
    gym = dispatcher.gym
    return Health(
        status="ok" if gym.places else "unavailable",
        gym_version=gym.version,
        device=gym.config.device,
        judges=gym.places,
        taken_out=tuple(judge.model_dump() for judge in gym.taken_out),
        in_work=dispatcher.num_in_work,
        capacity=dispatcher.capacity,
    )


def _refusal(error: DojoError) -> JSONResponse:
    match error:
        case WrongKey():
            status, headers = 401, {"WWW-Authenticate": "Bearer"}
        case Busy(own_share=own_share):
            status, headers = (429 if own_share else 503), {"Retry-After": str(RETRY_AFTER_S)}
        case Conflict():
            status, headers = 409, {}
        case NotFound():
            status, headers = 404, {}
        case CallerError():
            status, headers = 422, {}
        case _:
            status, headers = 500, {}
    body: BaseModel = Refusal(error=type(error).__name__, message=str(error))
    return JSONResponse(body.model_dump(), status, headers)
