"""`--cluster` where no scheduler answers."""

import pytest
from command_line import run


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
    assert "--cluster and --device play episodes" in found.output
