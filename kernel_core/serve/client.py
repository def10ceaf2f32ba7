"""Gym that is a judge service elsewhere: the client of `dojo serve`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from types import TracebackType

import httpx

from kernel_core import errors
from kernel_core.errors import ConfigError, DojoError, GymUnavailable, NotAProblem
from kernel_core.gym.contract.requests import JudgeRequest, TakenOut
from kernel_core.progress import Progress, silent
from kernel_core.records import Evaluation, NotJudged
from kernel_core.serve.messages import Health, JudgeCall, Judged, Refusal, call_of

_READ_TIMEOUT_S = 120.0
"""Timeout of one read; a longer judgement is requested again under the same id and joins the one under
way."""
_PAUSE_S = 0.5
_AGAIN = (429, 502, 503, 504)


class JudgeClient:
    """A `Gym` over HTTP; several threads may use it."""

    def __init__(self, url: str, key: str, *, at_once: int = 16, patience_s: float = 3600.0) -> None:
        """`at_once` requests are under way; each is repeated for `patience_s` while the service is busy or
        unreachable."""
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        timeout = httpx.Timeout(_READ_TIMEOUT_S, connect=10.0, pool=None)
        limits = httpx.Limits(max_connections=at_once)
        self._url = url
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout, limits=limits)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="judge-client")
        self._patience_s = patience_s

    @property
    def version(self) -> str:
        """`GYM_VERSION` of the judges."""
        return self.health().gym_version

    @property
    def taken_out(self) -> tuple[TakenOut, ...]:
        """Judges of the service that get no more candidates."""
        return tuple(TakenOut.model_validate(entry) for entry in self.health().taken_out)

    def health(self) -> Health:
        """Return the state of the service. Raises `GymUnavailable` when it cannot be reached."""
        try:
            return Health.model_validate_json(self._http.get("/health").content)
        except (httpx.HTTPError, ValueError) as error:
            raise GymUnavailable(f"no judge service at {self._url}: {error}") from error

    def judge(
        self, requests: Sequence[JudgeRequest], progress: Progress = silent
    ) -> list[Evaluation | NotJudged]:
        """Return one outcome a request, in order; see `requests.Gym`."""
        futures = [self._threads.submit(self._judge_one, request) for request in requests]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                future.result()
                progress("judge", done, len(requests))
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """Close all connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    def __enter__(self) -> JudgeClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, call: JudgeCall) -> Evaluation:
        """Judge one call. The same call may be asked again, and is judged once."""
        body = call.model_dump_json()
        give_up = time.monotonic() + self._patience_s
        while True:
            pause_s = _PAUSE_S
            try:
                answer = self._http.post("/v1/judge", content=body)
                if answer.status_code == 200:
                    return Judged.model_validate_json(answer.content).evaluation
                if answer.status_code not in _AGAIN:
                    raise _error_of(answer)
                pause_s, fault = float(answer.headers.get("Retry-After", _PAUSE_S)), answer.text
            except (httpx.NetworkError, httpx.TimeoutException, httpx.RemoteProtocolError) as error:
                fault = str(error) or type(error).__name__
            except httpx.TransportError as error:
                raise ConfigError(f"cannot ask a judge service at {self._url!r}: {error}") from error
            if time.monotonic() + pause_s > give_up:
                raise GymUnavailable(f"no answer of {self._url} for {self._patience_s:g} s: {fault}")
            time.sleep(pause_s)

    def _judge_one(self, request: JudgeRequest) -> Evaluation | NotJudged:
        try:
            evaluation = self.ask(call_of(request, uuid.uuid4().hex))
        except NotAProblem as error:
            return NotJudged(problem_id=request.problem.id, reason=str(error))
        return evaluation.model_copy(update={"problem_id": request.problem.id})


def _error_of(answer: httpx.Response) -> DojoError:
    """Return the service's error as one of ours."""
    try:
        refusal = Refusal.model_validate_json(answer.content)
    except ValueError:
        return GymUnavailable(f"{answer.url} answered {answer.status_code}: {answer.text[:200]}")
    kind = getattr(errors, refusal.error, ConfigError if answer.status_code < 500 else GymUnavailable)
    return kind(refusal.message) if issubclass(kind, DojoError) else GymUnavailable(refusal.message)
