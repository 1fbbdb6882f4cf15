"""The quantities the theory of latent MDPs speaks of, computed for a given model."""

from latentmdp.theory.confidence import (
    ConfidenceConstants,
    confidence_constants,
    confidence_set_contains,
)
from latentmdp.theory.diagnosis import Diagnosis, diagnose
from latentmdp.theory.information import (
    Revelation,
    WellSeparated,
    divergences,
    kl_rate,
    log_probability_norm,
    revelation,
    well_separated,
)
from latentmdp.theory.log_diagnosis import LogDiagnosis
from latentmdp.theory.lower_bound import LowerBoundCheck, check_lower_bound, required_episodes
from latentmdp.theory.rank import (
    end_state_probs,
    history_matrices,
    joint_sigma,
    prediction_matrices,
    sigma_h,
    sigma_tau,
)
from latentmdp.theory.reachability import (
    connectivity,
    diameter,
    hitting_times,
    reach_probs,
    reachability,
)
from latentmdp.theory.regret import regret_bound
from latentmdp.theory.requirements import (
    Requirement,
    needed_clustering_episodes,
    needed_psr_episodes,
)
from latentmdp.theory.sample_size import (
    clustering_episodes,
    inference_horizon,
    initial_counts,
    initialization_error,
    largest_smoothing,
    prediction_accuracy,
    psr_episodes,
    psr_episodes_for_clustering,
    separation_horizon,
)
from latentmdp.theory.separation import Closest, closest_contexts, separation

__all__ = [
    "Closest",
    "ConfidenceConstants",
    "Diagnosis",
    "LogDiagnosis",
    "LowerBoundCheck",
    "Requirement",
    "Revelation",
    "WellSeparated",
    "check_lower_bound",
    "closest_contexts",
    "clustering_episodes",
    "confidence_constants",
    "confidence_set_contains",
    "connectivity",
    "diagnose",
    "diameter",
    "divergences",
    "end_state_probs",
    "history_matrices",
    "hitting_times",
    "inference_horizon",
    "initial_counts",
    "initialization_error",
    "joint_sigma",
    "kl_rate",
    "largest_smoothing",
    "log_probability_norm",
    "needed_clustering_episodes",
    "needed_psr_episodes",
    "prediction_accuracy",
    "prediction_matrices",
    "psr_episodes",
    "psr_episodes_for_clustering",
    "reach_probs",
    "reachability",
    "regret_bound",
    "required_episodes",
    "revelation",
    "separation",
    "separation_horizon",
    "sigma_h",
    "sigma_tau",
    "well_separated",
]
