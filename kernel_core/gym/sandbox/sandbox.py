"""Isolation of an untrusted process: namespaces, Landlock, resource limits, its own user, an audit hook.

Each feature that is in force is named, and so is each that the kernel lacks. Landlock is driven by its
three system calls because no Python library in use offers it (numbers and structures: the kernel's
`Documentation/userspace-api/landlock.rst`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import struct
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

from kernel_core.gym.sandbox.cuda_toolkit import toolkit
from kernel_core.gym.sandbox.limits import Cage

REQUIRED = ("files", "network", "processes", "rlimits")
"""The features that `sandbox: require` demands."""

_libc = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 4, 8
_PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 38, 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAPABILITY_VERSION, _CAP_DAC_READ_SEARCH = 0x20080522, 2
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_FS_EXECUTE, _FS_WRITE_FILE, _FS_READ_FILE, _FS_READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FS_READ = _FS_READ_FILE | _FS_READ_DIR
_FS_RIGHTS_BY_ABI = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_FS_FILE_RIGHTS = _FS_EXECUTE | _FS_WRITE_FILE | _FS_READ_FILE | (1 << 14) | (1 << 15)
_NET_BIND_CONNECT_TCP = 0b11
_MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1 << 1,
    1 << 2,
    1 << 5,
    1 << 12,
    1 << 14,
    1 << 18,
)
_DISK_FILES, _DISK_INODES = 2, 1 << 14
"""Capacity of the folder: this many files of the largest size, and this many files."""
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that forked it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, so that they can be found and ended."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def leave_network() -> bool:
    """Move this process and its future children into an empty network and IPC namespace."""
    return _libc.unshare(_CLONE_NEWNET | _CLONE_NEWIPC) == 0


class ProcessNamespaces:
    """Gives each next child a process namespace of its own, where the kernel lets us.

    The child is its namespace's first process: when it ends, the kernel ends all its descendants.
    """

    def __init__(self, wanted: bool) -> None:
        self._own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        self.available = wanted and self._renew()

    def prepare_child(self) -> None:
        """Call right before each fork."""
        if self.available:
            self.available = self._renew()

    def _renew(self) -> bool:
        return _libc.setns(self._own, _CLONE_NEWPID) == 0 and _libc.unshare(_CLONE_NEWPID) == 0


def confine(
    cage: Cage, inherited: tuple[str, ...], keep: tuple[int, ...], prepare: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Confine the calling process for good; gives the features in force.

    `inherited` names the features that its fork server already set up; `keep` are the descriptors it needs.
    `prepare` runs when all foreign descriptors are closed and no access is forbidden yet.
    """
    os.setsid()
    features = set(inherited)
    if _bound_folder(cage):
        features.add("disk")
    _close_descriptors(keep)
    prepare()
    _set_limits(cage)
    features.add("rlimits")
    if _become_user(cage.user_id, starts_programs=cage.max_processes > 1):
        features.update(("own user", "processes"))
    elif cage.max_processes == 1:
        features.add("processes")
    die_with_parent()
    if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        features.add("no new privileges")
    if _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0:
        features.add("not traceable")
    features.update(_landlock(cage.folder, may_execute=cage.max_processes > 1))
    return tuple(sorted(features))


def missing_features(features: tuple[str, ...]) -> tuple[str, ...]:
    """The required features that are not in force."""
    return tuple(name for name in REQUIRED if name not in features)


def readable_roots() -> tuple[str, ...]:
    """The folders of Python, its packages and the system's libraries: all readable paths."""
    roots = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), "/usr", "/lib", "/lib64", "/bin"}
    roots |= {entry for entry in sys.path if _has_packages(entry)}
    roots |= {"/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/zero", "/dev/urandom"}
    roots |= {str(folder) for folder in (*_compiler_folders(), toolkit()) if folder is not None}
    roots |= {"/proc/driver/nvidia", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system"}
    return tuple(sorted(root for root in roots if Path(root).exists()))


def _has_packages(entry: str) -> bool:
    """True for a folder of installed packages, such as one that `pip install --target` filled."""
    if entry.endswith(("site-packages", "dist-packages")):
        return True
    return bool(entry) and next(Path(entry).glob("*.dist-info"), None) is not None


def _compiler_folders() -> set[Path]:
    """The folders of the C compiler that Triton starts for its launchers, if it is not the system's."""
    compilers = (shutil.which(name) for name in (os.environ.get("CC", "cc"), "gcc", "clang"))
    folders = {
        folder
        for path in compilers
        if path
        for folder in (Path(path).parents[1], Path(path).resolve().parents[1])
    }
    return folders - {Path("/"), Path.home()}


def _close_descriptors(keep: tuple[int, ...]) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    low = 3
    for descriptor in sorted({*keep}):
        os.closerange(low, descriptor)
        low = descriptor + 1
    os.closerange(low, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def keep_one_gpu(minor: int) -> bool:
    """Have this process and its future children find no GPU but `/dev/nvidia<minor>`.

    CUDA initialises every GPU that it can open, visible or not, one process after the other: beside four GPUs
    a context takes four times as long to come up, and all processes of the host wait for each other.
    """
    others = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name != f"nvidia{minor}"]
    if not others or not _own_mounts():
        return False
    for other in others:
        path = str(other).encode()
        _mount(path, path, None, _MS_BIND)
        _mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_NOSUID | _MS_NODEV)
    return True


def _own_mounts() -> bool:
    """Later mounts are visible to this process and its future children alone."""
    return (
        os.geteuid() == 0
        and _libc.unshare(_CLONE_NEWNS) == 0
        and _mount(None, b"/", None, _MS_REC | _MS_PRIVATE)
    )


def _mount(
    what: bytes | None, where: bytes, kind: bytes | None, flags: int, options: bytes | None = None
) -> bool:
    return bool(_libc.mount(what, where, kind, ctypes.c_ulong(flags), options) == 0)


def _bound_folder(cage: Cage) -> bool:
    """Lay memory of a bounded size over the folder, where only this process and its children see it: a limit
    on a file's size does not keep many files from filling the disk."""
    if not _own_mounts():
        return False
    size, owner = _DISK_FILES * cage.file_bytes, cage.user_id
    options = f"size={size},nr_inodes={_DISK_INODES},uid={owner},gid={owner},mode=700".encode()
    mounted = _mount(b"cage", cage.folder.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, options)
    os.chdir(cage.folder)
    return mounted


def _set_limits(cage: Cage) -> None:
    sizes = [
        int(pages) * os.sysconf("SC_PAGE_SIZE") for pages in Path("/proc/self/statm").read_text().split()
    ]
    limits = {
        resource.RLIMIT_CPU: cage.cpu_seconds,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: cage.file_bytes,
        resource.RLIMIT_NOFILE: 128,
    }
    if cage.device == "cpu":
        limits[resource.RLIMIT_AS] = sizes[0] + cage.memory_bytes
    else:
        # A GPU's context reserves address space for all the memory there is; only data is counted.
        limits[resource.RLIMIT_DATA] = sizes[5] + cage.memory_bytes
        limits[resource.RLIMIT_NOFILE] = 1024
    # The limit counts all processes of a user: above one it only means something for a user of its own.
    if cage.max_processes == 1 or os.geteuid() == 0:
        limits[resource.RLIMIT_NPROC] = cage.max_processes
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


def _become_user(user_id: int, starts_programs: bool) -> bool:
    """Give up root for a user that owns nothing, so that the process limit holds and nothing is shared.

    Python itself may lie in a folder that only root may enter. Then the right to read is the one capability
    that is kept, for programs that are started as well. Landlock narrows that right to the allowed folders.
    """
    if os.geteuid() != 0:
        return False
    keep_reading = not all(_world_readable(Path(root)) for root in readable_roots() if Path(root).is_dir())
    try:
        os.setgroups([])
        _libc.prctl(_PR_SET_KEEPCAPS, int(keep_reading), 0, 0, 0)
        os.setresgid(user_id, user_id, user_id)
        os.setresuid(user_id, user_id, user_id)
    except OSError:
        return False
    kept = 1 << _CAP_DAC_READ_SEARCH if keep_reading else 0
    handed_on = kept if starts_programs else 0
    header = struct.pack("<Ii", _CAPABILITY_VERSION, 0)
    if _libc.capset(header, struct.pack("<6I", kept, kept, handed_on, 0, 0, 0)) != 0:
        return False
    if handed_on:
        _libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _CAP_DAC_READ_SEARCH, 0, 0)
    return True


def _world_readable(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o005 == 0o005 for folder in (path, *path.parents))


def _landlock(folder: str, may_execute: bool) -> set[str]:
    abi = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return set()
    rights = _FS_RIGHTS_BY_ABI[max(known for known in _FS_RIGHTS_BY_ABI if known <= abi)]
    attributes = struct.pack(
        "<QQQ",
        rights,
        _NET_BIND_CONNECT_TCP if abi >= 4 else 0,
        _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if abi >= 6 else 0,
    )
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return set()
    for root in readable_roots():
        _allow(ruleset, root, (_FS_READ | (_FS_EXECUTE if may_execute else 0)) & rights)
    devices = ["/dev/null", *(str(path) for path in Path("/dev").glob("nvidia*") if not path.is_dir())]
    for device in devices:
        # Control calls on a device need a separate right from ABI 5 on.
        _allow(ruleset, device, (_FS_READ_FILE | _FS_WRITE_FILE | 1 << 15) & rights)
    _allow(ruleset, folder, rights & ~_FS_EXECUTE)
    enforced = _libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    if not enforced:
        return set()
    named = {"files"}
    if abi >= 4:
        named.add("network")
    if abi >= 6:
        named.add("signals")
    return named


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not Path(path).is_dir():
            rights &= _FS_FILE_RIGHTS
        _libc.syscall(_LANDLOCK_ADD_RULE, ruleset, 1, struct.pack("<Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
