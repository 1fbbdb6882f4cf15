"""One run of Figure 1b; `python -m latentmdp.experiments.fig1b.run` runs them all."""

from typing import Any

from latentmdp.experiments.curves import curves_of_run
from latentmdp.experiments.runner import Setting, reproduce
from latentmdp.experiments.starts import labelled_samples
from latentmdp.instances import make
from latentmdp.online import LUCRL

__all__ = ["work"]


def work(setting: Setting) -> dict[str, Any]:
    """Learn from a good start in one instance with the given separation.

    Rewards are shared: own rewards alone would give the context away.
    """
    seed = setting["seed"]
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "horizon", "delta")}
    model = make("separated", rng=seed, rewards="shared", **sizes)
    start = labelled_samples(model, setting["samples"], seed)
    run = LUCRL(contexts="inferred", start=start).run(model, setting["episodes"], rng=seed)
    return curves_of_run(run, model, setting["reference"], seed)


if __name__ == "__main__":
    print(reproduce("fig1b", progress=True).page.read_text())
