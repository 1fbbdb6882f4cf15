"""The GPU's tests in numba's simulator, and what a machine without a GPU is told."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from models import random_model

import latentmdp as lm
from latentmdp._kernels.mixture import kernels
from latentmdp.engines.cuda.device import gpu
from latentmdp.errors import DeviceError

GPU_TESTS = Path(__file__).parents[1] / "gpu"


@pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="numba-cuda is not installed"
)
def test_the_gpu_tests_pass_in_the_simulator():
    """In a process of their own: numba decides once, at import, whether it simulates."""
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", GPU_TESTS]
    told = subprocess.run(
        command,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        cwd=GPU_TESTS.parents[1],
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "passed" in told.stdout


def test_without_numba_cuda_the_error_says_what_to_install(monkeypatch):
    gpu.cache_clear()
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    model, policy = random_model(0), lm.UniformPolicy()
    logs = lm.simulate(model, policy, 5, rng=0)
    for run in (
        lambda: lm.simulate(model, policy, 10, device="cuda"),
        lambda: lm.evaluate(model, policy, 10, device="cuda"),
        lambda: lm.posterior(model, logs, device="cuda"),
        lambda: lm.EM(2).fit(logs, device="cuda"),
        lambda: lm.initialize(None, logs, 2, device="cuda"),
        lambda: lm.simulate(model, policy, 10, engine=lm.engines.Cuda()),
    ):
        with pytest.raises(DeviceError, match=r'pip install "latentmdp\[gpu\]"'):
            run()


@pytest.mark.parametrize("width", [2, 8])
def test_the_compiled_passes_of_em_are_found_again_by_later_processes(width):
    """A compiled function in a closure has another identity in every process."""
    for compiled in kernels(width):
        cells = compiled.py_func.__closure__ or ()
        assert all(isinstance(cell.cell_contents, int) for cell in cells)


def test_a_device_that_does_not_exist():
    with pytest.raises(ValueError, match="device must be"):
        lm.simulate(random_model(0), lm.UniformPolicy(), 5, device="gpu")
