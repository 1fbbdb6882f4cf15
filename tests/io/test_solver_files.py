"""Exports: the model comes back bit for bit, and the exported problem is worth V*."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from solver_files import FactoredPomdp, FlatPomdp
from support import models

import latentmdp as lm
from latentmdp import testing
from latentmdp.errors import FormatError
from latentmdp.io import export

SUFFIXES = [".pomdp", ".pomdpx"]
READERS = {".pomdp": (FlatPomdp, 1), ".pomdpx": (FactoredPomdp, 0)}

COMPLETE = {k: m for k, m in testing.small_models().items() if k != "unvisited rows"}

LAUGHS = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!DOCTYPE lolz [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c SYSTEM "file:///etc/passwd">]>
<pomdpx>&b;&c;</pomdpx>
"""


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models())
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip(tmp_path, suffix, model) -> None:
    lm.save(model, tmp_path / f"m{suffix}")
    loaded = lm.load(tmp_path / f"m{suffix}")
    assert loaded == model
    assert loaded.fingerprint() == model.fingerprint()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", COMPLETE)
def test_the_exported_problem_is_worth_the_optimum(tmp_path, suffix, kind) -> None:
    """Exactly V* in H steps, and still V* with steps to spare, as nothing is earned at the end."""
    model = COMPLETE[kind]
    path = tmp_path / f"m{suffix}"
    lm.save(model, path)
    reader, delay = READERS[suffix]
    problem = reader(path)
    assert 0.0 < problem.discount < 1.0
    best = testing.optimal_value(model)
    assert problem.value(model.horizon + delay) == pytest.approx(best, rel=1e-9)


def test_nothing_is_earned_after_the_end(tmp_path) -> None:
    model = testing.random_model(0, horizon=2)
    best = testing.optimal_value(model)
    for suffix, (reader, delay) in READERS.items():
        lm.save(model, tmp_path / f"m{suffix}")
        assert reader(tmp_path / f"m{suffix}").value(3 + delay) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_discounted_form_has_no_end(tmp_path, suffix) -> None:
    model = testing.random_model(1, horizon=2, discount=0.7)
    path = tmp_path / f"m{suffix}"
    export(model, path, discounted=True)
    assert lm.load(path) == model
    reader, delay = READERS[suffix]
    longer = testing.optimal_value(model.replace(horizon=3))
    assert reader(path).value(3 + delay) == pytest.approx(longer, rel=1e-9)


def test_an_independent_solver_finds_the_optimum(tmp_path) -> None:
    value_function = pytest.importorskip("pomdp_py.algorithms.value_function")
    model = testing.random_model(2, states=2, horizon=2, bonus=True)
    lm.save(model, tmp_path / "m.pomdp")
    problem = FlatPomdp(tmp_path / "m.pomdp")

    class Table:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def probability(self, target: int, state: int, action: int) -> float:
            return self.array[action, state, target]

        def sample(self, state: int, action: int, following: int) -> float:
            return self.array[action, state]

    S, A, Z = (list(range(len(x))) for x in (problem.states, problem.actions, problem.observations))
    tables = (Table(problem.T), Table(problem.O), Table(problem.R))
    belief = dict(enumerate(problem.start))
    found = value_function.value(
        belief, S, A, Z, *tables, problem.discount, horizon=model.horizon + 1
    )
    plan = lm.Exact().plan(model)
    assert plan.lower - 1e-9 <= found <= plan.upper + 1e-9
    assert lm.Memoryless().plan(model).lower <= found + 1e-9 <= lm.QMDP().plan(model).upper + 2e-9


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("content", [LAUGHS, "", "discount: 0.9\n", "<pomdpx/>", "# latentmdp\n"])
def test_hostile_files_are_refused(tmp_path, suffix, content) -> None:
    path = tmp_path / f"foreign{suffix}"
    path.write_text(content)
    with pytest.raises(
        FormatError, match=r"foreign\.pomdpx?: .*(refused|not a|broken|has no <Discount>)"
    ):
        lm.load(path)


def with_gaps(seed, **changes) -> lm.LatentMDP:
    """A random model with forbidden actions and a terminal state."""
    allowed = [[True, False], [True, True], [False, False]]
    kinds = ("state-action", "transition")
    model = testing.random_model(seed, states=3, horizon=3, reward_model=kinds[seed % 2])
    return model.replace(allowed=allowed, **changes)


def value_of(model, steps, s=None, belief=None) -> float:
    """The optimum by recursion over histories, from the outcome table, allowed actions only."""
    if s is None:
        joint = model.weights[:, None] * model.initial
        return sum(value_of(model, steps, s, joint[:, s]) for s in range(model.n_states))
    if steps == 0 or model.terminal[s] or not belief.any():
        return 0.0
    table, rewards, best = model.outcomes, model.planning_rewards(), -np.inf
    for a in np.flatnonzero(model.allowed[s]):
        row = s * model.n_actions + a
        later = sum(
            value_of(model, steps - 1, int(table.next_state[k]), belief * table.probs[k])
            for k in range(table.starts[row], table.starts[row + 1])
        )
        best = max(best, belief @ rewards[:, s, a] + model.discount * later)
    return float(best)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("seed", range(4))
def test_forbidden_actions_and_terminal_states(tmp_path, suffix, seed) -> None:
    reader, delay = READERS[suffix]
    for model in (with_gaps(seed), with_gaps(seed, discount=0.9, horizon=None)):
        lm.save(model, tmp_path / f"m{suffix}")
        assert lm.load(tmp_path / f"m{suffix}") == model
        found = reader(tmp_path / f"m{suffix}").value(3 + delay)
        assert found == pytest.approx(value_of(model, 3), rel=1e-9)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_endless_model_has_no_time_in_its_states(tmp_path, suffix) -> None:
    model = testing.random_model(3, states=3).replace(horizon=None, discount=0.8)
    lm.save(model, tmp_path / f"m{suffix}")
    reader, delay = READERS[suffix]
    problem = reader(tmp_path / f"m{suffix}")
    assert problem.discount == 0.8
    assert problem.value(3 + delay) == pytest.approx(value_of(model, 3), rel=1e-9)


def test_files_hold_only_what_can_happen(tmp_path) -> None:
    """One line for each outcome of a deterministic chain, however many states it has."""
    S = 60
    T = np.eye(S)[np.minimum(np.arange(S) + 1, S - 1)][None, :, None, :]
    chain = lm.LatentMDP(T, np.zeros((1, S, 1)), initial=0, horizon=None, discount=0.5)
    lm.save(chain, tmp_path / "m.pomdp")
    body = [x for x in (tmp_path / "m.pomdp").read_text().splitlines() if x[0] != "#"]
    assert sum(line.startswith("T:") for line in body) == S + 1
    assert sum(line.startswith("R:") for line in body) == 1  # some solvers want one
    lm.save(chain.replace(horizon=3, discount=1.0), tmp_path / "m.pomdpx")
    assert (tmp_path / "m.pomdpx").read_text().count("<Instance>a0 c0") == 4


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_changed_newer_and_truncated_files_are_refused(tmp_path, suffix) -> None:
    path = tmp_path / f"m{suffix}"
    lm.save(testing.random_model(0), path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with pytest.raises(FormatError, match="changed or truncated"):
        lm.load(path)
    path.write_bytes(whole.replace(b"a1", b"a0"))
    with pytest.raises(FormatError, match="changed or truncated"):
        lm.load(path)
    path.write_bytes(whole[: whole.index(b"weights")])
    with pytest.raises(FormatError, match="changed or truncated"):
        lm.load(path)
    path.write_bytes(whole.replace(b'"schema": 1', b'"schema": 9'))
    with pytest.raises(FormatError, match="newer"):
        lm.load(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_no_pomdp_is_refused(tmp_path, suffix) -> None:
    path = tmp_path / f"m{suffix}"
    with pytest.raises(FormatError, match="never visited"):
        lm.save(testing.small_models()["unvisited rows"], path)
    with pytest.raises(FormatError, match="discount below 1"):
        export(testing.random_model(0), path, discounted=True)
    with pytest.raises(FormatError, match="export writes"):
        export(testing.random_model(0), tmp_path / "m.npz")
    assert not path.exists()


def test_names_with_dashes_keep_the_xml_well_formed(tmp_path) -> None:
    model = testing.random_model(0).replace(context_names=["--", "a --> b"])
    lm.save(model, tmp_path / "m.pomdpx")
    assert lm.load(tmp_path / "m.pomdpx") == model
    FactoredPomdp(tmp_path / "m.pomdpx")
