"""Oracles and conformance checks: the yardsticks of the library's own tests, for yours too."""

from latentmdp.testing.conformance import (
    ConformanceError,
    check_instance,
    check_learner,
    check_planner,
)
from latentmdp.testing.models import endless_models, random_model, small_models
from latentmdp.testing.oracles import (
    action_probabilities,
    count_histories,
    optimal_memoryless_value,
    optimal_value,
    policy_value,
    posterior,
    robust_value,
    trajectory_probability,
)

__all__ = [
    "ConformanceError",
    "action_probabilities",
    "check_instance",
    "check_learner",
    "check_planner",
    "count_histories",
    "endless_models",
    "optimal_memoryless_value",
    "optimal_value",
    "policy_value",
    "posterior",
    "random_model",
    "robust_value",
    "small_models",
    "trajectory_probability",
]
