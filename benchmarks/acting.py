"""Decisions a second on one core at (M, S, A, H) = (7, 15, 3, 30): observe, update, decide."""

import numpy as np
from timing import best_seconds

import latentmdp as lm

INDIVIDUALS, STEPS = 100_000, 10


def main() -> None:
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.full(15, 0.3), (7, 15, 3))
    model = lm.LatentMDP(transitions, rng.random((7, 15, 3)), horizon=30)
    policy = lm.QMDP().plan(model).policy
    states, _, rewards = lm.simulate(model, policy, INDIVIDUALS, rng=0).as_arrays()
    states = np.ascontiguousarray(states.T)
    earned = np.ascontiguousarray(model.reward_values[rewards].T)

    def serve() -> None:
        session = policy.batch_session(INDIVIDUALS)
        session.observe(states[0])
        for t in range(STEPS):
            session.act()
            session.observe(states[t + 1], earned[t])

    seconds = best_seconds({"serve": serve})["serve"]
    print(f"{INDIVIDUALS * STEPS / seconds / 1e6:.1f} million decisions a second on one core")


if __name__ == "__main__":
    main()
