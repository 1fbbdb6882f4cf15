"""Latent Markov decision processes: plan, learn and act when one of several MDPs is in force.

At the start of each episode one of M MDPs is drawn and stays hidden; you must still act well.
`import latentmdp as lm` gives the names below; they are imported when first used, so the import
itself is quick. Its only side effect: Gymnasium knows the environment `LatentMDP-v0`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from latentmdp._util.registration import register_environment, register_saver
from latentmdp._version import __version__

if TYPE_CHECKING:
    from latentmdp import (
        belief,
        deterministic,
        engines,
        envs,
        errors,
        estimation,
        experiments,
        fit,
        instances,
        io,
        logs,
        metrics,
        model,
        offline,
        online,
        outcomes,
        planning,
        policies,
        report,
        sessions,
        simulation,
        spectral,
        testing,
        theory,
        worlds,
    )
    from latentmdp.belief import posterior
    from latentmdp.errors import LatentMDPError, RecoveryError
    from latentmdp.estimation import EM, initialize
    from latentmdp.fit import Fit
    from latentmdp.instances import make
    from latentmdp.io import load, save
    from latentmdp.logs import LogFiles, Trajectories, open_logs
    from latentmdp.metrics import clustering_accuracy, model_error, regret
    from latentmdp.model import LatentMDP
    from latentmdp.offline import off_policy_value, solve
    from latentmdp.online import LUCRL, Bonus, Run, VarianceBonus, learn
    from latentmdp.planning import (
        HSVI,
        PBVI,
        QMDP,
        Exact,
        Explanation,
        Memoryless,
        Plan,
        Robust,
        RobustPlan,
        Value,
        evaluate,
        explain,
    )
    from latentmdp.policies import (
        AlphaVectorPolicy,
        MarkovPolicy,
        MixturePolicy,
        PolicyGraph,
        UniformPolicy,
    )
    from latentmdp.simulation import simulate
    from latentmdp.spectral import PSR, SpectralPSR, recover
    from latentmdp.theory import diagnose, separation
    from latentmdp.worlds import World

_HOMES = {
    "AlphaVectorPolicy": "policies",
    "Bonus": "online",
    "EM": "estimation",
    "Exact": "planning",
    "Explanation": "planning",
    "Fit": "fit",
    "HSVI": "planning",
    "LUCRL": "online",
    "LatentMDP": "model",
    "LatentMDPError": "errors",
    "LogFiles": "logs",
    "MarkovPolicy": "policies",
    "Memoryless": "planning",
    "MixturePolicy": "policies",
    "PBVI": "planning",
    "PSR": "spectral",
    "Plan": "planning",
    "PolicyGraph": "policies",
    "QMDP": "planning",
    "RecoveryError": "errors",
    "Robust": "planning",
    "RobustPlan": "planning",
    "Run": "online",
    "SpectralPSR": "spectral",
    "Trajectories": "logs",
    "UniformPolicy": "policies",
    "Value": "planning",
    "VarianceBonus": "online",
    "World": "worlds",
    "clustering_accuracy": "metrics",
    "diagnose": "theory",
    "evaluate": "planning",
    "explain": "planning",
    "initialize": "estimation",
    "learn": "online",
    "load": "io",
    "make": "instances",
    "model_error": "metrics",
    "off_policy_value": "offline",
    "open_logs": "logs",
    "posterior": "belief",
    "recover": "spectral",
    "regret": "metrics",
    "save": "io",
    "separation": "theory",
    "simulate": "simulation",
    "solve": "offline",
}
"""Public names, and the module each comes from."""

_MODULES = (
    "belief",
    "deterministic",
    "engines",
    "envs",
    "errors",
    "estimation",
    "experiments",
    "fit",
    "instances",
    "io",
    "logs",
    "metrics",
    "model",
    "offline",
    "online",
    "outcomes",
    "planning",
    "policies",
    "report",
    "sessions",
    "simulation",
    "spectral",
    "testing",
    "theory",
    "worlds",
)

__all__ = [
    "EM",
    "HSVI",
    "LUCRL",
    "PBVI",
    "PSR",
    "QMDP",
    "AlphaVectorPolicy",
    "Bonus",
    "Exact",
    "Explanation",
    "Fit",
    "LatentMDP",
    "LatentMDPError",
    "LogFiles",
    "MarkovPolicy",
    "Memoryless",
    "MixturePolicy",
    "Plan",
    "PolicyGraph",
    "RecoveryError",
    "Robust",
    "RobustPlan",
    "Run",
    "SpectralPSR",
    "Trajectories",
    "UniformPolicy",
    "Value",
    "VarianceBonus",
    "World",
    "__version__",
    "belief",
    "clustering_accuracy",
    "deterministic",
    "diagnose",
    "engines",
    "envs",
    "errors",
    "estimation",
    "evaluate",
    "experiments",
    "explain",
    "fit",
    "initialize",
    "instances",
    "io",
    "learn",
    "load",
    "logs",
    "make",
    "metrics",
    "model",
    "model_error",
    "off_policy_value",
    "offline",
    "online",
    "open_logs",
    "outcomes",
    "planning",
    "policies",
    "posterior",
    "recover",
    "regret",
    "report",
    "save",
    "separation",
    "sessions",
    "simulate",
    "simulation",
    "solve",
    "spectral",
    "testing",
    "theory",
    "worlds",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"latentmdp.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"latentmdp.{name}")
    else:
        raise AttributeError(f"module 'latentmdp' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _save(obj: Any, path: Any) -> None:
    from latentmdp.io import save

    save(obj, path)


register_environment()
register_saver(_save)
