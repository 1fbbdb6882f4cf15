"""The GPU's tests in numba's simulator, and what a machine without a GPU is told."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from models import random_model
from numba import njit

import latentmdp as lm
from latentmdp._kernels import rows
from latentmdp._kernels.mixture import kernels
from latentmdp.engines import cuda
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
    cuda.gpu.cache_clear()
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    model, policy = random_model(0), lm.UniformPolicy()
    logs = lm.simulate(model, policy, 5, rng=0)
    for run in (
        lambda: lm.simulate(model, policy, 10, device="cuda"),
        lambda: lm.evaluate(model, policy, 10, device="cuda"),
        lambda: lm.posterior(model, logs, device="cuda"),
        lambda: lm.EM(2).fit(logs, device="cuda"),
        lambda: lm.initialize(None, logs, 2, device="cuda"),
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


@pytest.mark.parametrize("width", [2, 4, 8, 14])
def test_plain_loops_and_vector_registers_give_the_same_bits(width):
    """What a GPU runs in place of the vector code, compiled for the CPU."""
    rng = np.random.default_rng(width)
    one, other = rng.random((3, width)), rng.random((5, width))
    one[2] = 0.0

    @njit
    def vector_code(one, other, j):
        return rows.row_product(one, 0, other, j), rows.weigh_row(one, 0, other, j, 2, 2.0**-500)

    plain = [njit(rows._plain_row_product), njit(rows._plain_weigh_row)]
    set_products = njit(lambda one, other: rows.set_products(one, 0, other, 1, 0.3))
    for j in range(5):
        found = vector_code(one, other, j)
        assert found[0] == plain[0](one, 0, other, j)
        assert found[1] == plain[1](one, 0, other, j, 2, 2.0**-500)
    faint = one.copy()
    faint[0, 1] = 1e-300
    assert vector_code(faint, other, 0)[1] == plain[1](faint, 0, other, 0, 2, 2.0**-500)
    assert vector_code(faint, other, 0)[1][1]
    left, right = one.copy(), one.copy()
    set_products(left, other)
    njit(rows._plain_set_products)(right, 0, other, 1, 0.3)
    assert np.array_equal(left, right)
