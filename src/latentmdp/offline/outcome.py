"""What outcomes of the whole path share: a model that can be diagnosed."""

from __future__ import annotations

from functools import cached_property

from latentmdp.model import LatentMDP
from latentmdp.theory.diagnosis import Diagnosis, diagnose

__all__ = ["Outcome"]


class Outcome:
    """An outcome with the model it found."""

    model: LatentMDP

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the model found."""
        return diagnose(self.model)
