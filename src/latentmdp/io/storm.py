"""Models of the model checkers Storm and PRISM: PRISM, JANI, DRN and UMB files, through stormpy.

In PRISM and JANI files, constants that the file leaves open are hidden: every combination of their
values is a context. DRN and UMB files hold one MDP each; a folder of files is one context a file,
in natural order. States and actions of different contexts are the same if they have the same name,
so that contexts may reach different states. All of them together are a POMDP in which the context
is hidden and the state is visible, or, in POMDPs of PRISM, what is observed of it
(`determined_pomdp`). What satisfies the goal is one state of that name, where the episode ends.

Storm runs in a process of its own, with a limit on memory: it knows no limit on the number of
states, and a file that it cannot read may end the process that it runs in.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp.errors import FormatError
from latentmdp.io.determined_pomdp import Events, Pomdp, Variable, check_sum, latent_mdp
from latentmdp.io.solver_files import CHECKER_SUFFIXES
from latentmdp.logs import frames
from latentmdp.model import LatentMDP

_STATE_BYTES = 1024
"""Memory that Storm may take for each state that is allowed, beside what it needs anyway."""


def read(
    path: Path,
    *,
    hidden: Mapping[str, Any] | None = None,
    goal: str | None = None,
    reward: str | None = None,
    horizon: int | None = None,
    discount: float | None = None,
    max_states: int = 200_000,
) -> LatentMDP:
    """The latent MDP of a file, or of a folder with one file for each context.

    Parameters
    ----------
    hidden
        Values of the constants that the file leaves open, by name: one value, or several.
    goal
        A label in quotes, or an expression of the file's language: the model is that of `reaching`
        it, and what satisfies it is one state, called so without the quotes.
    reward
        The reward model that is paid, and not seen, where there is no goal.
    horizon, discount
        As for `LatentMDP`. Without both there is no end, and with a goal no discount either: the
        value is the probability of reaching it. Without a goal the discount is then 0.95.
    max_states
        States of one context, at most.
    """
    paths = _files(path)
    if find_spec("stormpy") is None:
        raise FormatError("such a file is read by stormpy: pip install 'latentmdp[storm]'")
    if horizon is None and discount is None and goal is None:
        warnings.warn("no horizon and no discount: no end, and a discount of 0.95", stacklevel=2)
    constants = {
        name: [values] if isinstance(values, str) or not np.iterable(values) else list(values)
        for name, values in (hidden or {}).items()
    }
    empty = [name for name, values in constants.items() if not values]
    if empty:
        raise FormatError(f"hidden gives no value for {empty[0]!r}")
    contexts: list[tuple[Path, dict[str, Any]]] = [
        (file, dict(zip(constants, values)))
        for file, values in product(paths, product(*constants.values()))
    ]
    names = [
        " ".join([file.stem] * (len(paths) > 1) + [f"{n}={v}" for n, v in values.items()])
        for file, values in contexts
    ]
    systems = _built(contexts, goal, reward, max_states)
    end = None if goal is None else goal.strip().strip('"')
    if discount is None:
        discount = 0.95 if horizon is None and goal is None else 1.0
    model = latent_mdp(joined(systems, names, end, discount), horizon, len(systems) * max_states)
    return model if end is None else model.reaching(end)


class System(NamedTuple):
    """One context as an explicit MDP: choices of states, and the entries of what follows them."""

    states: Any  # (S,) names
    seen: Any  # (S,) names of what is seen: the states, or what is observed of them
    first: Integers  # states in which an episode may begin
    choice_state: Integers  # (C,)
    choice_name: Any  # (C,)
    choice_reward: Floats  # (C,)
    entry_choice: Integers  # (n,)
    entry_state: Integers  # (n,): the next state
    probability: Floats  # (n,)
    goal: Flags  # (S,)


def joined(
    systems: Sequence[System], names: Sequence[str], goal: str | None, discount: float
) -> Pomdp:
    """The POMDP whose hidden part is the context; what satisfies the goal is called `goal`."""
    sizes = [len(system.states) for system in systems]
    offset = np.cumsum([0, *sizes])
    reached, states, seen, choices, rewards, probability = (
        np.concatenate([np.asarray(getattr(system, name)) for system in systems])
        for name in ("goal", "states", "seen", "choice_name", "choice_reward", "probability")
    )
    owner, entry, following = (
        np.concatenate([getattr(system, name) + o for system, o in zip(systems, first)])
        for name, first in (
            ("choice_state", offset),
            ("entry_choice", np.cumsum([0, *(len(system.choice_name) for system in systems)])),
            ("entry_state", offset),
        )
    )
    labels, action = np.unique(choices[~reached[owner]], return_inverse=True)
    numbers = np.zeros(choices.size, np.int64)
    numbers[~reached[owner]] = action.ravel()
    sums = np.bincount(entry, probability, choices.size)
    worst = int(np.abs(sums - 1.0).argmax())
    context = np.repeat(np.arange(len(systems)), sizes)
    where = f"state '{states[owner[worst]]}' of context {names[context[owner[worst]]]!r}"
    check_sum(float(sums[worst]), f"action '{choices[worst]}' in {where}")
    first = np.zeros(offset[-1])
    for system, o in zip(systems, offset):
        first[system.first + o] = 1.0 / (len(systems) * len(system.first))
    # The goals of a context are one state, which nothing leaves, so that it is an end.
    goals = np.flatnonzero(reached)
    if goal is not None and not goals.size:
        raise FormatError(f"{goal!r} is reached in no context")
    _, lead, of_goal = np.unique(context[goals], return_index=True, return_inverse=True)
    leader, ends = np.arange(offset[-1]), goals[lead]
    leader[goals] = ends[of_goal.ravel()]
    A, kept, following = labels.size, ~reached[owner[entry]], leader[following]
    x, n = np.append(owner[entry][kept], ends.repeat(A)), np.append(following[kept], ends.repeat(A))
    a = np.append(numbers[entry][kept], np.tile(np.arange(A), ends.size))
    chance = np.append(probability[kept], np.ones(ends.size * A))
    paid = np.append(rewards[entry][kept], np.zeros(ends.size * A))
    (looks, look), (known, state) = (_coded(c, reached, goal) for c in (seen, states))
    variables = [Variable("", looks, look, True), Variable("context", names, context, False)]
    if len(known) > len(looks):
        variables.append(Variable("state", known, state, False))
    events = Events(x, a, n, np.zeros(x.size, np.int64), chance, paid)
    start = np.bincount(leader, first, first.size).astype(np.float64)
    return Pomdp(discount, A, labels.tolist(), [""], variables, start, events)


def _coded(words: Any, reached: Flags, goal: str | None) -> tuple[list[str], Integers]:
    """Distinct names, and the number of each word among them; the goal has one name."""
    number: dict[str, int] = {}
    called = (str(goal) if end else word for word, end in zip(words.tolist(), reached.tolist()))
    codes = np.array([number.setdefault(word, len(number)) for word in called])
    return list(number), codes


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path.resolve(strict=True)]
    files = [file for file in path.iterdir() if file.suffix.lower() in CHECKER_SUFFIXES]
    if not files:
        raise FormatError(f"no file in the folder ends in one of {', '.join(CHECKER_SUFFIXES)}")
    files.sort(key=lambda file: frames.natural_key(file.name))
    return [file.resolve() for file in files]


def _built(
    contexts: list[tuple[Path, dict[str, Any]]],
    goal: str | None,
    reward: str | None,
    max_states: int,
) -> list[System]:
    """The systems, made by Storm in another process."""
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "contexts": [(str(file), values) for file, values in contexts],
            "goal": goal,
            "reward": reward,
            "max_states": max_states,
            "folder": folder,
        }
        done = subprocess.run(
            [sys.executable, "-m", "latentmdp.io.storm"],
            input=json.dumps(request, default=np.generic.item),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or ["Storm ended without a word"]
            if done.returncode < 0 or "alloc" in last[0] or "MemoryError" in last[0]:
                last = [
                    f"Storm needs more memory than {max_states:,} states of a context should: "
                    "load(path, max_states=...) allows more"
                ]
            raise FormatError(last[0])
        systems = []
        for m in range(len(contexts)):
            with np.load(Path(folder, f"{m}.npz")) as arrays:
                systems.append(System(**arrays))
        return systems


# ---------------------------------------------------------------------- in the process of Storm


def _serve() -> None:
    """Answer one request from the standard input."""
    request = json.load(sys.stdin)
    try:
        import stormpy

        _limit_memory((1 << 26) + request["max_states"] * _STATE_BYTES)
        for m, (file, values) in enumerate(request["contexts"]):
            model, goal = _model(stormpy, Path(file), values, request["goal"])
            if model.nr_states > request["max_states"]:
                raise FormatError(
                    f"it has {model.nr_states:,} states: load(path, max_states=...) allows more"
                )
            system = _system(model, request["reward"], goal)
            np.savez(Path(request["folder"], f"{m}.npz"), **system._asdict())
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        sys.exit(re.sub(r"(\w+Exception: )+", "", text)[:400])


def _limit_memory(size: int) -> None:
    try:
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + size, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):  # no such limit on this system
        pass


def _model(stormpy: Any, file: Path, values: dict[str, Any], goal: str | None) -> tuple[Any, Any]:
    """A model of Storm, and which of its states satisfy the goal."""
    suffix = file.suffix.lower()
    if suffix in (".drn", ".umb"):
        if values:
            raise FormatError(f"{file.name} has no constants, hidden names {min(values)!r}")
        wanted = _formulas(stormpy, goal)
        if suffix == ".umb":
            model = stormpy.build_model_from_umb(file)
        else:
            options = stormpy.io.DirectEncodingParserOptions()
            options.build_choice_labeling = True
            model = stormpy.build_model_from_drn(file, options=options)
    else:
        program = _program(file)
        open_ = [c.name for c in program.constants if not c.defined]
        unknown, missing = sorted(set(values) - set(open_)), sorted(set(open_) - set(values))
        if unknown:
            raise FormatError(f"hidden names {unknown[0]!r}, which is no open constant of the file")
        if missing:
            raise FormatError(
                f"the constant {missing[0]!r} has no value: hidden={{{missing[0]!r}: [...]}} gives "
                "it one, or several"
            )
        if values:
            program, _ = stormpy.instantiate_constants(program, values)
        wanted = _formulas(stormpy, goal, program)
        model = stormpy.build_model(
            program, options=stormpy.BuilderOptions(wanted, build_full=True)
        )
    if not wanted:
        return model, None
    truth = np.zeros(model.nr_states, np.bool_)
    checked = stormpy.model_checking(model, wanted[0], force_fully_observable=True)
    truth[list(checked.get_truth_values_vector())] = True
    return model, truth


def _formulas(stormpy: Any, goal: str | None, *program: Any) -> list[Any]:
    """The goal as a property, if there is one."""
    try:
        return [] if goal is None else [stormpy.parse_property(goal, *program)]
    except RuntimeError as error:
        raise FormatError(f"goal {goal!r} is no label in quotes, no expression: {error}") from None


@cache
def _program(file: Path) -> Any:
    """A file in the language of PRISM or JANI, read once for all contexts."""
    import stormpy

    if file.suffix.lower() == ".jani":
        return stormpy.parse_jani_model(file)[0]
    return stormpy.parse_prism_program(file, prism_compatibility=True)


def _system(model: Any, reward: str | None, goal: Any) -> System:
    choices, branches, target, chance, *labels = _archived(model)
    S = model.nr_states
    choice_state = np.repeat(np.arange(S), np.diff(choices))
    states = np.arange(S).astype(str)
    if model.has_state_valuations():
        variables = model.state_valuations.get_all_variables()
        columns = [model.state_valuations.get_values_states(v) for v in variables]
        words = [[f"{v.name}={x}" for x in c] for v, c in zip(variables, columns)]
        states = np.array([" ".join(row) for row in zip(*words)])
    return System(
        states=states,
        seen=np.array(model.observations).astype(str) if model.is_partially_observable else states,
        first=np.array(model.initial_states),
        choice_state=choice_state,
        choice_name=_choice_names(choice_state, *labels),
        choice_reward=_rewards(model, reward, choice_state)
        if goal is None
        else np.zeros(choice_state.size),
        entry_choice=np.repeat(np.arange(choice_state.size), np.diff(branches)),
        entry_state=target,
        probability=chance,
        goal=np.zeros(S, np.bool_) if goal is None else goal,
    )


def _archived(model: Any) -> list[Any]:
    """First choice of each state, first branch of each choice; target and chance of branches.

    Then, where choices have labels: the label of each choice, where each label begins in the text
    of all, and that text. By way of a UMB archive, which holds them as arrays: stormpy gives them
    one by one.
    """
    import stormpy

    kinds = {"state-to-choices": "<i8", "choice-to-branches": "<i8", "branch-to-target": "<i8"}
    kinds |= {"branch-to-probability": "<f8", "actions/choices/values": "<u4"}
    kinds |= {"actions/choices/string-mapping": "<i8", "actions/choices/strings": "u1"}
    options = stormpy.io.UmbExportOptions()
    options.compression = stormpy.io.CompressionMode.NO_COMPRESSION
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.umb")
        stormpy.io.export_to_umb(model, file, options=options)
        with tarfile.open(file) as archive:
            known = {f"{name}.bin" for name in kinds} & set(archive.getnames())
            members = {n: archive.extractfile(f"{n}.bin") for n in kinds if f"{n}.bin" in known}
            return [np.frombuffer(f.read(), kinds[n]) for n, f in members.items() if f is not None]


def _choice_names(
    choice_state: Any, label: Any = None, begins: Any = (0, 0), text: Any = b""
) -> Any:
    """The labels of the choices; those of a state that have the same are numbered."""
    if label is None:
        label = np.zeros(choice_state.size, np.int64)
    words = [bytes(text[i:j]).decode() or "choice" for i, j in pairwise(begins)]
    alike = choice_state * len(words) + label
    order = np.argsort(alike, kind="stable")
    first = np.searchsorted(alike[order], alike[order])
    names = np.array(words)[label].astype(object)
    for c, k in zip(order.tolist(), (np.arange(order.size) - first).tolist()):
        if k:
            names[c] += f" #{k + 1}"
    return names.astype(str)


def _rewards(model: Any, reward: str | None, choice_state: Any) -> Any:
    """What each choice pays."""
    known = model.reward_models
    if reward is None and len(known) == 1:
        reward = next(iter(known))
    if reward not in known:
        listed = ", ".join(map(repr, sorted(known))) or "none"
        raise FormatError(f"say goal= or reward=: the file has the reward models {listed}")
    paid, rewards = np.zeros(choice_state.size), known[reward]
    if rewards.has_state_rewards:
        paid += np.array(rewards.state_rewards)[choice_state]
    if rewards.has_state_action_rewards:
        paid += np.array(rewards.state_action_rewards)
    if rewards.has_transition_rewards:
        raise FormatError(f"the reward model {reward!r} pays for transitions, which is not read")
    return paid


if __name__ == "__main__":
    _serve()
