"""Tests that need a GPU: a real one (`make test-gpu`), or the one that numba simulates.

The ordinary session has neither and skips them; `tests/engines/test_cuda.py` runs them in the
simulator, in a process of their own.
"""

import sys

import pytest

from latentmdp.engines.cuda.device import gpu
from latentmdp.errors import DeviceError


def pytest_collection_modifyitems(items):
    try:
        if gpu().simulated:
            # Its threads run under one lock that the simulator, which waits for them by asking
            # again and again, would hold for 5 ms each time.
            sys.setswitchinterval(5e-6)
    except DeviceError as error:
        for item in items:
            if "tests/gpu" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=str(error)))


@pytest.fixture
def real_gpu():
    """Skip where the GPU is simulated, thread by thread: what is large would take hours."""
    if gpu().simulated:
        pytest.skip("the GPU is simulated")
