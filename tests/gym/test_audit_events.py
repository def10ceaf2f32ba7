"""Which audit events of a process of a candidate are noted; each in a new process, since hooks stay."""

import json
import subprocess
import sys

import pytest

NOTED = """
import contextlib, ctypes, json
from kernel_core.gym.untrusted.candidate.audit_events import watch
seen = watch(may_compile=True)
with contextlib.suppress(OSError):
    ctypes.CDLL({library})
print(json.dumps(seen))
"""


@pytest.mark.parametrize(
    ("library", "noted"),
    [
        ("None", ["ctypes.dlopen: None"]),
        ("'libc.so.6'", ["ctypes.dlopen: libc.so.6"]),
        ("'libcuda.so.1'", []),
        ("'/usr/lib/libcuda.so.1'", []),
        ("'libnvidia-ml.so.1'", []),
        ("'libnvidia-ml.so.1.so'", ["ctypes.dlopen: libnvidia-ml.so.1.so"]),
    ],
)
def test_a_library_is_noted_by_name_unless_it_is_the_driver(library, noted):
    done = subprocess.run(
        [sys.executable, "-c", NOTED.format(library=library)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == noted
