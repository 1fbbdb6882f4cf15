"""Spectral learning of latent MDPs: moments, predictive state representations, recovery."""

from latentmdp.spectral.moments import Moments, count_moments
from latentmdp.spectral.noise import Evidence, evident_rank
from latentmdp.spectral.population import PopulationMoments, population_moments
from latentmdp.spectral.psr import PSR
from latentmdp.spectral.recovery import recover
from latentmdp.spectral.selection import Selection, select
from latentmdp.spectral.spectral_psr import SpectralPSR

__all__ = [
    "PSR",
    "Evidence",
    "Moments",
    "PopulationMoments",
    "Selection",
    "SpectralPSR",
    "count_moments",
    "evident_rank",
    "population_moments",
    "recover",
    "select",
]
