"""Oracles and conformance checks: the yardsticks of the library's own tests, for yours too."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
