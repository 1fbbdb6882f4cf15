"""A Dask cluster gives the bits of one thread, also where a worker dies; its failures are told."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.errors import EngineError
from latentmdp.testing import random_model

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")


@pytest.fixture(scope="module")
def client():
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as found,
    ):
        yield found


@pytest.fixture
def engine(client, tmp_path):
    return lm.engines.Dask(client, scratch=tmp_path)


def small(monkeypatch):
    from latentmdp import simulation
    from latentmdp.logs import base

    for module in (base, simulation):
        monkeypatch.setattr(module, "BATCH_STEPS", 500)
    monkeypatch.setattr(base, "HELD_STEPS", 600)


def test_a_cluster_gives_the_bits_of_a_thread(engine, client, tmp_path, monkeypatch):
    small(monkeypatch)
    model = random_model(0, contexts=2, states=4, horizon=10)
    memory = lm.simulate(model, lm.UniformPolicy(), 300, rng=0)
    files = lm.simulate(model, lm.UniformPolicy(), 300, rng=0, out=tmp_path / "logs", engine=engine)
    assert files.read().fingerprint() == memory.fingerprint()
    opened = lm.open_logs(tmp_path / "logs", engine=engine)
    em = lm.EM(2, pseudo_counts=1.0, restarts=1, max_iter=8, initial="own", tolerance=1e-9)
    alone = em.fit(memory, rng=0)
    killed = next(iter(client.run(os.getpid).values()))
    threading.Timer(0.3, os.kill, (killed, signal.SIGKILL)).start()
    fits = [em.fit(logs, rng=0, engine=engine) for logs in (memory, opened)]
    for fit in fits:
        assert np.array_equal(fit.model.transitions, alone.model.transitions)
        assert np.array_equal(fit.responsibilities, alone.responsibilities)
        assert fit.history == alone.history
        assert fit.log_likelihood == alone.log_likelihood
    policy = lm.QMDP().plan(model).policy
    value = lm.evaluate(model, policy, 2_000, rng=0)
    assert lm.evaluate(model, policy, 2_000, rng=0, engine=engine) == value
    assert np.array_equal(
        lm.posterior(model, memory, engine=engine), lm.posterior(model, memory, threads=1)
    )
    assert sorted(engine.finished(abs, [-1, 2])) == [(0, 1), (1, 2)]


def test_experiments_run_on_a_cluster(engine, tmp_path):
    from latentmdp.experiments import fig1a, run_sweep

    settings = fig1a.sweep(quick=True, seeds=1)[:2]
    there = run_sweep(settings, fig1a.work, tmp_path / "there", engine=engine)
    here = run_sweep(settings, fig1a.work, tmp_path / "here", jobs=1)
    assert there.equals(here)


def test_an_error_of_the_work_reaches_the_user(engine):
    with pytest.raises(ZeroDivisionError):
        list(engine.map(lambda item: 1 / item, [1, 0]))
    with pytest.raises(EngineError, match=r"a worker does not find .*gone"):
        list(engine.map(lambda item: Path(item).read_text(), ["/nowhere/gone"]))


def test_a_worker_of_another_version_is_refused(engine, monkeypatch):
    from latentmdp.engines import dask

    monkeypatch.setattr(dask, "__version__", "9.9")
    with pytest.raises(EngineError, match=r"worker .* runs latentmdp .*, but 9.9 sends it work"):
        list(engine.map(abs, [-1]))


def test_a_scheduler_that_does_not_answer_is_named():
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        lm.engines.Dask("tcp://127.0.0.1:9", timeout=0.5)
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at nonsense: missing port"):
        lm.engines.Dask("nonsense")
    with pytest.raises(TypeError, match=r"must be a distributed\.Client or the address"):
        lm.engines.Dask(3)


def test_a_cluster_without_workers_is_told(tmp_path):
    settings = {"n_workers": 0, "processes": False, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        pytest.warns(UserWarning, match="has no worker yet"),
    ):
        lm.engines.Dask(client)


def test_a_task_on_a_worker_has_one_thread(engine):
    assert list(engine.map(lambda item: lm.engines.thread_count(item), [None, 3])) == [1, 3]


def test_the_bootstrap_of_solve_runs_on_a_cluster(engine):
    model = random_model(3, contexts=2, states=3, actions=2, horizon=5)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=1)
    settled = {"behaviour": "shared", "shared_initial": True, "reward_model": "state-action"}
    settled |= {"shared_rewards": False, "shared_transitions": False, "bootstrap": 2}
    there = lm.solve(logs, 2, rng=0, engine=engine, **settled)
    assert there == lm.solve(logs, 2, rng=0, **settled)


def test_a_scheduler_that_goes_away_is_told(tmp_path):
    place = ["-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--no-show"]
    note = tmp_path / "scheduler.json"
    command = [sys.executable, *place, "--scheduler-file", str(note)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as scheduler:
        try:
            with distributed.Client(scheduler_file=str(note), set_as_default=False) as client:
                with pytest.warns(UserWarning, match="has no worker yet"):
                    engine = lm.engines.Dask(client)
                threading.Timer(0.5, scheduler.kill).start()
                with pytest.raises(EngineError, match=r"the scheduler at .* went away|lost a task"):
                    list(engine.map(abs, [-1]))
        finally:
            scheduler.kill()
