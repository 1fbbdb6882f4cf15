"""Each mechanism is written once; a second version of it, under any names, is found.

`tests/mechanisms.py` knows the shape that each has in the source. A function with that shape is the
mechanism's own, or stands here with the reason why it is something else.
"""

import pytest
from mechanisms import MECHANISMS, functions, of_source

OWN = {
    "Bayes' rule": {
        "_kernels/belief.py: update_belief": "the filter's step, for every caller",
        "_kernels/mixture.py: weigh_episode": "the E-step: all steps of an episode at once",
        "_kernels/mixture.py: _log_shares": "its slow path, where probabilities underflow",
        "estimation/starts.py: context_points": "the E-step of starts, of a quadratic likelihood",
    },
    "the Bellman backup": {},  # _kernels/bellman.py has it in parts: sums, and maxima of them
    "what a policy does next": {},  # _kernels/rollout.py: decide, first_node, next_node
    "solving (I - discount P) x = b": {
        "planning/chains.py: solve_dense": "small systems",
        "planning/chains.py: _solve_sparse": "large ones",
    },
    "counting cells": {},  # logs/counts.py takes cells, however they were found
    "progress": {"_util/progress.py: progress_bar": "the bar"},
    "where work runs": {"engines/threads.py: Threads.submit": "the pool of threads"},
}

OTHER = {
    "Bayes' rule": {
        "deterministic/algorithm5.py: Explorer.needed_tries": "a bound on missed chances",
        "estimation/clustering.py: _embedded": "innovations in units of their noise",
        "estimation/em.py: _m_step": "the share of a context in all episodes",
        "estimation/likelihood.py: MixtureLikelihood.mixed": "first states mixed with the pooled",
        "instances/separated.py: _separated_rows": "the interval of a mixing weight",
        "logs/covariates.py: Encoder.of": "weighted means of covariates",
        "planning/chains.py: _bicgstab": "steps of a linear solver",
        "logs/long_table.py: reward_levels_of": "weighted means of rewards",
        "offline/solving.py: _value_in_model": "the share of a policy's steps",
        "report/groups.py: _Feature.against_others": "the shares of other contexts",
        "spectral/recovery.py: overall_agreement": "agreement of labels",
        "spectral/spectral_psr.py: SpectralPSR._basis": "scales of singular vectors",
    },
    "the Bellman backup": {
        "deterministic/graph.py: plan_graph": "mean and spread of returns, over nodes of a graph",
        "io/storm.py: joined": "tables of a model; nothing is planned",
        "online/q_learning.py: _QLearning._learn": "Q-learning: a sampled target, no expectation",
        "planning/chains.py: _solve_sparse": "the residual of a linear system",
        "planning/compact.py: _Choice._proved": "what a given policy graph earns",
        "planning/memoryless/cadp.py: _informed_with_end": "layers by `follow`, one rule for all",
        "planning/memoryless/cadp.py: _relax_without_end": "one maximum for all contexts together",
        "theory/communication.py: _expected_times": "policy iteration for hitting times",
    },
    "what a policy does next": {
        "planning/compact.py: _Choice._evaluated": "at which node a plan begins",
        "planning/explanation.py: ActionRule._memory": "the node for a belief that a user names",
        "planning/explanation.py: switches": "where the best vector changes along a segment",
        "planning/robust.py: WeightSet.against": "nature's answer to a policy",
        "planning/robust.py: _CuttingPlanes.respond": "which tried weights are the closest",
        "plot.py: policy": "the likeliest first state",
    },
    "solving (I - discount P) x = b": {
        "estimation/starts.py: PairMoments._regressed": "ridge regression",
        "estimation/starts.py: _best_points": "ridge regression",
        "offline/off_policy.py: _fitted": "ridge regression",
    },
    "counting cells": {
        "fit.py: _action_scores": "sums of logarithms by individual",
        "io/pomdpx.py: _FactoredFile.pomdp": "sums of a file's probabilities",
        "io/pomdpx.py: _FactoredFile._steps": "sums of a file's probabilities",
        "logs/base.py: Logs._amounts": "sums of amounts, not counts",
        "offline/off_policy.py: _fitted": "moments of a regression",
        "offline/off_policy.py: policy_by_context": "by time as well as by cell",
        "offline/warnings.py: _varied": "individuals, by state",
        "online/baselines.py: ThompsonPolicy.__call__": "chances of actions, summed over contexts",
        "planning/goals.py: _translated": "the nearest way among nodes",
        "planning/goals.py: _in_turn": "the first nearer action of a pair, by context",
        "planning/goals.py: _linked_graph": "nodes by state",
        "plot.py: _visits": "visits of states with actions, to draw",
        "spectral/moments.py: weigh_steps": "by time as well as by cell",
    },
    "progress": {},
    "where work runs": {
        "experiments/runner.py: _pool": "whole experiments, in processes: learners hold the GIL"
    },
}

SECOND = {
    "Bayes' rule": [
        "def f(b, p):\n    b = b * p\n    return b / b.sum()",
        "def f(b, p, out):\n    total = 0.0\n    for m in range(len(b)):\n"
        "        out[m] = b[m] * p[m]\n        total += out[m]\n"
        "    for m in range(len(b)):\n        out[m] /= total",
        "def f(x, y):\n    x *= y\n    scale = 1.0 / x.sum()\n    x = x * scale\n    return x",
        "def f(logs):\n    logs -= logs.max(axis=1, keepdims=True)\n    w = np.exp(logs)\n"
        "    return w / w.sum(axis=1, keepdims=True)",
        "def f(logs):\n    top = logs.max()\n    return np.exp(logs - top)",
    ],
    "the Bellman backup": [
        "def f(T, R, H):\n    V = 0 * R[:, 0]\n    for t in range(H - 1, -1, -1):\n"
        "        V = (R + T @ V).max(axis=1)\n    return V",
        "def f(T, R, discount, V, out):\n    for s in range(len(V)):\n        best = -1e300\n"
        "        for a in range(R.shape[1]):\n            q = R[s, a]\n"
        "            for n in range(len(V)):\n                q += discount * T[s, a, n] * V[n]\n"
        "            if q > best:\n                best = q\n        out[s] = best",
        "def f(T, R, gamma, V):\n    for _ in range(9):\n"
        "        V = np.maximum.reduce(R + gamma * np.einsum('san,n->sa', T, V), axis=1)\n"
        "    return np.maximum(V, 0)",
    ],
    "what a policy does next": [
        "def f(vectors, labels, belief):\n    return labels[np.argmax(vectors @ belief)]",
        "def f(V, b):\n    scores = V @ b\n    return scores.argmax()",
        "def f(V, labels, belief):\n    best = -1e300\n    for i in range(len(V)):\n"
        "        value = 0.0\n        for m in range(len(belief)):\n"
        "            value += V[i, m] * belief[m]\n        if value > best:\n"
        "            best = value\n            k = i\n    return labels[k]",
    ],
    "solving (I - discount P) x = b": [
        "def f(P, r, g):\n    return np.linalg.solve(np.eye(len(r)) - g * P, r)",
        "def f(P, r, g):\n    return spsolve(identity(len(r)) - g * P, r)",
        "def f(A, r):\n    x, _ = linalg.gmres(A, r)\n    return x",
    ],
    "counting cells": [
        "def f(logs, S, A):\n    cells = logs.states[:-1] * A + logs.actions\n"
        "    return np.bincount(cells, None, S * A)",
        "def f(logs, out):\n    steps = logs.steps()\n"
        "    np.add.at(out, (steps.state, steps.action), 1)",
    ],
    "progress": [
        "def f(n):\n    from rich.progress import track\n    return list(track(range(n)))"
    ],
    "where work runs": [
        "def f(work, items):\n    with ThreadPoolExecutor(4) as pool:\n"
        "        return list(pool.map(work, items))",
        "def f(x):\n    for i in prange(len(x)):\n        x[i] += 1",
    ],
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_has_one_function(mechanism):
    """Whoever adds a function of this shape calls the one there is, or says here what it is."""
    has_shape = MECHANISMS[mechanism]
    shaped = {place for place, function in functions() if has_shape(function)}
    assert shaped - set(OWN[mechanism]) - set(OTHER[mechanism]) == set(), "a second version?"
    assert set(OWN[mechanism]) | set(OTHER[mechanism]) == shaped, "a function that is gone"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_second_version_is_found(mechanism):
    for source in SECOND[mechanism]:
        (function,) = of_source(source)
        assert MECHANISMS[mechanism](function), source


def test_what_has_nothing_of_it_is_not_found():
    (function,) = of_source("def f(x, y):\n    return [a + b for a, b in zip(x, y)]")
    assert not any(has_shape(function) for has_shape in MECHANISMS.values())
