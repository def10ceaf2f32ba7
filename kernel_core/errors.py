"""The error tree. A bad kernel is never an error: it is an `Evaluation` with a verdict.

DojoError                     one clear line: what came, what was wanted, what to do
├── Regressed                 a night is clearly worse than the one before; exit code 1
├── CallerError               the caller's mistake; exit code 2
│   ├── ConfigError           an unknown key, a value out of bounds, a broken YAML file
│   ├── NotFound              a file, problem, run, checkpoint, preset or model that is not there
│   └── NotAProblem           a file that is not a problem in KernelBench's format
└── OurFault                  nothing the caller did; exit code 3; a task may retry it
    ├── GymUnavailable        the judge could not work: never a verdict, never a reward, never cached
    ├── SourceUnavailable     a corpus source or an endpoint that cannot be reached
    ├── Corrupt               a snapshot, index or checkpoint with a wrong checksum
    ├── StaleWeights          a sampler that does not have the weights which were published to it
    ├── WorkersLost           learners or a sampler that ended, where new ones cannot go on in their place
    └── StoreFault            a disk that is full, a folder that cannot be written
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping

_SECRET_NAME = re.compile(r"KEY|TOKEN(?!IZER)|SECRET|PASSWORD|CREDENTIAL|AUTH_STRING", re.IGNORECASE)
_LOGIN_IN_URL = re.compile(r"(?<=://)[^/@\s]+:[^/@\s]+(?=@)")
_SHORTEST_SECRET = 6
_told: set[str] = set()


def keep_secret(value: str) -> None:
    """Never show this value, whatever the variable is called that it came from."""
    _told.add(value)


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without keys, passwords and logins, for a process that runs others' code."""
    return {
        name: value
        for name, value in environment.items()
        if not (_SECRET_NAME.search(name) or _LOGIN_IN_URL.search(value))
    }


def redacted(text: str) -> str:
    """The text without the secrets of this process's environment: other programs' messages may echo them."""
    named = {value for name, value in os.environ.items() if _SECRET_NAME.search(name)}
    for secret in sorted(named | _told, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "[secret]")
    return _LOGIN_IN_URL.sub("[secret]", text)


class DojoError(Exception):
    """The root. `str(error)` is one line for a person; `exit_code` is what `dojo` leaves with.

    Its message is free of secrets, because it reaches states, logs and artifacts.
    """

    exit_code = 3

    def __init__(self, message: str = "") -> None:
        super().__init__(redacted(str(message)))


class Regressed(DojoError):
    """Everything worked, and what it found is bad news."""

    exit_code = 1


class CallerError(DojoError):
    """The caller's mistake."""

    exit_code = 2


class ConfigError(CallerError):
    """A setting that is unknown, of the wrong type or out of bounds."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key
        """Dotted path of the setting, to find its line in a file by."""


class NotFound(CallerError):
    """Something named by the caller does not exist."""


class NotAProblem(CallerError):
    """A file was read but holds no KernelBench-format problem."""


class OurFault(DojoError):
    """A fault of the system's: retried by tasks, never turned into a verdict or a reward."""


class GymUnavailable(OurFault):
    """The judge could not reach a verdict for a reason that is not the candidate's."""


class SourceUnavailable(OurFault):
    """A corpus source, model or endpoint could not be reached."""


class Corrupt(OurFault):
    """Stored content does not match its checksum or its schema."""


class StaleWeights(OurFault):
    """A sampler did not receive the published weights, so its rollouts would come from another policy."""


class WorkersLost(OurFault):
    """Processes of training ended, and new ones could not take up their work: the run goes back to its
    checkpoint."""


class StoreFault(OurFault):
    """The store could not be written or read."""


def first_line(error: BaseException) -> str:
    """First line of an error's message; some libraries append a stack of their own."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextlib.contextmanager
def interrupts_stay_interrupts() -> Iterator[None]:
    """Raise the interrupt where a library, in handling one, raised an error of its own instead."""
    try:
        yield
    except Exception as error:
        if _came_of_an_interrupt(error):
            raise KeyboardInterrupt from error
        raise


def _came_of_an_interrupt(error: BaseException) -> bool:
    at_work: BaseException | None = error
    while at_work is not None and not isinstance(at_work, KeyboardInterrupt):
        at_work = at_work.__cause__ or at_work.__context__
    return at_work is not None
