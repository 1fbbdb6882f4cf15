"""Plans, fits, PSRs, explorations, and what `learn`, `solve` and L-UCRL gave: whole, and strict."""

import dataclasses
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from models import random_model

import latentmdp as lm
from latentmdp._util import storage
from latentmdp.errors import FormatError


@pytest.fixture(scope="module")
def world():
    return random_model(0, contexts=2, states=3, actions=2, horizon=5)


@pytest.fixture(scope="module")
def logs(world):
    return lm.simulate(world, lm.UniformPolicy(), 200, rng=0).without_contexts()


@pytest.fixture(scope="module")
def plan(world):
    return lm.HSVI(gap=0.1).plan(world)


@pytest.fixture(scope="module")
def fit(logs):
    return lm.EM(2).fit(logs, rng=0)


@pytest.fixture(scope="module")
def psr(logs):
    return lm.SpectralPSR(rank=2).fit(logs)


@pytest.fixture(scope="module")
def exploration():
    model = lm.make("deterministic", rng=0)
    return lm.deterministic.explore(model, model.n_contexts, rng=0)


@pytest.fixture(scope="module")
def solved(logs):
    return lm.solve(logs, 2, rng=7, bootstrap=2, planner=lm.HSVI(gap=0.1))


@pytest.fixture(scope="module")
def learned(world):
    return lm.learn(world, 2, 40, rng=0, explore=20, restarts=1, planner=lm.QMDP())


@pytest.fixture(scope="module")
def run(world):
    return lm.LUCRL().run(world, 40, rng=0)


EVERY = ["plan", "fit", "psr", "exploration", "solved", "learned", "run"]


@pytest.fixture(params=EVERY)
def result(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["learned", "solved", "run"])
def outcome(request):
    return request.getfixturevalue(request.param)


def same(first, second):
    """Equal to the last bit, whatever they are made of; NaN equals NaN."""
    assert type(first) is type(second)
    if isinstance(first, np.ndarray):
        np.testing.assert_array_equal(first, second, strict=True)
    elif hasattr(first, "to_fields"):
        same(first.to_fields(), second.to_fields())
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for name in first:
            same(first[name], second[name])
    else:
        np.testing.assert_equal(first, second)


def test_every_field_comes_back(result, tmp_path):
    lm.save(result, tmp_path / "r.npz")
    again = lm.load(tmp_path / "r.npz")
    same(again, result)
    for field in dataclasses.fields(result):
        left_out = ("estimator", "logs") if isinstance(result, lm.Fit) else ()
        if field.name not in ("selection", "policy", "graph", *left_out):
            assert repr(getattr(again, field.name)) == repr(getattr(result, field.name)), field.name


def test_what_can_be_compared_is_equal(plan, psr, exploration, tmp_path):
    for found in (plan, plan.policy, psr, exploration, exploration.policy, exploration.graph):
        lm.save(found, tmp_path / "r.npz")
        assert lm.load(tmp_path / "r.npz") == found


def test_loaded_results_do_what_they_did(world, logs, psr, solved, exploration, tmp_path):
    lm.save(solved, tmp_path / "s.npz")
    again = lm.load(tmp_path / "s.npz")
    assert again.policy is again.plan.policy
    assert again.model is again.fit.model
    played = [lm.simulate(solved.model, s.policy, 50, rng=1) for s in (solved, again)]
    assert played[0] == played[1]
    assert (solved.settings["seed"], solved.settings["episodes"]) == (7, len(logs))
    lm.save(psr, tmp_path / "p.npz")
    states = [p.filter(logs)[0] for p in (psr, lm.load(tmp_path / "p.npz"))]
    np.testing.assert_array_equal(*states)
    lm.save(exploration.policy, tmp_path / "g.npz")
    model = lm.make("deterministic", rng=0)
    policies = (exploration.policy, lm.load(tmp_path / "g.npz"))
    played = [lm.simulate(model, policy, 20, rng=1) for policy in policies]
    assert played[0] == played[1]


def test_what_is_not_finite_comes_back(solved, plan, tmp_path):
    """Logs that never agree give an estimate of NaN and an infinite error; bounds may be so too."""
    never = type(solved.logged)(float("nan"), float("inf"), 0, np.zeros(0))
    lm.save(
        dataclasses.replace(solved, logged=never, model_first_steps=float("nan")),
        tmp_path / "s.npz",
    )
    assert lm.load(tmp_path / "s.npz").logged == never
    loose = dataclasses.replace(plan, lower=float("-inf"), upper=float("nan"), guarantee=None)
    lm.save(loose, tmp_path / "p.npz")
    again = lm.load(tmp_path / "p.npz")
    np.testing.assert_equal((again.lower, again.upper, again.guarantee), (-np.inf, np.nan, None))


def test_plans_without_bounds_come_back(plan, tmp_path):
    bare = lm.Plan(plan.policy)
    lm.save(bare, tmp_path / "p.npz")
    assert lm.load(tmp_path / "p.npz") == bare


def test_first_states_that_distinguish_come_back(tmp_path):
    """Nodes then know the first state, an observation of another form."""
    model = lm.make("deterministic", rng=0)
    start = np.eye(model.n_states)[np.arange(model.n_contexts)]
    model = model.replace(initial=start)
    found = lm.deterministic.explore(model, model.n_contexts, rng=0)
    assert any(("init", 1) in node.observations for node in found.graph.nodes)
    lm.save(found, tmp_path / "e.npz")
    assert lm.load(tmp_path / "e.npz").graph.nodes == found.graph.nodes


def test_a_fresh_process_loads_everything(request, tmp_path):
    """Only `import latentmdp` comes before each: the kind is found by its name in the file."""
    results = [request.getfixturevalue(name) for name in EVERY]
    paths = [tmp_path / f"{name}.npz" for name in EVERY]
    for result, path in zip(results, paths):
        lm.save(result, path)
    code = (
        "import sys\n"
        "for path in sys.argv[1:]:\n"
        "    for name in [m for m in sys.modules if m.startswith('latentmdp')]:\n"
        "        del sys.modules[name]\n"
        "    import latentmdp as lm\n"
        "    assert not any(m.startswith('latentmdp.offline') for m in sys.modules)\n"
        "    assert 'latentmdp.model' not in sys.modules\n"
        "    print(type(lm.load(path)).__name__)\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True
    )
    assert shown.stdout.split() == [type(result).__name__ for result in results]


def test_a_model_is_loaded_without_the_rest_of_the_library(world, tmp_path):
    lm.save(world, tmp_path / "m.npz")
    code = (
        "import sys, latentmdp as lm\n"
        "lm.save(lm.load(sys.argv[1]), sys.argv[1])\n"
        "rest = ('scipy', 'pyarrow', 'latentmdp.online.base', 'latentmdp.planning.base')\n"
        "print(*(m for m in rest if m in sys.modules))\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "m.npz"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == ""


def test_settings_of_other_versions_are_kept(outcome, tmp_path):
    more = {**outcome.settings, "of tomorrow": [1, {"deep": None}]}
    lm.save(dataclasses.replace(outcome, settings=more), tmp_path / "o.npz")
    assert lm.load(tmp_path / "o.npz").settings == more


def test_the_digest_is_not_of_the_time_it_took(outcome, tmp_path):
    digests = set()
    for seconds in (1.0, 2.0):
        lm.save(dataclasses.replace(outcome, seconds=seconds), tmp_path / "o.npz")
        digests.add(header_of(tmp_path / "o.npz")["digest"])
    assert len(digests) == 1


def header_of(path):
    with np.load(path) as file:
        return json.loads(str(file["header"]))


def changed(path, values, arrays):
    """Write the file again with other values or arrays (None: without); checksums are right."""
    with np.load(path) as file:
        members = {name: file[name] for name in file.files}
    header = json.loads(str(members["header"]))
    header["values"] = {k: v for k, v in (header["values"] | values).items() if v is not None}
    members |= {**arrays, "header": np.array(json.dumps(header))}
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in members.items():
            if array is not None:
                with archive.open(f"{name}.npy", "w") as out:
                    np.save(out, array)


BAD_VALUES = [
    ("plan", "seconds", "soon", "'seconds' must be a number"),
    ("plan", "seconds", -1.0, "must not be negative"),
    ("plan", "converged", 1, "'converged' must be true or false"),
    ("plan", "lower", "low", "'lower' must be a number"),
    ("plan", "message", 3, "'message' must be a string"),
    ("plan", "guarantee", [1.0], "guarantee must be two numbers"),
    ("plan", "guarantee", [1.0, "0"], "'guarantee' must be a list of numbers"),
    ("plan", "policy_kind", "model", "'policy_kind' is 'model', not alpha-vector-policy or"),
    ("plan", "policy_kind", "spaceship", "unknown kind 'spaceship'"),
    ("plan", "policy_kind", None, "field 'policy' is missing"),
    ("plan", "policy.model_kind", "plan", "'model_kind' is 'plan', not model"),
    ("plan", "policy.model.horizon", "far", "'horizon' must be an integer"),
    ("plan", "policy.wings", 2, r"unknown field 'wings' \(kind 'alpha-vector-policy'\)"),
    ("fit", "n_iter", 1.5, "'n_iter' must be an integer"),
    ("fit", "log_likelihood", None, "field 'log_likelihood' is missing"),
    ("psr", "safeguards", "yes", "'safeguards' must be true or false"),
    ("exploration", "policy.graph.n_actions", 0, "n_actions must be at least 1"),
    ("exploration", "policy.graph.n_actions", 1, "action must lie from 0 to 0"),
    ("exploration", "policy.graph.horizon", 2, "actions must have shape"),
    ("exploration", "policy.graph.discount", 2.0, "discount must lie in"),
    ("exploration", "value", float("nan"), "'value' must be finite"),
    ("solved", "settings", [], "'settings' must be an object"),
    ("solved", "value", [1.0, 2.0], "'high'"),
    ("solved", "warnings", [1], "'warnings' must be a list of texts"),
    ("solved", "final_states", [0.5], "'final_states' must be a list of integers"),
    ("solved", "fit.model_kind", "fit", "'model_kind' is 'fit', not model"),
    ("learned", "logs_kind", "model", "'logs_kind' is 'model', not trajectories"),
    ("run", "model.horizon", 0, "horizon must be at least 1"),
    ("plan", "lower", "1", "'lower' must be a number"),
    ("plan", "upper", True, "'upper' must be a number"),
    ("plan", "converged", 1, "'converged' must be true or false"),
    ("plan", "n_iter", 2.0, "'n_iter' must be an integer"),
    ("plan", "message", 3, "'message' must be a string"),
    ("fit", "n_iter", 1.5, "'n_iter' must be an integer"),
    ("fit", "n_parameters", True, "'n_parameters' must be an integer"),
    ("run", "optimistic_value", [], "'optimistic_value' must be a number"),
]


@pytest.mark.parametrize(("name", "field", "value", "message"), BAD_VALUES)
def test_values_of_the_wrong_type_are_refused(
    request, monkeypatch, tmp_path, name, field, value, message
):
    """Even with a right digest, as one who changes a file on purpose would give it."""
    monkeypatch.setattr(storage, "digest_of", lambda *_: "signed")
    file = tmp_path / "o.npz"
    lm.save(request.getfixturevalue(name), file)
    changed(file, {field: value}, {})
    with pytest.raises(FormatError, match=message) as caught:
        lm.load(file)
    assert str(caught.value).startswith(str(file))


BAD_ARRAYS = [
    ("fit", "responsibilities", np.ones((4, 3)), r"responsibilities must have shape \(any, 2\)"),
    ("plan", "history", np.ones(3), r"history must have shape \(any, 3\)"),
    ("plan", "policy.offsets", np.array([0, 1]), "offsets must cut"),
    ("plan", "policy.vectors", None, "field 'vectors' is missing"),
    ("learned", "returns", np.ones(3), "beliefs must have shape"),
    ("learned", "phases", np.ones((2, 5)), r"phases must have shape \(any, 6\)"),
    ("psr", "operators", np.ones((3, 2, 3, 2, 2, 3)), "operators must have shape"),
    ("psr", "normalisers", np.full((3, 2), np.nan), r"normalisers\[0, 0\] is nan"),
    ("psr", "visited", np.ones(3), "'visited' must be an array of flags"),
    ("psr", "singular_values", np.ones((3, 1)), "rank 2 with 1 singular values"),
    ("exploration", "policy.actions", np.full((2, 2), 0), "actions must have shape"),
    ("exploration", "policy.graph.edges", np.full((1, 5), 10**6), "source must lie from 0 to"),
    ("exploration", "policy.graph.observation_offsets", np.array([1]), "observation_offsets"),
    ("exploration", "policy.graph.start_nodes", np.array([0, 0]), "start_probabilities|distinct"),
    ("run", "count_transitions", np.ones((2, 3, 2, 4)), "count_transitions must have shape"),
    ("run", "count_payment_counts", np.ones((2, 1)), "count_payment_counts must have shape"),
    ("run", "contexts", np.full(40, -2), "contexts must lie from -1"),
    ("run", "beliefs", np.ones(3), "beliefs must have shape"),
    ("run", "curve_errors", np.ones(1), "curve_errors must have shape"),
    ("solved", "effective_size", np.ones((2, 2)), "effective_size must have shape"),
]


@pytest.mark.parametrize(("name", "array", "value", "message"), BAD_ARRAYS)
def test_arrays_that_do_not_fit_are_refused(
    request, monkeypatch, tmp_path, name, array, value, message
):
    monkeypatch.setattr(storage, "digest_of", lambda *_: "signed")
    file = tmp_path / "o.npz"
    lm.save(request.getfixturevalue(name), file)
    changed(file, {}, {array: value})
    with pytest.raises(FormatError, match=message):
        lm.load(file)


@pytest.mark.parametrize("name", EVERY)
def test_a_changed_file_is_refused(request, tmp_path, name):
    file = tmp_path / "o.npz"
    lm.save(request.getfixturevalue(name), file)
    array = next(n for n, a in np.load(file).items() if a.dtype.kind == "f" and a.size)
    changed(file, {}, {array: np.load(file)[array] * 0.5})
    with pytest.raises(FormatError, match="damaged: its contents are not those that were written"):
        lm.load(file)


def test_an_outcome_says_in_a_line_what_it_is(learned, solved):
    assert repr(learned).startswith("Run(40 episodes of Refit, 2 contexts, ")
    assert repr(solved).startswith(f"Solved(2 contexts, {solved.value} per episode")


def test_what_cannot_be_saved_is_named(run, tmp_path):
    """A run whose policy has no kind is refused by the name of that policy."""

    class Clever(lm.policies.Policy):
        pass

    with pytest.raises(TypeError, match="cannot save a Clever; what can be saved: LatentMDP, "):
        lm.save(dataclasses.replace(run, policy=Clever()), tmp_path / "r.npz")
    assert list(tmp_path.iterdir()) == []
