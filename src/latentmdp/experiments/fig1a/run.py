"""One run of Figure 1a; `python -m latentmdp.experiments.fig1a.run` runs them all."""

from typing import Any

from latentmdp.experiments.curves import curves_of_run
from latentmdp.experiments.runner import Setting, reproduce
from latentmdp.experiments.starts import labelled_samples, unrelated_model
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.online import LUCRL

__all__ = ["work"]


def work(setting: Setting) -> dict[str, Any]:
    """Learn in one random instance; all arms of a seed share the instance."""
    seed = setting["seed"]
    model = _instance(setting)
    learner = {
        "revealed": lambda: LUCRL(contexts="revealed"),
        "good": lambda: LUCRL(
            contexts="inferred", start=labelled_samples(model, setting["samples"], seed)
        ),
        "random": lambda: LUCRL(
            contexts="inferred",
            start=unrelated_model(model, seed),
            prior_count=float(setting["samples"]),
        ),
    }[setting["arm"]]()
    run = learner.run(model, setting["episodes"], rng=seed)
    return curves_of_run(run, model, setting["reference"], seed)


def _instance(setting: Setting) -> LatentMDP:
    """Sparse rows and few rewards: "set to be 0 for most state-action pairs" [kwon2021]."""
    sizes = {name: setting[name] for name in ("contexts", "states", "actions", "horizon")}
    return make(
        "random",
        rng=setting["seed"],
        concentration=0.3,
        reward_density=4 / 45,
        reward_low=0.5,
        **sizes,
    )


if __name__ == "__main__":
    print(reproduce("fig1a", progress=True).page.read_text())
