"""Latent Markov decision processes: plan, learn and act when one of several MDPs is in force.

At the start of each episode one of M MDPs is drawn and stays hidden; you must still act well.
`import latentmdp as lm` gives the names below; they are imported when first used, so the import
itself is quick. Its only side effect: Gymnasium knows the environment `LatentMDP-v0`.
"""

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
        plot,
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
    from latentmdp.metrics import adjusted_rand_index, clustering_accuracy, model_error, regret
    from latentmdp.model import LatentMDP
    from latentmdp.offline import check_fit, off_policy_value, solve
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
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
    __all__.append("__version__")


def _save(obj: Any, path: Any) -> None:
    from latentmdp.io import save

    save(obj, path)


register_environment()
register_saver(_save)
