"""What outcomes of the whole path share: they are diagnosed, saved and loaded alike."""

from __future__ import annotations

import os
from functools import cached_property
from typing import ClassVar, Self

from latentmdp import io
from latentmdp.errors import FormatError
from latentmdp.model import LatentMDP
from latentmdp.theory.diagnosis import Diagnosis, diagnose

__all__ = ["Outcome"]


class Outcome:
    """The outcome of the function named `_of`, with the model it found."""

    _of: ClassVar[str]
    model: LatentMDP

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """The assumptions of the theory, measured on the model found."""
        return diagnose(self.model)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one .npz file, all or nothing (`fit.selection` is left out)."""
        io.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote."""
        found = io.load(path)
        if not isinstance(found, cls):
            raise FormatError(
                f"{path} holds a {type(found).__name__}, not the outcome of `{cls._of}`"
            )
        return found
