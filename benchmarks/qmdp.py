"""One Q-MDP plan of (M, S, A, H) = (7, 15, 3, 30) against the same recursion in batched NumPy."""

import numpy as np
from timing import best_seconds

import latentmdp as lm
from latentmdp.planning import q_values

SHAPE, HORIZON = (7, 15, 3), 30


def einsum_plan(transitions: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    values, value = [], np.zeros(SHAPE[:2])
    for _ in range(HORIZON):
        q = rewards + np.einsum("msan,mn->msa", transitions, value)
        values.append(q)
        value = q.max(axis=-1)
    return np.stack(values[::-1])


def matmul_plan(transitions: np.ndarray, rewards: np.ndarray) -> np.ndarray:
    M, S, A = SHAPE
    rows = transitions.reshape(M, S * A, S)
    values, value = [], np.zeros((M, S))
    for _ in range(HORIZON):
        q = rewards + (rows @ value[:, :, None]).reshape(M, S, A)
        values.append(q)
        value = q.max(axis=-1)
    return np.stack(values[::-1])


def main() -> None:
    rng = np.random.default_rng(0)
    transitions, rewards = rng.dirichlet(np.full(SHAPE[1], 0.3), SHAPE), rng.random(SHAPE)
    model = lm.LatentMDP(transitions, rewards, horizon=HORIZON)
    reference = einsum_plan(transitions, rewards).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(q_values(model), reference, rtol=1e-12)
    seconds = best_seconds(
        {
            "latentmdp q_values": lambda: q_values(model),
            "NumPy einsum": lambda: einsum_plan(transitions, rewards),
            "NumPy matmul": lambda: matmul_plan(transitions, rewards),
            "latentmdp QMDP().plan": lambda: lm.QMDP().plan(model),
        },
        rounds=30,
        calls=10,
    )
    ours = seconds["latentmdp q_values"]
    for name, value in seconds.items():
        print(f"{name:24s} {value * 1e6:9.1f} us   {value / ours:6.1f} x latentmdp q_values")


if __name__ == "__main__":
    main()
