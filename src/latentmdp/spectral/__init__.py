"""Spectral learning of latent MDPs: moments, predictive state representations, recovery."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from latentmdp.spectral.moments import (
        Moments,
        PopulationMoments,
        count_moments,
        population_moments,
    )
    from latentmdp.spectral.noise import Evidence, evident_rank
    from latentmdp.spectral.psr import PSR
    from latentmdp.spectral.recovery import recover
    from latentmdp.spectral.selection import Selection, select
    from latentmdp.spectral.spectral_psr import SpectralPSR

if TYPE_CHECKING:  # for other parts of the library
    from latentmdp.spectral.recovery import count_model, k_means, log_likelihoods
else:
    from latentmdp._util.lazy import lazy_names

    __getattr__, __dir__, __all__ = lazy_names(__name__)
