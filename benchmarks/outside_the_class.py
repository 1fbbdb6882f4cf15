"""`solve` on logs of worlds that no latent MDP describes, and of worlds that one does.

    python benchmarks/outside_the_class.py [--worlds a,b] [--sizes 3x2x10] [--replications 12]
                                           [--first-seed 100] [--episodes 1000] [--bootstrap 10]
                                           [--record rows.jsonl] [--list]
    python benchmarks/outside_the_class.py --worlds "drawn at random" --replications 200

States of health, treatments, some steps: a size of 3x2x10 has 3 states, 2 actions and 10 steps. For
each world, size and seed: what `solve` promises, what its policy earns in the world itself, whether
the interval covers that, and what was warned of. Every row is written to the record as it is found,
and one that is there is not found again, so a run that was stopped goes on. Seeds 0 to 5 were used
to choose the checks; report others.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm
from latentmdp.estimation import cut_short
from latentmdp.sessions import BatchSession


class Size(NamedTuple):
    states: int = 3
    actions: int = 2
    steps: int = 10

    @classmethod
    def of(cls, text):
        return cls(*map(int, text.split("x")))

    def __str__(self):
        return "x".join(map(str, self))


SIZES = tuple(map(Size.of, ("3x2x10", "2x2x6", "4x3x8", "6x2x20", "5x4x12")))


@dataclass
class Patients:
    """Some individuals: what is hidden in them, and what they have been through."""

    size: Size
    kind: np.ndarray  # type, severity or effect, as the world means it
    moving: np.ndarray  # a hidden state that moves
    before: np.ndarray  # previous action, -1 at first
    earlier: np.ndarray  # the one before that
    doses: np.ndarray  # how often action 1 was taken
    rose: np.ndarray  # whether the last step went up
    came_from: np.ndarray  # previous state
    t: int = 0


def _nothing(patients, state, action, rng):
    return np.zeros(state.size)


def _by_type(patients, state, action, rng):
    return np.where(action == patients.kind, 0.15, -0.15)


def _two_types(n, rng):
    return rng.integers(0, 2, n).astype(float)


def _any_action(patients, state, rng):
    return rng.integers(0, patients.size.actions, state.size)


def _nobody(patients, state, rng):
    return np.zeros(state.size, bool)


def _health(size, state, low=0.1, high=0.8):
    return low + (high - low) * state / (size.states - 1)


def _pay_health(patients, state, action, rng):
    return (rng.random(state.size) < _health(patients.size, state)).astype(float)


def _flips(chance):
    return lambda p, s, a, rng: np.where(rng.random(s.size) < chance, 1 - p.moving, p.moving)


@dataclass
class World:
    """How individuals are drawn, logged, moved and paid."""

    effect: Callable = _by_type  # added to the chance of moving up
    kinds: Callable = _two_types
    logger: Callable = _any_action
    leave: Callable = _nobody
    pay: Callable = _pay_health
    moves: Callable = lambda p, s, a, rng: p.moving  # the next moving hidden state
    seen: Callable = lambda p, s, rng: s  # the state as it is logged
    options: dict = field(default_factory=dict)  # of from_table
    prepare: Callable = lambda logs: logs
    newcomers: Callable | None = None  # how those are drawn who come after the logs
    inside: bool = False  # whether a latent MDP describes it

    def draw(self, n, size, rng):
        patients = Patients(
            size,
            self.kinds(n, rng),
            rng.integers(0, 2, n),
            np.full(n, -1),
            np.full(n, -1),
            np.zeros(n, int),
            np.zeros(n, bool),
            np.full(n, -1),
        )
        return patients, rng.integers(0, size.states, n)

    def step(self, patients, state, action, rng):
        """Rewards and next states."""
        reward = self.pay(patients, state, action, rng)
        up = np.clip(0.35 + self.effect(patients, state, action, rng), 0.02, 0.78)
        chance = rng.random(state.size)
        rise, fall = chance < up, chance > 0.8
        patients.moving = self.moves(patients, state, action, rng)
        patients.rose, patients.earlier, patients.before = rise, patients.before, action
        patients.came_from = state
        patients.doses = patients.doses + (action == 1)
        patients.t += 1
        return reward, np.clip(state + rise - fall, 0, patients.size.states - 1)


def logs_of(world, episodes, size, seed):
    """Logged episodes as a table, read as a user would read it."""
    rng = np.random.default_rng(seed)
    patients, state = world.draw(episodes, size, rng)
    shown = world.seen(patients, state, rng)
    present, rows = np.ones(episodes, bool), []
    for t in range(size.steps):
        action = np.asarray(world.logger(patients, shown, rng), int)
        reward, after = world.step(patients, state, action, rng)
        who, then = np.flatnonzero(present), world.seen(patients, after, rng)
        columns = (np.full(episodes, t), shown, action, reward, then)
        rows.append((who, *(column[who] for column in columns)))
        present &= ~world.leave(patients, after, rng)
        state, shown = after, then
    names = ("episode", "t", "state", "action", "reward", "next_state")
    table = dict(zip(names, (np.concatenate(column) for column in zip(*rows))))
    return world.prepare(lm.Trajectories.from_table(table, **world.options))


def true_value(world, size, policy, model, episodes=20_000, seed=1, history=False):
    """Mean return of a policy in the world itself; None takes the logger's actions."""
    rng = np.random.default_rng(seed)
    world = replace(world, kinds=world.newcomers or world.kinds)
    patients, state = world.draw(episodes, size, rng)
    session, total = None, np.zeros(episodes)
    before = np.full(episodes, -1)

    def seen():
        shown = world.seen(patients, state, rng)
        if not history:
            return shown
        after = np.array(["at first", *(f"after action {a}" for a in range(size.actions))])
        labels = after[before + 1]
        return np.array([f"state {s}, {what}" for s, what in zip(shown, labels)], dtype=object)

    shown = seen()
    if policy is not None:
        session = BatchSession(policy, model, episodes, 0)
        session.observe(shown)
    for _ in range(size.steps):
        if session is None:
            action = np.asarray(world.logger(patients, shown, rng), int)
        else:
            action = session.act_indices()
        reward, state = world.step(patients, state, action, rng)
        total += reward
        before = action
        shown = seen()
        if session is not None:
            session.observe(shown, reward)
    return float(total.mean())


def _moment(patients, state, action, rng):
    return _by_type(patients, state, action, rng) + 0.15 * patients.rose


def _wearing_off(patients, state, action, rng):
    """Action 1 helps, unless it was taken just before; action 0 does nothing, and less again."""
    return np.where(action == 1, 0.25, 0.0) - np.where(action == patients.before, 0.3, 0.0)


def _costs(patients, state, action, rng):
    """Action 1 is cheap as a rule and ruinous at times; its mean is the worse."""
    n, scale = state.size, _health(patients.size, state, 1.3, 0.8)
    usual = rng.lognormal(3.0, 1.0, n) * scale
    rare = np.exp(rng.normal(1.6, 2.4, n)) * scale
    return -np.where(action == 1, rare, usual)


def _arm(patients, state, rng):
    """One action throughout."""
    return np.where(patients.before < 0, _any_action(patients, state, rng), patients.before)


def _wins_stay(patients, state, rng):
    """The same action again after a step up, mostly; any action else."""
    stay = (patients.before >= 0) & patients.rose & (rng.random(state.size) < 0.8)
    return np.where(stay, patients.before, _any_action(patients, state, rng))


def _wards(patients, state, action, rng):
    """Individuals of a ward of 20 make each other severe."""
    severe, ward = patients.moving, np.arange(state.size) // 20
    share = (np.bincount(ward, severe) / np.bincount(ward))[ward]
    chance = np.where(severe == 1, 0.7, 0.05 + 0.5 * share)
    return (rng.random(state.size) < chance).astype(int)


def _hospitals(n, rng):
    """An effect that 50 individuals side by side have in common."""
    return np.repeat(rng.normal(0.0, 0.15, n // 50 + 1), 50)[:n]


def _low_ones_missing(logs):
    """Three of ten rewards of 0 were not recorded."""
    table = logs.to_table()
    rewards = table["reward"].astype(float)
    lost = (rewards == 0.0) & (np.random.default_rng(0).random(rewards.size) < 0.3)
    return lm.Trajectories.from_table({**table, "reward": np.where(lost, np.nan, rewards)})


def _misread(patients, state, rng):
    """The state as it is logged: a neighbour of the true one in a fifth of the cases."""
    shift = rng.choice([-1, 0, 1], size=state.size, p=[0.1, 0.8, 0.1])
    return np.clip(state + shift, 0, patients.size.states - 1)


NINE = np.random.default_rng(99).uniform(-0.25, 0.25, (9, 16))

WORLDS = {
    "in class": World(inside=True),
    "one type": World(lambda p, s, a, rng: np.where(a == 1, 0.2, 0.0), inside=True),
    "a logger by state": World(
        logger=lambda p, s, rng: np.where(
            rng.random(s.size) < _health(p.size, s, 0.2, 0.9), 1, _any_action(p, s, rng)
        ),
        inside=True,
    ),
    "leaving by chance": World(leave=lambda p, s, rng: rng.random(s.size) < 0.1, inside=True),
    "momentum": World(_moment),
    "types that switch": World(
        lambda p, s, a, rng: np.where(a == p.moving, 0.15, -0.15), moves=_flips(0.05)
    ),
    "regimes that switch": World(
        lambda p, s, a, rng: np.where(a == p.moving, 0.25, -0.25), moves=_flips(0.3)
    ),
    "nine contexts": World(
        lambda p, s, a, rng: NINE[p.kind.astype(int), a],
        kinds=lambda n, rng: rng.integers(0, 9, n).astype(float),
    ),
    "continuous heterogeneity": World(
        lambda p, s, a, rng: np.where(a == 1, 1, -1) * p.kind,
        kinds=lambda n, rng: rng.normal(0.0, 0.15, n),
    ),
    "continuous rewards of individuals": World(
        kinds=lambda n, rng: rng.beta(1.0, 1.0, n),
        effect=lambda p, s, a, rng: np.where(a == 1, 0.1, 0.0),
        pay=lambda p, s, a, rng: (
            rng.random(s.size) < 0.5 * _health(p.size, s) + 0.5 * np.where(a == 1, p.kind, 0.4)
        ).astype(float),
    ),
    "effect decays with time": World(lambda p, s, a, rng: _by_type(p, s, a, rng) * 0.75**p.t),
    "seasons": World(lambda p, s, a, rng: np.where(a == 1, 0.2, 0.0) * np.cos(np.pi * p.t / 3)),
    "rewards that drift": World(
        pay=lambda p, s, a, rng: (
            rng.random(s.size) < _health(p.size, s) * np.where(a == 1, 1.0 - 0.08 * p.t, 0.6)
        ).astype(float)
    ),
    "a delayed effect": World(
        lambda p, s, a, rng: np.where(p.earlier == 1, 0.25, 0.0) - np.where(a == 1, 0.1, 0.0)
    ),
    "a delayed reward": World(
        pay=lambda p, s, a, rng: (
            rng.random(s.size) < _health(p.size, np.maximum(p.came_from, 0))
        ).astype(float)
    ),
    "logger sees a fixed severity": World(
        lambda p, s, a, rng: _by_type(p, s, a, rng) - 0.1 * (p.kind == 1),
        logger=lambda p, s, rng: rng.random(s.size) < np.where(p.kind == 1, 0.8, 0.3),
    ),
    "logger sees any severity": World(
        lambda p, s, a, rng: np.where(a == 1, 0.1, 0.0) - p.kind,
        kinds=lambda n, rng: rng.normal(0.0, 0.15, n),
        logger=lambda p, s, rng: rng.random(s.size) < 1.0 / (1.0 + np.exp(-10.0 * p.kind)),
    ),
    "a logger that learns": World(logger=_wins_stay),
    "informative dropout": World(
        lambda p, s, a, rng: np.where(p.kind == 1, -0.2, 0.15) + 0.1 * (a == 1),
        leave=lambda p, s, rng: (
            rng.random(s.size) < np.where((p.kind == 1) & (s < p.size.states - 1), 0.3, 0.02)
        ),
    ),
    "dropout after setbacks": World(
        leave=lambda p, s, rng: rng.random(s.size) < np.where(s < p.came_from, 0.4, 0.02)
    ),
    "repeating stops working": World(_wearing_off),
    "repeating with_history": World(
        _wearing_off, prepare=lambda logs: logs.with_history(actions=1)
    ),
    "cumulative dose": World(lambda p, s, a, rng: np.where(a == 1, 0.25, 0.0) - 0.06 * p.doses),
    "severity that moves": World(
        lambda p, s, a, rng: np.where(a == 1, -0.05, 0.0) + np.where(p.moving == 1, -0.3, 0.2),
        logger=lambda p, s, rng: rng.random(s.size) < np.where(p.moving == 1, 0.2, 0.8),
        moves=_flips(0.15),
    ),
    "contagion": World(
        lambda p, s, a, rng: np.where(a == 1, 0.15, 0.0) - 0.35 * p.moving, moves=_wards
    ),
    "misread states": World(seen=_misread),
    "readings that lag": World(
        seen=lambda p, s, rng: np.where(
            (p.came_from >= 0) & (rng.random(s.size) < 0.3), p.came_from, s
        )
    ),
    "an effect that fades over the years": World(
        lambda p, s, a, rng: np.where(a == 1, 0.2 - 0.3 * p.kind, 0.0),
        kinds=lambda n, rng: np.linspace(0.0, 1.0, n),
        newcomers=lambda n, rng: np.ones(n),
    ),
    "pay that falls over the years": World(
        kinds=lambda n, rng: np.linspace(0.0, 1.0, n),
        effect=lambda p, s, a, rng: np.where(a == 1, 0.1, 0.0),
        pay=lambda p, s, a, rng: (
            rng.random(s.size) < _health(p.size, s) * (1.0 - 0.3 * p.kind)
        ).astype(float),
        newcomers=lambda n, rng: np.ones(n),
    ),
    "hospitals of 50": World(
        lambda p, s, a, rng: np.where(a == 1, 1, -1) * p.kind, kinds=_hospitals
    ),
    "a threshold on doses": World(
        lambda p, s, a, rng: np.where(a == 1, np.where(p.doses >= 4, -0.3, 0.2), 0.0)
    ),
    "partners interfere": World(
        lambda p, s, a, rng: np.where(a == 1, 0.2, 0.0) - 0.3 * np.roll(p.before == 1, 1)
    ),
    "a logger that randomises less": World(
        logger=lambda p, s, rng: np.where(
            rng.random(s.size) < 0.9 * p.t / p.size.steps, s < 1, _any_action(p, s, rng)
        )
    ),
    "low rewards are missing": World(prepare=_low_ones_missing),
    "heavy-tailed costs": World(pay=_costs),
    "trial: the drug does nothing": World(
        lambda p, s, a, rng: np.where(p.kind == 1, 0.15, -0.15), logger=_arm
    ),
    "trial: the drug works": World(
        lambda p, s, a, rng: np.where(p.kind == 1, 0.15, -0.15) + 0.1 * (a == 1), logger=_arm
    ),
    "trial: the drug harms one type": World(
        lambda p, s, a, rng: 0.1 * (a == 0) - 0.3 * ((a == 1) & (p.kind == 1)), logger=_arm
    ),
}

RANDOM = "drawn at random"
"""Latent MDPs of any size and form, to count false alarms and coverage."""


def drawn(seed):
    """A latent MDP, logs of it, and the true value of a policy: one world inside the class."""
    rng = np.random.default_rng([seed, 77])
    M, S, A = (int(rng.integers(low, high)) for low, high in ((1, 5), (2, 7), (2, 5)))
    steps, episodes = int(rng.integers(4, 21)), int(rng.choice([300, 600, 1000, 2000]))
    apart = rng.uniform(0.3, 1.5)  # how far contexts are from each other
    common = rng.normal(size=(1, S, A, S))
    logits = common + apart * rng.normal(size=(M, S, A, S))
    transitions = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
    chances = rng.uniform(0.05, 0.95, (1 if rng.random() < 0.5 else M, S, A))
    if rng.random() < 0.3:
        chances = np.broadcast_to(rng.uniform(0.0, 1.0, (1, S, 1)), (1, S, A))
    paid = np.broadcast_to(chances, (M, S, A))
    rewards = np.stack([1.0 - paid, paid], axis=-1)
    weights = rng.dirichlet(np.full(M, 4.0))
    model = lm.LatentMDP(transitions, rewards, weights=weights, horizon=steps)
    rows = rng.dirichlet(np.full(A, 2.0), size=S)
    logs = lm.simulate(model, lm.MarkovPolicy(rows), episodes, rng=seed).without_contexts()
    if rng.random() < 0.5:  # lengths by chance
        lengths = np.maximum(1, steps - rng.geometric(0.3, len(logs)) + 1)
        logs = cut_short(logs, lengths)
    return logs, lambda policy: lm.evaluate(model, policy, 40_000, rng=1).mean


def found(name, size, seed, episodes, bootstrap):
    """One replication as a row: promise, truth, the logger's value, and the warnings."""
    if name == RANDOM:
        logs, truth_of = drawn(seed)
    else:
        world = WORLDS[name]
        logs = logs_of(world, episodes, size, seed)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs, rng=seed, bootstrap=bootstrap, max_contexts=4)
    seconds = time.process_time() - began
    if name == RANDOM:
        truth = truth_of(solved.policy)
    else:
        history = "with_history" in name
        truth = true_value(world, size, solved.policy, solved.model, history=history)
    return {
        "contexts": solved.model.n_contexts,
        "promise": list(solved.value),
        "truth": truth,
        "failed": [check.name for check in solved.checks if check.failed],
        "warnings": list(solved.warnings),
        "seconds": seconds,
    }


def summary(name, size, rows, logged):
    """Some replications of a world in a line."""
    low, high = (np.array([row["promise"][k] for row in rows]) for k in (1, 2))
    promise = np.mean([row["promise"][0] for row in rows])
    truth = np.array([row["truth"] for row in rows])
    covered = (low <= truth) & (truth <= high)
    warned = np.array([bool(row["warnings"]) for row in rows])
    alarms = sum(bool(row["failed"]) for row in rows)
    why = {}
    for row in rows:
        for check in row["failed"]:
            why[check] = why.get(check, 0) + 1
    common = dict(sorted(why.items(), key=lambda one: -one[1])[:3])
    return (
        f"{name:34} {size!s:7} {promise:8.2f} /{truth.mean():8.2f} /{logged:8.2f}  "
        f"{covered.sum():4d} {alarms:6d} {warned.sum():6d}  {(~covered & ~warned).sum():4d} of "
        f"{len(rows)}  {common}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--sizes", default=str(SIZES[0]), help='"all", or 3x2x10,2x2x6')
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--bootstrap", type=int, default=10)
    parser.add_argument("--record", type=Path, default=None, help="rows found so far, as JSON")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        print("\n".join([*WORLDS, RANDOM]))
        return
    record = {}
    if given.record is not None and given.record.exists():
        lines = map(json.loads, given.record.read_text().splitlines())
        record = {tuple(row["key"]): row for row in lines}
    sizes = SIZES if given.sizes == "all" else tuple(map(Size.of, given.sizes.split(",")))
    print(
        f"{'world':34} size     promise /    true /  logger  covered checks warned  "
        "wrong and not warned"
    )
    for size in sizes:
        for name in given.worlds.split(","):
            logged = np.nan if name == RANDOM else true_value(WORLDS[name], size, None, None)
            rows = []
            for seed in range(given.first_seed, given.first_seed + given.replications):
                key = (name, str(size), seed, given.episodes, given.bootstrap)
                if key not in record:
                    record[key] = found(name, size, seed, given.episodes, given.bootstrap)
                    if given.record is not None:
                        with given.record.open("a") as file:
                            file.write(json.dumps({"key": key, **record[key]}) + "\n")
                rows.append(record[key])
            print(summary(name, size, rows, logged), flush=True)


if __name__ == "__main__":
    main()
