"""The tasks of the arena: problems in which one of several MDPs is in force and hidden.

A task has variants, one for each seed: which actions are permuted how, which instance is drawn. It
gives the true model, for the optimum and the random return, and the world that learners act in:
Gymnasium's own environments where the task is made of them, so that a learner meets them as any
user does, and the model itself elsewhere. Every task is a latent MDP, so its optimum can be
certified.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any

import gymnasium
import numpy as np

from latentmdp._util.arrays import Floats
from latentmdp.envs import MixtureEnv, tabular_model
from latentmdp.instances import make
from latentmdp.model import LatentMDP
from latentmdp.outcomes import outcomes_from_entries
from latentmdp.worlds import World, adapt, as_world

from . import games


@dataclass(frozen=True)
class Task:
    """One task of the arena.

    Attributes
    ----------
    name, summary
        What it is called, and what it is.
    episodes
        How many a learner may play.
    horizon
        H.
    build
        `build(seed)` gives a model, or environments, one for each context: with tables, or where
        the optimum is known without one.
    optimum
        What can be earned at most, of environments without tables.
    """

    name: str
    summary: str
    episodes: int
    horizon: int
    build: Callable[[int], LatentMDP | Sequence[Any]]
    optimum: float | None = None

    def model(self, seed: int) -> LatentMDP:
        """The true model of a variant."""
        built = self.build(seed)
        return built if isinstance(built, LatentMDP) else tabular_model(built, self.horizon)

    def world(self, seed: int, tell_context: bool = False) -> World:
        """What a learner acts in."""
        built = self.build(seed)
        if isinstance(built, LatentMDP):
            return as_world(built)
        mixture = MixtureEnv(built, horizon=self.horizon, tell_context=tell_context)
        return adapt(mixture, reward_values=None if self.optimum is None else (1.0,))


Orders = Sequence[Sequence[int]]


def _permuted(
    name: str,
    contexts: int,
    moves: int | None = None,
    suits: Callable[[Orders], bool] = lambda orders: True,
    **options: Any,
) -> Callable[[int], list[Any]]:
    """Copies of an environment, each with its first `moves` actions in an order of its own.

    Orders are drawn until they suit the task.
    """

    def build(seed: int) -> list[Any]:
        envs = [gymnasium.make(name, **options) for _ in range(contexts)]
        n_actions = len(envs[0].unwrapped.P[0])  # type: ignore[attr-defined]
        n = moves or n_actions
        every, chance = list(permutations(range(n))), np.random.default_rng(seed)
        orders: Orders = ()
        while not orders or not suits(orders):
            orders = [every[k] for k in chance.choice(len(every), contexts, replace=False)]
        for env, order in zip(envs, orders):
            _reorder(env, [*order, *range(n, n_actions)])
        return envs

    return build


def _reorder(env: Any, order: Sequence[int]) -> None:
    """Let action a do what order[a] did, in the table that the environment itself steps by."""
    table = env.unwrapped.P
    env.unwrapped.P = {s: {a: row[order[a]] for a in row} for s, row in table.items()}


def _safe_to_try(orders: Orders) -> bool:
    """Whether one step at the start of CliffWalking can tell two orders apart without a fall.

    An action that leads up (0) in one and to a wall (2 down, 3 left) in the other does. Where there
    is none, the best policy never leaves the start, and there is nothing to learn.
    """
    first, second = orders
    return any({a, b} in ({0, 2}, {0, 3}) for a, b in zip(first, second))


def _slippery_or_not(seed: int) -> list[Any]:
    """The lake with firm and with slippery ice; the variants name the actions differently."""
    import gymnasium

    order = np.random.default_rng(seed).permutation(4).tolist()
    envs = [gymnasium.make("FrozenLake-v1", is_slippery=slips) for slips in (False, True)]
    for env in envs:
        _reorder(env, order)
    return envs


def _instance(name: str, **arguments: Any) -> Callable[[int], LatentMDP]:
    def build(seed: int) -> LatentMDP:
        return make(name, rng=seed, **arguments)

    return build


# -- Blackjack ------------------------------------------------------------------------------------

_DECKS = {"full": (1.0, 1.0), "rich in tens": (1.0, 3.0), "poor in tens": (1.0, 0.0)}
"""How often a card below ten and a ten is drawn, against a full deck."""


def blackjack_model(decks: Sequence[Floats], horizon: int = 10) -> LatentMDP:
    """Gymnasium's Blackjack with a hidden deck: context m draws cards from decks[m].

    States are (player's sum, dealer's card, usable ace) in the order of Gymnasium's Tuple space
    (32, 11, 2), and one more, in which the game is over. Action 0 sticks, action 1 hits. Cards are
    drawn with replacement; decks[m] holds the probabilities of the values 1 to 10. The dealer
    draws to 17, and a natural is worth no more than any 21, as with `sab=False`.
    """
    over, values = 32 * 11 * 2, (-1.0, 0.0, 1.0)
    entries: list[tuple[int, int, int, int, float]] = []  # row, s', z, context, probability
    initial = np.zeros((len(decks), over + 1))
    cards = range(1, len(decks[0]) + 1)
    hands = [_with_card(*_with_card(0, 0, a), b) for a in cards for b in cards]
    for m, deck in enumerate(decks):
        chances = np.outer(deck, deck).ravel()
        for card in cards:
            final = _dealer(card, deck)
            for (total, ace), p in zip(hands, chances):
                initial[m, _state(total, card, ace)] += p * deck[card - 1]
            for total in range(4, 22):
                for ace in range(2):
                    row = 2 * _state(total, card, ace)
                    for z, chance in enumerate(_comparison(total, final)):
                        entries.append((row, over, z, m, chance))
                    for next_card, chance in enumerate(deck.tolist(), start=1):
                        after, usable = _with_card(total, ace, next_card)
                        bust = after > 21
                        n = over if bust else _state(after, card, usable)
                        entries.append((row + 1, n, 0 if bust else 1, m, chance))
    rows, targets, rewards, contexts, probs = (np.array(column) for column in zip(*entries))
    sizes = (len(decks), over + 1, 2, 3)
    table = outcomes_from_entries(rows, targets, rewards, contexts, probs, sizes)
    return LatentMDP.from_outcomes(
        *table, n_states=over + 1, horizon=horizon, reward_values=values, initial=initial
    )


def _state(total: int, card: int, ace: int) -> int:
    return (total * 11 + card) * 2 + ace


def _with_card(total: int, ace: int, card: int) -> tuple[int, int]:
    """Sum and usable ace after one card more."""
    low = total - 10 * ace + card
    usable = int((ace or card == 1) and low + 10 <= 21)
    return low + 10 * usable, usable


def _dealer(card: int, deck: Floats) -> Floats:
    """The distribution of the dealer's final sum, by sum up to 21, and last for every bust."""
    final = np.zeros(21 + 2)
    waiting = {_with_card(0, 0, card): 1.0}
    while waiting:
        (total, ace), mass = waiting.popitem()
        if total >= 17:
            final[min(total, 22)] += mass
            continue
        for next_card, p in enumerate(deck, start=1):
            after = _with_card(total, ace, next_card)
            waiting[after] = waiting.get(after, 0.0) + mass * p
    return final


def _comparison(total: int, dealer: Floats) -> tuple[float, float, float]:
    """Probabilities to lose, to draw and to win with a sum against the dealer's."""
    below = float(dealer[:total].sum() + dealer[-1])
    return float(dealer[total + 1 : -1].sum()), float(dealer[total]), below


def _blackjack(seed: int) -> LatentMDP:
    """Three decks: full, rich in tens, poor in tens; how much varies with the seed."""
    full = np.array([1.0] * 9 + [4.0])
    much = np.random.default_rng(seed).uniform(0.7, 1.0)
    decks = []
    for small, tens in _DECKS.values():
        deck = full * (1.0 - much) + much * full * np.array([small] * 9 + [tens])
        decks.append(deck / deck.sum())
    return blackjack_model(decks)


# -- ICU-Sepsis -----------------------------------------------------------------------------------


def icu_sepsis_model(seed: int, contexts: int = 3, strength: float = 1.0) -> LatentMDP:
    """ICU-Sepsis with hidden types of patients, made by perturbing its transitions.

    In context m the probability of s' after (s, a) is multiplied by exp(strength g) and the row
    normalised, g being standard normal and drawn once for each (m, a, s'): types answer to
    treatments differently, in the same way in all states. Only admissible actions are allowed, and
    an episode ends with survival (reward 1) or death. Needs the package `icu-sepsis`.
    """
    base = _icu_sepsis()
    T, S, A = base._tx_mat, base._num_states, base._num_actions
    end = S - 1
    final = (T[:, :, end] > 0.0).all(axis=1)
    allowed = np.zeros((S, A), np.bool_)
    for state, actions in enumerate(base._admissible_actions):
        allowed[state, actions] = not final[state]
    s, a = np.nonzero(allowed)
    pair, n = np.nonzero(T[s, a] > 0.0)
    p = T[s[pair], a[pair], n]
    z = (base._r_mat[s[pair], a[pair], n] > 0.0).astype(np.int64)
    answers = np.random.default_rng(seed).standard_normal((contexts, A, S))
    rows, probs = s[pair] * A + a[pair], []
    for m in range(contexts):
        tilted = p * np.exp(strength * answers[m, a[pair], n])
        probs.append(tilted / np.bincount(rows, tilted, S * A)[rows])
    table = outcomes_from_entries(
        np.tile(rows, contexts),
        np.tile(n, contexts),
        np.tile(z, contexts),
        np.repeat(np.arange(contexts), rows.size),
        np.concatenate(probs),
        (contexts, S, A, 2),
    )
    initial = np.asarray(base._d_0, np.float64)
    return LatentMDP.from_outcomes(*table, n_states=S, horizon=30, initial=initial, allowed=allowed)


def _icu_sepsis() -> Any:
    import contextlib
    import io

    try:
        with contextlib.redirect_stderr(io.StringIO()):  # an old dependency of it prints advice
            import icu_sepsis  # noqa: F401
    except ImportError:
        raise ModuleNotFoundError(
            "the task icu-sepsis needs the package icu-sepsis: pip install latentmdp[examples]"
        ) from None
    return gymnasium.make("Sepsis/ICU-Sepsis-v2").unwrapped


# -- games of finding out ------------------------------------------------------------------------


def tiger_model(seed: int, right: float = 0.85, horizon: int = 12) -> LatentMDP:
    """The tiger: listen at a price of 1, then open the door it is not behind.

    It pays 10, the other door costs 100, and either ends the episode. What is heard is the state.
    The variants name the doors differently.
    """
    start, heard, over = 0, (1, 2), 3
    T, amounts = np.zeros((2, 4, 3, 4)), np.full((2, 4, 3), -1.0)
    doors = np.random.default_rng(seed).permutation(2)
    for m in range(2):
        T[m, start:over, 0, heard[m]], T[m, start:over, 0, heard[1 - m]] = right, 1.0 - right
        T[m, start:over, 1:, over] = 1.0
        amounts[m, :, 1 + doors[m]], amounts[m, :, 2 - doors[m]] = -100.0, 10.0
    allowed = np.arange(4)[:, None] < np.full(3, over)
    return LatentMDP.from_amounts(T, amounts, initial=start, horizon=horizon, allowed=allowed)


def bandit_model(seed: int, contexts: int = 4, arms: int = 4, horizon: int = 20) -> LatentMDP:
    """A latent bandit: in each context one arm, its own, pays mostly, and the others seldom."""
    chance = np.random.default_rng(seed)
    means = chance.uniform(0.05, 0.3, size=(contexts, 1, arms))
    means[np.arange(contexts), 0, chance.permutation(arms)[:contexts]] = 0.9
    return LatentMDP(np.ones((contexts, 1, arms, 1)), means, horizon=horizon)


# -- CartPole in cells ----------------------------------------------------------------------------

_EDGES = (
    np.array([-0.8, 0.8]),  # place of the cart
    np.array([-0.5, 0.5]),  # its speed
    np.linspace(-0.1, 0.1, 5),  # angle of the pole
    np.linspace(-1.0, 1.0, 7),  # its speed
)


class CartPoleCells(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Gymnasium's CartPole with a pole of another length, seen in 432 cells."""

    def __init__(self, length: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=None))
        self.env.unwrapped.length = length
        self.env.unwrapped.polemass_length = self.env.unwrapped.masspole * length
        self._sizes = tuple(edges.size + 1 for edges in _EDGES)
        self.observation_space = gymnasium.spaces.Discrete(int(np.prod(self._sizes)))

    def observation(self, observation: Any) -> int:
        """The number of the cell."""
        cell = [np.searchsorted(edges, x) for edges, x in zip(_EDGES, observation)]
        return int(np.ravel_multi_index(cell, self._sizes))


def _cart_pole(seed: int) -> list[Any]:
    """Poles of four lengths."""
    lengths = np.array([0.25, 0.5, 1.0, 1.5])
    return [CartPoleCells(x) for x in lengths * np.random.default_rng(seed).uniform(0.9, 1.1, 4)]


# -- the list -------------------------------------------------------------------------------------

_FIG1 = {"contexts": 7, "states": 15, "actions": 3, "horizon": 30}
_MAZE = {"contexts": 3, "states": 8, "actions": 3, "horizon": 10}
_LAKE = "FrozenLake-v1"
_ALL = (
    Task("lake-slippery", "FrozenLake 4x4, firm or slippery ice", 3_000, 50, _slippery_or_not),
    Task(
        "lake-permuted",
        "FrozenLake 4x4 without slipping, four orders of the actions",
        3_000,
        50,
        _permuted(_LAKE, 4, is_slippery=False),
    ),
    Task(
        "lake8-permuted",
        "FrozenLake 8x8 without slipping, four orders of the actions",
        5_000,
        100,
        _permuted(_LAKE, 4, is_slippery=False, map_name="8x8"),
    ),
    Task(
        "cliff-permuted",
        "CliffWalking, two orders of the actions",
        3_000,
        60,
        _permuted("CliffWalking-v1", 2, suits=_safe_to_try),
    ),
    Task("taxi-permuted", "Taxi, two orders of the moves", 10_000, 60, _permuted("Taxi-v4", 2, 4)),
    Task("visitor", "which visitor wants what", 5_000, 12, _instance("visitor")),
    Task("river-swim", "the channel that carries", 5_000, 56, _instance("river-swim")),
    Task("wait-hub", "probe, commit or wait", 5_000, 30, _instance("wait-hub")),
    Task("treatment", "patients who answer differently", 5_000, 20, _instance("treatment")),
    Task("frozen-lake", "wind over the ice", 5_000, 40, _instance("frozen-lake")),
    Task(
        "fig1-own",
        "size of Fig. 1, delta .5, own rewards",
        3_000,
        30,
        _instance("separated", **_FIG1, delta=0.5, rewards="own"),
    ),
    Task(
        "fig1-shared",
        "size of Fig. 1, delta .3, shared rewards",
        3_000,
        30,
        _instance("separated", **_FIG1, delta=0.3, rewards="shared"),
    ),
    Task("lower-bound", "the paper's hard instance, M = 3", 3_000, 3, _instance("lower-bound")),
    Task(
        "deterministic",
        "a deterministic latent MDP",
        2_000,
        10,
        _instance("deterministic", **_MAZE, reward_density=0.2, variation=0.4),
    ),
    Task("cue", "a cue one step before the choice", 1_000, 2, _instance("cue", horizon=2)),
    Task("cue-far", "a cue 20 steps before the choice", 1_000, 21, _instance("cue", horizon=21)),
    Task("identification", "twenty questions about 3 bits", 4_000, 4, _instance("identification")),
    Task(
        "identification-4",
        "twenty questions about 4 bits",
        6_000,
        5,
        _instance("identification", bits=4, horizon=5),
    ),
    Task(
        "identification-noisy",
        "twenty questions about 3 bits, a tenth of the answers wrong",
        6_000,
        8,
        _instance("identification", noise=0.1, horizon=8),
    ),
    Task("tiger", "listen, or open a door", 4_000, 12, tiger_model),
    Task("bandit", "which arm pays for whom", 3_000, 20, bandit_model),
    Task("corridor", "a goal at one end; the sooner the better", 1_000, 40, games.corridor),
    Task("deep-sea", "one way in a thousand leads to the treasure", 3_000, 10, games.deep_sea),
    Task(
        "umbrella",
        "a choice at the beginning, noise, and what it was worth",
        2_000,
        10,
        games.umbrella,
    ),
    Task(
        "grid", "a grid of 20 x 20 with four layouts of walls", 2_000, 80, games.grid_with_layouts
    ),
    Task(
        "grid-large",
        "a grid of 30 x 30 with ten layouts of walls",
        5_000,
        120,
        partial(games.grid_with_layouts, size=30, layouts=10),
    ),
    Task("rock-paper-scissors", "five opponents", 3_000, 20, games.rock_paper_scissors),
    Task("poker", "Kuhn's poker against one of three players", 5_000, 20, games.kuhn_poker),
    Task("auction", "bids out of a budget", 3_000, 15, games.auction),
    Task("queue", "servers for a queue", 3_000, 30, games.queue),
    Task("dose", "which dose helps whom", 3_000, 12, games.dose_finding),
    Task("cart-pole", "CartPole in 432 cells, poles of four lengths", 3_000, 200, _cart_pole, 200),
    Task("blackjack", "Blackjack with a hidden deck", 20_000, 10, _blackjack),
    Task("icu-sepsis", "sepsis patients of hidden types", 10_000, 30, icu_sepsis_model),
)
TASKS = {task.name: task for task in _ALL}
"""Every task by name."""
