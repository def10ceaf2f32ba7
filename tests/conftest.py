"""What all tests share, because starting it costs more than most tests (a judge, a Prefect server, compiled
modules), and how they are spread over processes."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from flows.server import prepare_environment, send_queued, starting_server
from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.judge_host import SHARED
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.store import Store

_LONGEST_FIRST = (
    *("flows", "gym", "evaluation", "generator", "generator/draw", "learn", "learn/distributed", "dialogue"),
    *("serve", "learn/cold_start", "test_words.py", "harvest", "problems", "policy", "test_judge_watch.py"),
    *("test_wheel.py", "test_cli.py", "test_judge_batch.py", "test_budgets.py", "corpus", "retrieval"),
)
QUICK = GymConfig(workers=1, trials=1, compile_gate=False)


def pytest_configure(config: pytest.Config) -> None:
    """Where the environment forbids bytecode beside the sources, each of the many processes that tests start
    would compile all that it imports: they keep it in pytest's own cache, for the next time too.

    A shell's background command ignores SIGINT, and so do its children: tests of interrupts would hang.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(_ToldAtOnce(config), "told-at-once")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect with the garbage collector off: what is imported stays, and looking through it takes a tenth of
    the processor time of imports, in each process."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class _ToldAtOnce:
    """Who fails is named at once: a run that is cut off never gets to its summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One line and the error."""
        terminal: Any = self._config.pluginmanager.getplugin("terminalreporter")
        if report.failed and terminal is not None:
            message = getattr(getattr(report.longrepr, "reprcrash", None), "message", "")
            terminal.write_line(
                f"\n{report.nodeid}: {report.when} failed after {report.duration:.0f} s: {message}"
            )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile` gives a process whole folders: the server or the judges that the files of a folder
    share are started once. Long folders come first, and files outside of folders level the end."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _scope(nodeid)

    config.option.loadscopereorder = False  # by the number of tests; a folder of few tests may take long
    return ByFolder(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes take scopes in this order."""
    rank = {scope: number for number, scope in enumerate(_LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(_scope(item.nodeid), len(rank)))


def _scope(nodeid: str) -> str:
    """The folder of a test, or its file outside of folders. Flows and tasks share a Prefect server."""
    file = nodeid.partition("::")[0].removeprefix("tests/")
    folder = file.rpartition("/")[0] or file
    return "flows" if folder == "tasks" else folder


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The tensors here are too small to share among threads, and other tests have the other cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def one_fork_root() -> Iterator[None]:
    """All judges of a process are forked by one root, whose start costs more than most tests."""
    folder = SHARED.enter()
    yield
    SHARED.leave(folder)


@pytest.fixture(scope="session")
def quick_gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    """One judge that tries a candidate once, compiles nothing for a GPU and remembers its verdicts."""
    with open_gym(QUICK, Store(tmp_path_factory.mktemp("verdicts"))) as opened:
        yield opened


@pytest.fixture(scope="session")
def prefect_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Prefect API that flows of this process use: the server that `dojo` starts, with a database
    of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(tmp_path_factory.mktemp("prefect")))
        prepare_environment()
        from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

        # As `dojo` does: heartbeats round every flow up to whole seconds.
        with starting_server() as wait_for_url:
            updates = {PREFECT_API_URL: wait_for_url(), PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
            with temporary_settings(updates=updates):
                yield wait_for_url()
                send_queued()
