"""What is required is named when it is missing, and the process that asks for it is really caged."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from kernel_core.gym.channel import framing
from kernel_core.gym.sandbox import sandbox
from kernel_core.gym.sandbox.limits import Cage


def test_missing_features_are_named() -> None:
    assert sandbox.missing_features(("files", "rlimits")) == ("network", "processes")
    assert sandbox.missing_features((*sandbox.REQUIRED, "signals")) == ()


def test_a_confined_process_reads_libraries_and_writes_only_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cage"
    folder.mkdir()
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    os.chown(folder, 1_900_000_001, -1) if os.geteuid() == 0 else None
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            os.chdir(folder)
            cage = Cage(str(folder), 1_900_000_001, 1 << 30, 10, 1)
            features = sandbox.confine(cage, (), keep=(theirs.fileno(),))
            attempts = {
                "library": _try(lambda: Path(os.__file__).read_text()),
                "secret": _try(secret.read_text),
                "write": _try(lambda: Path("own.txt").write_text("x")),
                "outside": _try(lambda: (tmp_path / "other.txt").write_text("x")),
                "fork": _try(os.fork),
                "descriptors": _try(lambda: os.fstat(ours.fileno())),
            }
            framing.send(theirs, {"features": features, "attempts": attempts})
        finally:
            os._exit(0)
    answer = framing.receive(ours).header
    os.waitpid(pid, 0)
    ours.close()
    theirs.close()
    assert set(answer["features"]) >= {"files", "network", "processes", "rlimits"}
    assert answer["attempts"] == {
        "library": True,
        "secret": False,
        "write": True,
        "outside": False,
        "fork": False,
        "descriptors": False,
    }


def test_a_folder_of_installed_packages_on_the_path_is_readable(tmp_path: Path, monkeypatch) -> None:
    """`torch.compile` imports what it finds there: a package that it may not read makes it fail."""
    installed, sources = tmp_path / "installed", tmp_path / "sources"
    for folder in (installed / "redis-8.1.0.dist-info", sources / "redis"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed), str(sources), ""])
    roots = sandbox.readable_roots()
    assert str(installed) in roots
    assert str(sources) not in roots


def _try(action: object) -> bool:
    try:
        action()  # type: ignore[operator]
    except OSError:
        return False
    return True
