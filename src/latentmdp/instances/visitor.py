"""A web shop serving visitors of unknown type.

A visit walks through the pages of a shop. On each page the shop chooses what to show: the plain
page, recommendations, customer reviews or a discount. Visitors are of five types that react
differently; the type is never seen, only the clicks. Buying pays 1 at the full price and 0.6 if a
discount is shown at the moment of buying; a visit ends for good when the visitor buys or leaves.

From each page a visitor goes on to the next one with a probability that depends on type and
display, leaves with another, and else stays or goes back a page. The numbers are chosen to be
plausible, not fitted to any shop.
"""

import numpy as np

from latentmdp.instances.registry import register
from latentmdp.model import LatentMDP

STATES = ("landing", "category", "product", "cart", "bought", "left")
ACTIONS = ("plain", "recommend", "reviews", "discount")

# How common a type of visitor is, how likely they go on to the next page under each display, how
# likely they leave, and what is left of the will to go on at the last page, the cart.
VISITORS = {
    "browser": (0.35, (0.30, 0.40, 0.28, 0.35), (0.15, 0.10, 0.15, 0.12), 0.3),
    "bargain hunter": (0.20, (0.25, 0.25, 0.30, 0.70), (0.25, 0.25, 0.20, 0.05), 0.8),
    "loyal customer": (0.15, (0.70, 0.60, 0.55, 0.72), (0.05, 0.10, 0.10, 0.05), 1.0),
    "careful researcher": (0.20, (0.25, 0.20, 0.60, 0.28), (0.15, 0.25, 0.05, 0.20), 0.9),
    "gift buyer": (0.10, (0.30, 0.65, 0.40, 0.40), (0.20, 0.08, 0.15, 0.15), 0.9),
}


@register("visitor")
def visitor(*, horizon: int = 12) -> LatentMDP:
    """A web shop chooses what to show to visitors of five hidden types.

    Parameters
    ----------
    horizon
        H, in page views.

    Notes
    -----
    M = 5, S = 6, A = 4, rewards 0, 0.6 and 1 that depend on the next state, weights
    (.35, .20, .15, .20, .10). Separation: 0, since a visit that has ended looks the same for all
    types; between 0.04 and 1.2 on the pages. It is here for logs of short episodes from a mixed
    population.
    """
    cart, bought, gone = (STATES.index(name) for name in ("cart", "bought", "left"))
    M, S, A, Z = len(VISITORS), len(STATES), len(ACTIONS), 3
    T = np.zeros((M, S, A, S))
    for m, (_, forward, away, buy) in enumerate(VISITORS.values()):
        for a, leave in enumerate(away):
            for s in range(cart + 1):
                go_on = forward[a] * (buy if s == cart else 1.0)
                T[m, s, a, s + 1] = go_on
                T[m, s, a, gone] += leave
                T[m, s, a, max(s - 1, 0)] += (1.0 - go_on - leave) / 2
                T[m, s, a, s] += (1.0 - go_on - leave) / 2
    T[:, bought, :, bought] = 1.0
    T[:, gone, :, gone] = 1.0
    R = np.zeros((M, S, A, S, Z))
    nothing, reduced, full_price = np.eye(Z)
    R[:] = nothing
    R[:, cart, :, bought] = full_price
    R[:, cart, ACTIONS.index("discount"), bought] = reduced
    return LatentMDP(
        T,
        R,
        reward_values=(0.0, 0.6, 1.0),
        initial=0,
        weights=[weight for weight, *_ in VISITORS.values()],
        horizon=horizon,
        context_names=tuple(VISITORS),
        state_names=STATES,
        action_names=ACTIONS,
    )
