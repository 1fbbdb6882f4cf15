"""Every public word: names of parameters, command-line options and fields of results.

    python tests/words.py

lists each with the places it occurs in. `docs/notation.md` says what each means, once; the test of
the documents holds the two against each other. An option is the word of the parameter it sets:
`--time-limit` counts as `time_limit`.

Public is what stands in `__all__` of the package or of one of its modules, and what an instance can
be made with.
"""

import dataclasses
import dis
import inspect
import re
from collections import defaultdict
from functools import cached_property

import latentmdp as lm


def public_modules():
    """Names of the modules that `latentmdp` shows."""
    return sorted(name for name in lm.__all__ if inspect.ismodule(getattr(lm, name)))


def public_things():
    """(where, object) for everything that a user may call or hold."""
    homes = (lm, *(getattr(lm, name) for name in public_modules()))
    things = [
        (name, getattr(home, name))
        for home in homes
        for name in getattr(home, "__all__", ())
        if not inspect.ismodule(getattr(home, name))
    ]
    things += [(f"make {i.name}", i.build) for i in lm.instances.list_instances()]
    seen = set()
    for name, thing in things:
        if id(thing) in seen or not hasattr(thing, "__module__") or not callable(thing):
            continue
        seen.add(id(thing))
        yield name, thing


def _functions(thing):
    """A function itself; the constructor and the public methods of a class, with their names."""
    if not inspect.isclass(thing):
        yield None, thing
        return
    for base in _bases(thing):
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if isinstance(value, property | cached_property):
                function = getattr(value, "fget", None) or value.func
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                yield name, function


def _bases(thing):
    return [base for base in thing.__mro__ if base.__module__.startswith("latentmdp")]


def _parameters(function):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind not in kinds]


def _fields(thing):
    """What a result holds: declared fields, properties, and what its constructor sets."""
    names = [f.name for f in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else []
    names += list(getattr(thing, "_fields", ()))
    for base in _bases(thing):
        names += list(vars(base).get("__annotations__", {}))
        stored = dis.get_instructions(vars(base).get("__init__", _fields))
        names += [i.argval for i in stored if i.opname == "STORE_ATTR"]
        kinds = (property, cached_property)
        names += [name for name, value in vars(base).items() if isinstance(value, kinds)]
    return names


def _of_class(name, thing):
    if issubclass(thing, BaseException):
        return
    for word in _parameters(thing):
        yield word, name
    for word in _fields(thing):
        yield word, f"{name}.{word}"
    for method, function in _functions(thing):
        if method != "__init__":
            for word in _parameters(function):
                yield word, f"{name}.{method}"


def _options():
    from typer.main import get_command

    from latentmdp.cli.app import app

    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            long = [option for option in parameter.opts if not re.fullmatch("-.", option)]
            for option in long:
                place = f"latentmdp {name} {option if option[0] == '-' else option.upper()}"
                yield option.removeprefix("--").replace("-", "_"), place


def words():
    """Each public word and where it occurs."""
    found = defaultdict(list)
    for name, thing in public_things():
        if inspect.isclass(thing):
            pairs = _of_class(name, thing)
        else:
            pairs = ((word, name) for word in _parameters(thing))
        for word, place in pairs:
            if not word.startswith("_") and word not in ("self", "cls"):
                found[word].append(place)
    for word, place in _options():
        found[word].append(place)
    return {word: list(dict.fromkeys(places)) for word, places in found.items()}


if __name__ == "__main__":
    for word, places in sorted(words().items()):
        print(f"{word:28} {len(places):3}  {', '.join(places)}")
