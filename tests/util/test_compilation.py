"""Compilation is announced once, for what waits for it, and only where something is compiled."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import latentmdp

SCRIPT = """
import latentmdp as lm

model = lm.make("visitor")
lm.QMDP().plan(model)
lm.QMDP().plan(model)
"""


def announced(script, cache):
    env = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env
    )
    return [line for line in done.stderr.splitlines() if "compiling" in line]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


def test_each_call_that_compiles_is_announced_once_on_an_empty_cache(cache):
    first = announced(SCRIPT, cache)
    assert [line for line in first if "QMDP.plan" in line] == [
        "latentmdp: compiling QMDP.plan, a few seconds to half a minute, once; "
        "kept on disk, so the next start is quick"
    ]
    assert len(first) == len(set(first))
    assert announced(SCRIPT, cache) == []


def test_what_threads_compile_is_announced_for_the_call_that_waits(cache):
    script = """
import latentmdp as lm

lm.simulate(lm.make("visitor"), lm.UniformPolicy(), 100_000, rng=0, threads=2)
"""
    assert announced(script, cache) == [
        "latentmdp: compiling simulate, a few seconds to half a minute, once; "
        "kept on disk, so the next start is quick"
    ]


def test_other_peoples_kernels_are_not_announced(cache):
    script = """
import latentmdp._kernels
from numba import njit

njit(lambda x: 2 * x)(2)
"""
    assert announced(script, cache) == []


def test_silence_can_be_asked_for(tmp_path):
    silent = "from latentmdp._util.clock import compile_announcement as a; a().silent = True\n"
    assert announced(silent + SCRIPT, tmp_path) == []


UNIFORM = """
import numpy as np
from latentmdp._kernels.rollout import draw_uniforms

first, second = np.empty(1), np.empty(1)
draw_uniforms(np.uint64(1), np.uint64(2), np.uint64(0), 1, first, second)
print(first[0])
"""


def test_an_upgrade_of_a_file_that_others_call_does_not_run_old_code(tmp_path):
    """Only philox.py changes, and the loop stands in rollout.py: it must not be the old one."""
    source = Path(latentmdp.__file__).parent
    copy = tmp_path / "latentmdp"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__"))
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    env.pop("NUMBA_CACHE_DIR", None)

    def drawn() -> tuple[float, bool]:
        done = subprocess.run(
            [sys.executable, "-c", UNIFORM], capture_output=True, text=True, check=True, env=env
        )
        return float(done.stdout), "compiling" in done.stderr

    before, _ = drawn()
    assert drawn() == (before, False)  # kept on disk
    philox = copy / "_kernels" / "philox.py"
    philox.write_text(
        philox.read_text().replace("1.0 / 9007199254740992.0", "0.5 / 9007199254740992.0")
    )
    assert drawn() == (before / 2, True)
