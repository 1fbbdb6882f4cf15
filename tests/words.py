"""Every public word: names of parameters, command-line options and fields of results.

    python tests/words.py

lists each with the places it occurs in. `docs/notation.md` says what each means, once; the test of
the documents holds the two against each other.
"""

import dataclasses
import inspect
from collections import defaultdict

import latentmdp as lm


def public_things():
    """(where, object) for everything that a user may call or hold."""
    seen = set()
    for home in (lm, *(getattr(lm, name) for name in lm._MODULES)):
        for name in home.__all__:
            thing = getattr(home, name)
            if inspect.ismodule(thing) or id(thing) in seen:
                continue
            seen.add(id(thing))
            yield name, thing


def _parameters(function):
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind not in kinds]


def _fields(thing):
    """What a result holds: fields of dataclasses and named tuples, and properties."""
    names = [field.name for field in dataclasses.fields(thing)] if _is_dataclass(thing) else []
    names += list(getattr(thing, "_fields", ()))
    kinds = (property, lm.policies.cached_property)
    return names + [name for name, value in vars(thing).items() if isinstance(value, kinds)]


def _is_dataclass(thing):
    return dataclasses.is_dataclass(thing)


def _of_class(name, thing):
    if issubclass(thing, BaseException):
        return
    for word in _parameters(thing):
        yield word, name
    for word in _fields(thing):
        yield word, f"{name}.{word}"
    for method, value in vars(thing).items():
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function) and not method.startswith("_"):
            for word in _parameters(function):
                yield word, f"{name}.{method}"


def _options():
    from typer.main import get_command

    from latentmdp.cli.app import app

    for name, command in get_command(app).commands.items():
        for parameter in command.params:
            for option in parameter.opts:
                yield option.removeprefix("--"), f"latentmdp {name} {option}"


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
    return found


if __name__ == "__main__":
    for word, places in sorted(words().items()):
        print(f"{word:28} {len(places):3}  {', '.join(places[:6])}")
