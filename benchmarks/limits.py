"""Whether planners keep their limits, on random problems of all kinds.

`python benchmarks/limits.py [--kinds ...] [--planners ...] [--instances 6] [--limits 1 3 10]
[--memory 256] [--seed 0]`: 10 kinds of problems with 6 instances each by default, every planner
under every time limit: an hour and a half.

Every plan is made in a process of its own, forked from one in which everything is compiled, and is
measured from outside: seconds from the call to the plan, and the peak of the resident size above
that of the process with the model loaded. What is checked:

- time      at most 1.1 x limit + .5 s, less what numba took to load further loops, and, beyond the
            limit, less what the process waited for a processor that others had;
- memory    at most the memory limit, and what a message says was used is right within a factor 2;
- bounds    none wider than Q-MDP's upper bound, and than what a simple policy earns: at each (t, s)
            the action that is best for the prior if the context is revealed after it; where these
            two take less than half the limit;
- the end   no error, and no crash.
"""

import argparse
import os
import re
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from math import inf
from multiprocessing.connection import Connection, Pipe
from typing import Any, NamedTuple

import numpy as np

import latentmdp as lm
from latentmdp._util.clock import compile_seconds
from latentmdp.planning.qmdp import context_values, q_values

Rng = np.random.Generator


def _size(rng: Rng, low: float, high: float) -> int:
    """A number between two others, its logarithm uniform."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def _horizon(rng: Rng) -> int | None:
    return None if rng.random() < 0.4 else _size(rng, 5, 60)


def _with_end(model: lm.LatentMDP, rng: Rng) -> lm.LatentMDP:
    horizon, discount = _horizon(rng), 1.0 - 10.0 ** -rng.uniform(1, 3)
    return model.replace(horizon=horizon, discount=discount if horizon is None else 1.0)


def dense(rng: Rng) -> lm.LatentMDP:
    M, A = _size(rng, 2, 50), _size(rng, 2, 8)
    S = min(_size(rng, 5, 1_000), int((4e6 / (M * A)) ** 0.5))  # a table of 32 MB at most
    return _with_end(lm.make("random", contexts=M, states=S, actions=A, horizon=5, rng=rng), rng)


def sparse(rng: Rng) -> lm.LatentMDP:
    S = _size(rng, 200, 5_000)
    model = lm.make(
        "sparse", contexts=_size(rng, 2, 10), states=S, actions=_size(rng, 2, 8),
        successors=_size(rng, 2, 8), shared_successors=bool(rng.random() < 0.5), rng=rng,
    )  # fmt: skip
    return _with_end(model, rng)


def costs(rng: Rng) -> lm.LatentMDP:
    """Amounts from 1 to 1e12, seen or not."""
    M, S, A = _size(rng, 2, 8), _size(rng, 5, 80), _size(rng, 2, 6)
    T = rng.dirichlet(np.full(S, 0.2), size=(M, S, A))
    amounts = -(10.0 ** rng.uniform(0, 12)) * rng.random((M, S, A))
    model = lm.LatentMDP.from_amounts(
        T, amounts, observed=bool(rng.random() < 0.5), horizon=10, initial=0
    )
    return _with_end(model, rng)


def endless(rng: Rng) -> lm.LatentMDP:
    discount = 1.0 - 10.0 ** -rng.uniform(1, 4)
    model = lm.make(
        "random", contexts=_size(rng, 3, 40), states=_size(rng, 5, 80),
        actions=_size(rng, 2, 4), horizon=5, rng=rng,
    )  # fmt: skip
    return model.replace(horizon=None, discount=discount)


def many(rng: Rng) -> lm.LatentMDP:
    model = lm.make(
        "sparse", contexts=_size(rng, 50, 300), states=_size(rng, 20, 300),
        actions=_size(rng, 2, 5), successors=_size(rng, 2, 6), rng=rng,
    )  # fmt: skip
    return _with_end(model, rng)


def bandit(rng: Rng) -> lm.LatentMDP:
    M, A = _size(rng, 2, 100), _size(rng, 2, 12)
    model = lm.LatentMDP(np.ones((M, 1, A, 1)), rng.random((M, 1, A)), horizon=5)
    return _with_end(model, rng)


def rocks(rng: Rng) -> lm.LatentMDP:
    size, k = int(rng.integers(3, 6)), int(rng.integers(2, 8))
    return lm.make("rock-sample", size=size, rocks=k, horizon=_horizon(rng), rng=rng)


def identification(rng: Rng) -> lm.LatentMDP:
    bits = int(rng.integers(2, 9))
    noise = 0.0 if rng.random() < 0.5 else rng.uniform(0.02, 0.2)
    return lm.make("identification", bits=bits, noise=noise, horizon=_size(rng, 4, 20))


def terminal(rng: Rng) -> lm.LatentMDP:
    """A quarter of the states end the episode, and pay on the way in."""
    return _restricted(rng, ends=0.25, forbidden=0.0)


def forbidden(rng: Rng) -> lm.LatentMDP:
    return _restricted(rng, ends=0.05, forbidden=0.4)


def _restricted(rng: Rng, ends: float, forbidden: float) -> lm.LatentMDP:
    M, S, A, k = _size(rng, 2, 20), _size(rng, 10, 300), _size(rng, 2, 6), 4
    T = np.zeros((M, S, A, S))
    for s, a in np.ndindex(S, A):
        T[:, s, a, rng.choice(S, k, replace=False)] = rng.dirichlet(np.ones(k), size=M)
    allowed = rng.random((S, A)) >= forbidden
    allowed[np.arange(S), rng.integers(A, size=S)] = True
    allowed[1 + rng.choice(S - 1, size=max(1, int(ends * S)), replace=False)] = False
    model = lm.LatentMDP(T, rng.random((M, S, A)) ** 8, allowed=allowed, horizon=9, initial=0)
    return _with_end(model, rng)


KINDS: dict[str, Callable[[Rng], lm.LatentMDP]] = {
    function.__name__: function
    for function in (
        dense, sparse, costs, endless, many, bandit, rocks, identification, terminal, forbidden
    )
}  # fmt: skip

PLANNERS: dict[str, Callable[..., Any]] = {
    "HSVI": lambda **limits: lm.HSVI(gap=0.0, **limits),
    "PBVI": lambda **limits: lm.PBVI(beliefs=10_000, **limits),
    "Robust": lambda **limits: lm.Robust("worst-case", gap=0.0, **limits),
    "Robust-regret": lambda **limits: lm.Robust("regret", gap=0.0, **limits),
    "Memoryless": lambda **limits: lm.Memoryless(**limits),
    "Memoryless-stationary": lambda **limits: lm.Memoryless(stationary=True, **limits),
}


class Reference(NamedTuple):
    """What every plan must beat: (lower, upper) by planner."""

    bounds: dict[str, tuple[float, float]]

    @classmethod
    def of(cls, model: lm.LatentMDP) -> "Reference":
        values = q_values(model)
        best = context_values(model, values)
        scores = np.where(model.allowed, values @ model.weights, -np.inf)
        actions = np.where(model.terminal, 0, scores.argmax(axis=-1))
        earned = lm.evaluate(model, lm.MarkovPolicy(actions)).by_context
        mean = float(model.weights @ earned), float(model.weights @ best)
        own = {
            "Robust": (float(earned.min()), float(best.min())),
            "Robust-regret": (float((earned - best).min()), 0.0),
            "Memoryless-stationary": (-inf, mean[1]),
        }
        return cls({name: own.get(name, mean) for name in PLANNERS})


class Outcome(NamedTuple):
    """What a child says of its plan."""

    lower: float
    upper: float
    message: str
    peak: float  # MiB of resident size above that with the model loaded
    compiled: float  # seconds
    waited: float  # seconds in which it could run, but others had the processors


def resident(field: str) -> float:
    """MiB of this process: "VmRSS" now, "VmHWM" at its highest."""
    with open("/proc/self/status") as status:
        return next(float(line.split()[1]) for line in status if line.startswith(field)) / 1024.0


def waited(process: int) -> float:
    """Seconds in which the main thread of a process could run but had no processor."""
    with open(f"/proc/{process}/task/{process}/schedstat") as file:
        return 1e-9 * float(file.read().split()[1])


def plan_in_child(answers: Connection, model: lm.LatentMDP, planner: Any) -> None:
    """Plan, and send what became of it."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the highest resident size counts from here
    before, compiled = resident("VmRSS"), compile_seconds()
    answers.send("begins")
    plan = planner.plan(model)
    peak, compiled = resident("VmHWM") - before, compile_seconds() - compiled
    lost = waited(os.getpid())
    answers.send(Outcome(plan.lower, plan.upper, plan.message, peak, compiled, lost))


def in_child(
    work: Callable[..., None], patience: float, limit: float, *arguments: Any
) -> tuple[Any, float, int]:
    """Run `work(pipe, *arguments)` in a fork: its last word, the seconds before it, its exit code.

    Seconds are counted from its first word, without those that it waited for a processor after the
    limit. It is killed when it has not answered for so long.
    """
    ours, theirs = Pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(theirs, *arguments)
            code = 0
        except BaseException:
            theirs.send("".join(traceback.format_exc()))
        finally:
            os._exit(code)
    theirs.close()
    word: Any = "no answer"
    seconds = late = 0.0
    try:
        word = ours.recv()
        began = time.perf_counter()
        if not select.select([ours], [], [], limit)[0]:
            late = waited(child)
            if not select.select([ours], [], [], patience)[0]:
                os.kill(child, signal.SIGKILL)
        word = ours.recv()
        seconds = time.perf_counter() - began
        if late and isinstance(word, Outcome):
            seconds -= word.waited - late
    except EOFError:
        word = f"no answer after {word}"
    _, status = os.waitpid(child, 0)
    return word, seconds, os.waitstatus_to_exitcode(status)


def violations(
    outcome: Outcome, seconds: float, limit: float, memory: float, reference: tuple[float, float]
) -> Iterator[str]:
    """What a plan does that it should not."""
    if seconds > 1.1 * limit + 0.5:
        yield f"TIME {seconds:.2f} s"
    if outcome.peak > memory:
        yield f"MEMORY {outcome.peak:.0f} MiB"
    told = re.search(r"([\d,.]+) MiB (?:are|is|were) used", outcome.message)
    if told is not None:
        used = float(told[1].replace(",", ""))
        if not 0.5 <= (used + 16.0) / (outcome.peak + 16.0) <= 2.0:
            yield f"ESTIMATE {used:.0f} of {outcome.peak:.0f} MiB"
    lower, upper = reference
    slack = 1e-9 * (abs(outcome.lower) + abs(outcome.upper))
    if outcome.lower < lower - slack:
        yield f"LOWER {outcome.lower:.6g} < {lower:.6g}"
    if outcome.upper > upper + slack:
        yield f"UPPER {outcome.upper:.6g} > {upper:.6g}"
    if not outcome.lower <= outcome.upper + slack:
        yield f"CROSSED {outcome.lower:.6g} > {outcome.upper:.6g}"


def warm_up() -> None:
    """Compile every planner for every form of a model."""
    small = lm.make("random", contexts=2, states=3, actions=2, horizon=3, rng=0)
    table = lm.make("sparse", contexts=2, states=4, successors=2, horizon=3, rng=0)
    ends = lm.make("rock-sample", size=2, rocks=1, rng=0)
    models = [small, table, ends, *(m.replace(horizon=None, discount=0.9) for m in (small, table))]
    for model in models:
        Reference.of(model)
        for name in PLANNERS:
            PLANNERS[name](time_limit=1.0, memory_limit=256.0).plan(model)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--planners", nargs="+", choices=PLANNERS, default=list(PLANNERS))
    parser.add_argument("--instances", type=int, default=6)
    parser.add_argument("--limits", nargs="+", type=float, default=[1.0, 3.0, 10.0])
    parser.add_argument("--memory", type=float, default=256.0, help="MiB")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warm_up()
    bad, total = [], 0
    for kind in options.kinds:
        for instance in range(options.instances):
            rng = np.random.default_rng([options.seed, list(KINDS).index(kind), instance])
            model = KINDS[kind](rng)
            name = (
                f"{kind}/{instance} {model.dimensions[:3]} H={model.horizon} {model.discount:.6g}"
            )
            print(f"== {name}", flush=True)
            reference, taken, code = in_child(_send_reference, 600.0, 600.0, model)
            if code:
                print(reference)
                continue
            for planner in options.planners:
                for limit in options.limits:
                    made = PLANNERS[planner](time_limit=limit, memory_limit=options.memory)
                    word, seconds, code = in_child(plan_in_child, 60.0, limit, model, made)
                    if isinstance(word, Outcome):
                        seconds -= word.compiled
                        known = reference.bounds[planner] if 2 * taken < limit else (-inf, inf)
                        wrong = list(violations(word, seconds, limit, options.memory, known))
                        line = (
                            f"[{word.lower:.6g}, {word.upper:.6g}] {seconds:.2f} s, "
                            f"{word.peak:.0f} MiB; {word.message}"
                        )
                    else:
                        wrong, line = [f"ENDED with code {code}"], str(word)
                    total += 1
                    text = f"{planner} {limit:g} s: {line} {' '.join(wrong)}"
                    print("  " + text, flush=True)
                    bad += [f"{name}: {text}"] if wrong else []
    print(f"{total} plans, {len(bad)} with violations", *bad, sep="\n")


def _send_reference(answers: Connection, model: lm.LatentMDP) -> None:
    answers.send("begins")
    answers.send(Reference.of(model))


if __name__ == "__main__":
    main()
