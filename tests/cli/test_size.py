"""`latentmdp size`, and `--cluster` where no scheduler answers."""

import pytest
from command_line import run, run_json


def test_size_tells_memory_and_time(monkeypatch):
    from latentmdp.experiments import costs

    rates = costs.Rates(2e-8, 3e-7, 8e-8, 3e-9, 1e-10)
    monkeypatch.setattr(costs, "measured_rates", lambda contexts: rates)
    given = ("size", "--contexts", 3, "--states", 20, "--episodes", "1e9", "--workers", 1600)
    found = run_json(*given)
    assert found["steps"] == 1e11
    assert found["cluster_pass_seconds"] == pytest.approx(1e11 * 3e-9 / 1600 + 12.8)
    assert found["gpu_pass_seconds"] is None
    shown = run(*given).stdout
    assert "a pass of EM, on 1,600 workers" in shown
    assert "does not fit into its memory" in shown
    assert "GiB" in shown


@pytest.mark.parametrize("command", ["evaluate", "simulate"])
def test_a_scheduler_that_does_not_answer_is_an_error(command, model, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    from latentmdp.engines import dask

    connected = dask._connected
    monkeypatch.setattr(dask, "_connected", lambda address, _: connected(address, 0.5))
    more = ("--out", tmp_path / "logs") if command == "simulate" else ()
    found = run(command, model, *more, "--cluster", "tcp://127.0.0.1:9", code=2)
    assert "no Dask scheduler answers at tcp://127.0.0.1:9" in found.output


def test_logs_are_not_evaluated_on_a_cluster(model, tmp_path):
    found = run("evaluate", model, "--logs", tmp_path, "--cluster", "tcp://127.0.0.1:9", code=2)
    assert "--cluster plays episodes" in found.output
