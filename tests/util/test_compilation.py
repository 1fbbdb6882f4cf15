"""Compilation is announced once, for what waits for it, and only where something is compiled."""

import os
import subprocess
import sys

import pytest

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
        "latentmdp: compiling QMDP.plan, once; kept on disk, so the next start is quick"
    ]
    assert len(first) == len(set(first))
    assert announced(SCRIPT, cache) == []


def test_what_threads_compile_is_announced_for_the_call_that_waits(cache):
    script = """
import latentmdp as lm

lm.simulate(lm.make("visitor"), lm.UniformPolicy(), 100_000, rng=0, threads=2)
"""
    assert announced(script, cache) == [
        "latentmdp: compiling simulate, once; kept on disk, so the next start is quick"
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
