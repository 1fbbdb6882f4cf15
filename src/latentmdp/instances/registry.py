"""The registry of instances: a name, a builder, and the arguments it takes with their defaults.

A builder is a function that returns a `LatentMDP`. All its parameters are keyword-only and have
defaults, except `rng`, which it takes first if it draws anything:

    @register("two-doors")
    def two_doors(*, pay: float = 1.0, horizon: int = 5) -> LatentMDP:
        '''One of two doors pays; which one is hidden.'''

The first line of its docstring is the summary the registry shows.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from latentmdp._util.random import RNGLike, as_generator
from latentmdp._util.words import did_you_mean
from latentmdp.model import LatentMDP

Builder = TypeVar("Builder", bound=Callable[..., LatentMDP])


@dataclass(frozen=True)
class Instance:
    """An entry of the registry.

    Attributes
    ----------
    name
        What `make` calls it.
    summary
        One line that says what it is.
    arguments
        Every argument with its default.
    uses_rng
        Whether it is drawn at random; if not, `rng` has no effect.
    build
        The function behind it; its docstring says the rest.
    """

    name: str
    summary: str
    arguments: Mapping[str, Any]
    uses_rng: bool
    build: Callable[..., LatentMDP]

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        rng = ", rng" if self.uses_rng else ""
        return f"{self.name}({arguments}{rng}): {self.summary}"


_REGISTRY: dict[str, Instance] = {}


def register(name: str) -> Callable[[Builder], Builder]:
    """Decorator that makes a builder available as `make(name, ...)`.

    A name that is taken, a builder without docstring and an argument without default are refused.
    """

    def add(build: Builder) -> Builder:
        if name in _REGISTRY:
            raise ValueError(f"an instance named {name!r} is already registered")
        parameters = dict(inspect.signature(build).parameters)
        uses_rng = parameters.pop("rng", None) is not None
        for argument, parameter in parameters.items():
            if parameter.default is parameter.empty:
                raise ValueError(f"argument {argument!r} of instance {name!r} has no default")
        summary = (inspect.getdoc(build) or "").partition("\n")[0]
        if not summary:
            raise ValueError(f"the builder of instance {name!r} has no docstring")
        defaults = {argument: parameter.default for argument, parameter in parameters.items()}
        _REGISTRY[name] = Instance(name, summary, MappingProxyType(defaults), uses_rng, build)
        return build

    return add


def list_instances() -> tuple[Instance, ...]:
    """Every registered instance, by name; printed one by one they show their arguments."""
    return tuple(_REGISTRY[name] for name in sorted(_REGISTRY))


def get_instance(name: str) -> Instance:
    """The entry called `name`; raises `ValueError`, naming the closest, if there is none."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an instance must be a string, got {type(name).__name__}")
    if name not in _REGISTRY:
        hint = did_you_mean(name, _REGISTRY)
        raise ValueError(
            f"there is no instance {name!r}{hint}; known: {', '.join(sorted(_REGISTRY))}"
        )
    return _REGISTRY[name]


def make(name: str, rng: RNGLike = None, **arguments: Any) -> LatentMDP:
    """Build a named instance.

    Parameters
    ----------
    name
        One of `list_instances()`.
    rng
        Seed or `Generator`. The same seed and arguments give the same model, bit for bit;
        None draws a fresh one. Instances that are not random ignore it.
    **arguments
        What the instance takes; every argument has a default. Where it takes a horizon, this may
        be None, and `discount` may be given even if the instance does not list it.

    Raises
    ------
    ValueError
        For an unknown name, naming the closest, or a value out of range.
    TypeError
        For an unknown argument, naming the closest.

    Examples
    --------
    >>> import latentmdp as lm
    >>> model = lm.make("separated", contexts=7, states=15, actions=3, delta=0.5, rng=0)
    """
    instance = get_instance(name)
    # A builder that takes a discount takes any duration; others are built with an end.
    only_ends = "horizon" in instance.arguments and "discount" not in instance.arguments
    changes: dict[str, Any] = {}
    if only_ends and "discount" in arguments:
        changes["discount"] = arguments.pop("discount")
    if only_ends and arguments.get("horizon", 1) is None:
        changes["horizon"] = arguments.pop("horizon")
    for argument in arguments:
        if argument not in instance.arguments:
            accepted = [*instance.arguments, *(["discount"] if only_ends else [])]
            raise TypeError(
                f"instance {name!r} takes no argument {argument!r}"
                f"{did_you_mean(argument, accepted)}; it takes: {', '.join(accepted) or 'none'}"
            )
    generator = as_generator(rng)
    model = instance.build(*([generator] if instance.uses_rng else []), **arguments)
    return model.replace(**changes) if changes else model
