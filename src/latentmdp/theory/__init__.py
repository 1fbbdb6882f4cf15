"""The quantities the theory of latent MDPs speaks of, computed for a given model."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.planning import AlmostSurely, SupportPolicy, almost_surely
    from latentmdp.theory.communication import (
        connectivity,
        diameter,
        hitting_times,
        reach_probs,
        reachability,
    )
    from latentmdp.theory.confidence import (
        ConfidenceConstants,
        confidence_constants,
        confidence_set_contains,
        regret_bound,
    )
    from latentmdp.theory.diagnosis import Diagnosis, diagnose
    from latentmdp.theory.divergence import (
        Closest,
        Revelation,
        WellSeparated,
        closest_contexts,
        divergences,
        kl_rate,
        log_probability_norm,
        revelation,
        separation,
        well_separated,
    )
    from latentmdp.theory.log_diagnosis import LogDiagnosis
    from latentmdp.theory.lower_bound import LowerBoundCheck, check_lower_bound, required_episodes
    from latentmdp.theory.rank import (
        end_state_probs,
        history_matrices,
        joint_sigma,
        prediction_matrices,
        prediction_separation,
        sigma_h,
        sigma_tau,
    )
    from latentmdp.theory.sample_size import (
        DecodingHorizons,
        Requirement,
        clustering_episodes,
        decoding_horizons,
        inference_horizon,
        initial_counts,
        initialization_error,
        largest_smoothing,
        needed_clustering_episodes,
        needed_psr_episodes,
        prediction_accuracy,
        psr_episodes,
        psr_episodes_for_clustering,
        separation_horizon,
    )

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.theory.divergence import telling_outcomes
    from latentmdp.theory.visitation import occupancy
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
