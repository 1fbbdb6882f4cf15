"""`solve` on logs of worlds that no latent MDP describes: promises, truths, and warnings.

    python benchmarks/outside_the_class.py [--worlds a,b] [--replications 4] [--first-seed 100]
                                           [--episodes 1000] [--bootstrap 10] [--list]

Three states of health, two treatments, ten steps. For each world and seed: what `solve` promises,
what its policy earns in the world itself, whether the interval covers that, and what was warned of.
Seeds 0 to 5 were used to choose the checks; report others.
"""

import argparse
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import latentmdp as lm
from latentmdp.sessions import BatchSession

STEPS, STATES, ACTIONS = 10, 3, 2


@dataclass
class Patients:
    """Some individuals: what is hidden in them, and what they have been through."""

    kind: np.ndarray  # type, severity or effect, as the world means it
    moving: np.ndarray  # a hidden state that moves
    before: np.ndarray  # previous action, -1 at first
    doses: np.ndarray  # how often action 1 was taken
    rose: np.ndarray  # whether the last step went up
    t: int = 0


def _nothing(patients, state, action, rng):
    return np.zeros(state.size)


def _by_type(patients, state, action, rng):
    return np.where(action == patients.kind, 0.15, -0.15)


@dataclass
class World:
    """How individuals are drawn, logged, moved and paid."""

    effect: Callable = _by_type  # added to the chance of moving up
    kinds: Callable = lambda n, rng: rng.integers(0, 2, n).astype(float)
    logger: Callable = lambda patients, state, rng: rng.integers(0, ACTIONS, state.size)
    leave: Callable = lambda patients, state, rng: np.zeros(state.size, bool)
    pay: Callable = lambda patients, state, action, rng: (
        rng.random(state.size) < np.array([0.1, 0.45, 0.8])[state]
    ).astype(float)
    flips: float = 0.0  # chance that the moving hidden state flips in a step
    options: dict = field(default_factory=dict)  # of from_table
    prepare: Callable = lambda logs: logs

    def draw(self, n, rng):
        patients = Patients(
            self.kinds(n, rng),
            rng.integers(0, 2, n),
            np.full(n, -1),
            np.zeros(n, int),
            np.zeros(n, bool),
        )
        return patients, rng.integers(0, STATES, n)

    def step(self, patients, state, action, rng):
        """Rewards and next states."""
        reward = self.pay(patients, state, action, rng)
        up = np.clip(0.35 + self.effect(patients, state, action, rng), 0.02, 0.78)
        chance = rng.random(state.size)
        rise, fall = chance < up, chance > 0.8
        patients.rose, patients.before = rise, action
        patients.doses = patients.doses + (action == 1)
        patients.moving = np.where(
            rng.random(state.size) < self.flips, 1 - patients.moving, patients.moving
        )
        patients.t += 1
        return reward, np.clip(state + rise - fall, 0, STATES - 1)


def logs_of(world, episodes, seed):
    """Logged episodes as a table, read as a user would read it."""
    rng = np.random.default_rng(seed)
    patients, state = world.draw(episodes, rng)
    present, rows = np.ones(episodes, bool), []
    for t in range(STEPS):
        action = np.asarray(world.logger(patients, state, rng), int)
        reward, after = world.step(patients, state, action, rng)
        who = np.flatnonzero(present)
        rows.append((who, np.full(who.size, t), state[who], action[who], reward[who], after[who]))
        present &= ~world.leave(patients, after, rng)
        state = after
    names = ("episode", "t", "state", "action", "reward", "next_state")
    table = dict(zip(names, (np.concatenate(column) for column in zip(*rows))))
    return world.prepare(lm.Trajectories.from_table(table, **world.options))


def true_value(world, policy, model, episodes=20_000, seed=1, history=False):
    """Mean return of a policy in the world itself; None takes the logger's actions."""
    rng = np.random.default_rng(seed)
    patients, state = world.draw(episodes, rng)
    session, total = None, np.zeros(episodes)
    before = np.full(episodes, -1)

    def seen():
        if not history:
            return state
        after = np.array(["at first", "after action 0", "after action 1"])[before + 1]
        return np.array([f"state {s}, {what}" for s, what in zip(state, after)], dtype=object)

    if policy is not None:
        session = BatchSession(policy, model, episodes, 0)
        session.observe(seen())
    for _ in range(STEPS):
        if session is None:
            action = np.asarray(world.logger(patients, state, rng), int)
        else:
            action = session.act_indices()
        reward, state = world.step(patients, state, action, rng)
        total += reward
        before = action
        if session is not None:
            session.observe(seen(), reward)
    return float(total.mean())


def _moment(patients, state, action, rng):
    return _by_type(patients, state, action, rng) + 0.15 * patients.rose


def _wearing_off(patients, state, action, rng):
    """Action 1 helps, unless it was taken just before; action 0 does nothing, and less again."""
    return np.where(action == 1, 0.25, 0.0) - np.where(action == patients.before, 0.3, 0.0)


def _costs(patients, state, action, rng):
    """Action 1 is cheap as a rule and ruinous at times; its mean is the worse."""
    n = state.size
    usual = rng.lognormal(3.0, 1.0, n) * np.array([1.3, 1.0, 0.8])[state]
    rare = np.exp(rng.normal(1.6, 2.4, n)) * np.array([1.3, 1.0, 0.8])[state]
    return -np.where(action == 0, usual, rare)


def _arm(patients, state, rng):
    """One action throughout."""
    return np.where(patients.before < 0, rng.integers(0, ACTIONS, state.size), patients.before)


NINE = np.random.default_rng(99).uniform(-0.25, 0.25, (9, ACTIONS))

WORLDS = {
    "in class": World(),
    "momentum": World(_moment),
    "types that switch": World(
        lambda p, s, a, rng: np.where(a == p.moving, 0.15, -0.15), flips=0.05
    ),
    "nine contexts": World(
        lambda p, s, a, rng: NINE[p.kind.astype(int), a],
        kinds=lambda n, rng: rng.integers(0, 9, n).astype(float),
    ),
    "continuous heterogeneity": World(
        lambda p, s, a, rng: np.where(a == 1, 1, -1) * p.kind,
        kinds=lambda n, rng: rng.normal(0.0, 0.15, n),
    ),
    "effect decays with time": World(
        lambda p, s, a, rng: _by_type(p, s, a, rng) * 0.75**p.t,
    ),
    "logger sees a fixed severity": World(
        lambda p, s, a, rng: _by_type(p, s, a, rng) - 0.1 * (p.kind == 1),
        logger=lambda p, s, rng: rng.random(s.size) < np.where(p.kind == 1, 0.8, 0.3),
    ),
    "informative dropout": World(
        lambda p, s, a, rng: np.where(p.kind == 1, -0.2, 0.15) + 0.1 * (a == 1),
        leave=lambda p, s, rng: rng.random(s.size) < np.where((p.kind == 1) & (s < 2), 0.3, 0.02),
    ),
    "repeating stops working": World(_wearing_off),
    "repeating with_history": World(
        _wearing_off, prepare=lambda logs: logs.with_history(actions=1)
    ),
    "cumulative dose": World(
        lambda p, s, a, rng: np.where(a == 1, 0.25, 0.0) - 0.06 * p.doses,
    ),
    "severity that moves": World(
        lambda p, s, a, rng: np.where(a == 1, -0.05, 0.0) + np.where(p.moving == 1, -0.3, 0.2),
        logger=lambda p, s, rng: rng.random(s.size) < np.where(p.moving == 1, 0.2, 0.8),
        flips=0.15,
    ),
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


def compared(name, seed, episodes, bootstrap):
    """One replication: promise, truth, the logger's value, and the warnings."""
    world = WORLDS[name]
    logs = logs_of(world, episodes, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solved = lm.solve(logs, rng=seed, bootstrap=bootstrap, max_contexts=4)
    truth = true_value(world, solved.policy, solved.model, history="with_history" in name)
    return solved, truth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--replications", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--bootstrap", type=int, default=10)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    if given.list:
        print("\n".join(WORLDS))
        return
    print(f"{'world':30} promise / true / logger      covered  warned  wrong and not warned")
    for name in given.worlds.split(","):
        logged = true_value(WORLDS[name], None, None)
        rows, why = [], {}
        for seed in range(given.first_seed, given.first_seed + given.replications):
            solved, truth = compared(name, seed, given.episodes, given.bootstrap)
            covered = solved.value.low <= truth <= solved.value.high
            rows.append((solved.value.mean, truth, covered, bool(solved.warnings)))
            for check in getattr(solved, "checks", ()):
                if check.failed:
                    why[check.name] = why.get(check.name, 0) + 1
        promise, truth, covered, warned = (np.array(column) for column in zip(*rows))
        missed = int((~covered & ~warned).sum())
        print(
            f"{name:30} {promise.mean():7.2f} / {truth.mean():.2f} / {logged:.2f}  "
            f"{covered.sum():7d}  {warned.sum():6d}  {missed:4d} of {len(rows)}  {why}",
            flush=True,
        )


if __name__ == "__main__":
    main()
