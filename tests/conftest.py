"""What all tests share: a judge, because starting one costs more than most tests, compiled modules, and how
they are spread over processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kernel_core.config import GymConfig
from kernel_core.gym.contract.requests import Gym
from kernel_core.gym.pool.open_gym import open_gym
from kernel_core.store import Store

QUICK = GymConfig(workers=1, trials=1, compile_gate=False)


def pytest_configure(config: pytest.Config) -> None:
    """Where the environment forbids bytecode beside the sources, each of the many processes that tests start
    would compile all that it imports: they keep it in pytest's own cache, for the next time too."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ["PYTHONPYCACHEPREFIX"] = str(config.cache.mkdir("bytecode"))
    if config.getoption("numprocesses", None):
        config.pluginmanager.register(_ToldAtOnce(config), "told-at-once")


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
    share are started once. Large folders come first, files outside of them level the end."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFolder(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder, _, _ = nodeid.partition("::")[0].removeprefix("tests/").rpartition("/")
            return folder or super()._split_scope(nodeid)

    return ByFolder(config, log)


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """The tensors here are too small to share among threads, and other tests have the other cores."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def quick_gym(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gym]:
    """One judge that tries a candidate once, compiles nothing for a GPU and remembers its verdicts."""
    with open_gym(QUICK, Store(tmp_path_factory.mktemp("verdicts"))) as opened:
        yield opened
