"""On a GPU and on the CPU: the same trajectories, returns and beliefs, bit for bit."""

import warnings

import numpy as np
import pytest
from models import random_alpha_policy, random_model
from typer.testing import CliRunner

import latentmdp as lm
from latentmdp import testing
from latentmdp.cli.app import app
from latentmdp.engines.cuda import Cuda, passes
from latentmdp.engines.cuda.device import Gpu
from latentmdp.errors import DeviceError, ImpossibleObservationError
from latentmdp.estimation.episodes import Episodes
from latentmdp.fit import FitWarning
from latentmdp.logs import Covariates

FIELDS = ("contexts", "offsets", "states", "actions", "rewards")


def models():
    """Odd and even numbers of contexts, dense and tables, ends of every kind, hidden rewards."""
    plain = testing.random_model
    ragged = {"zeros": 0.4, "forbidden": 0.3, "n_terminal": 1, "states": 5, "bonus": True}
    return {
        "one context": plain(0, contexts=1, states=4),
        "two contexts, three actions": plain(1, actions=3, horizon=5, bonus=True),
        "three contexts, a table with terminal states": plain(
            2, contexts=3, as_table=True, horizon=6, **ragged
        ),
        "five contexts, no end": plain(
            3, contexts=5, horizon=None, discount=0.6, reward_values=(-1.0, 0.5, 2.0)
        ),
        "seven contexts, a table without end": plain(
            4, contexts=7, horizon=None, discount=0.5, as_table=True, **ragged
        ),
    }


MODELS = models()


def policies(model):
    """Every kind of policy that is compiled."""
    chances = model.allowed + model.terminal[:, None] * 1.0
    chances = chances / chances.sum(axis=1, keepdims=True)
    chosen = np.argmax(model.allowed, axis=1)
    found = [lm.UniformPolicy(), lm.MarkovPolicy(chances), lm.MarkovPolicy(chosen)]
    if model.horizon is not None:
        found += [lm.MarkovPolicy(np.tile(chosen, (model.horizon, 1)))]
    return [*found, lm.QMDP().plan(model).policy]


def assert_same_episodes(model, policy, episodes=9, **settings):
    on_cpu, on_gpu = (
        lm.simulate(model, policy, episodes, rng=5, device=device, **settings)
        for device in ("cpu", "cuda")
    )
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(on_gpu, name), getattr(on_cpu, name), err_msg=name)


@pytest.mark.parametrize("name", MODELS)
def test_episodes_are_those_of_the_cpu(name):
    for policy in policies(MODELS[name]):
        assert_same_episodes(MODELS[name], policy)


def test_pieces_shards_and_cut_off_episodes_change_nothing(monkeypatch):
    monkeypatch.setattr("latentmdp.engines.cuda.episodes._PIECE", 4)
    model = MODELS["three contexts, a table with terminal states"]
    policy = lm.QMDP().plan(model).policy
    assert_same_episodes(model, policy, first_episode=2**33, horizon=3)
    model = MODELS["two contexts, three actions"]
    assert_same_episodes(model, policy=random_alpha_policy(model, 1), first_episode=7)


def test_a_policy_that_believes_in_another_model():
    """Its filter does not list some outcomes of the world, and smooths others."""
    world = random_model(0, states=4, horizon=6)
    own = random_model(1, states=4, horizon=6, sparse=True)
    policy = lm.QMDP().plan(own).policy
    assert_same_episodes(world, policy, episodes=20)
    assert_same_episodes(world, policy.filtering(own, 0.01), episodes=20)


def test_contexts_whose_belief_is_too_small_for_a_number():
    """Beliefs of 1e-400 and below must not be lost on a GPU either."""
    chances = np.array([0.5, 1e-30, 1e-120])[:, None, None] * np.ones((3, 1, 2))
    model = lm.LatentMDP(np.ones((3, 1, 2, 1)), chances, horizon=12)
    assert_same_episodes(model, random_alpha_policy(model, 0), episodes=6)
    logs = lm.simulate(model, lm.UniformPolicy(), 6, rng=0)
    on_cpu, on_gpu = (lm.posterior(model, logs, along=True, device=d) for d in ("cpu", "cuda"))
    assert on_cpu[on_cpu > 0.0].min() < 1e-200
    np.testing.assert_array_equal(on_gpu, on_cpu)


@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_cpu(name):
    model = MODELS[name]
    for policy in (lm.UniformPolicy(), lm.QMDP().plan(model).policy):
        on_cpu, on_gpu = (
            lm.evaluate(model, policy, 12, rng=2, method="monte-carlo", device=device)
            for device in ("cpu", "cuda")
        )
        assert on_gpu == on_cpu


@pytest.mark.parametrize("along", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_posteriors_are_those_of_the_cpu(name, along, monkeypatch):
    monkeypatch.setattr("latentmdp.engines.cuda.episodes._PIECE", 5)
    model = MODELS[name]
    logs = lm.simulate(model, lm.UniformPolicy(), 8, rng=1)
    for smoothing in (0.0, 0.01):
        on_cpu, on_gpu = (
            lm.posterior(model, logs, smoothing, along=along, device=device)
            for device in ("cpu", "cuda")
        )
        np.testing.assert_array_equal(on_gpu, on_cpu)


def test_an_impossible_observation_is_named_as_on_the_cpu(monkeypatch):
    monkeypatch.setattr("latentmdp.engines.cuda.episodes._PIECE", 2)
    model = random_model(0, states=4, horizon=5)
    logs = lm.simulate(model, lm.UniformPolicy(), 9, rng=0)
    strict = random_model(3, states=4, horizon=5, sparse=True)
    messages = []
    for device in ("cpu", "cuda"):
        with pytest.raises(ImpossibleObservationError) as caught:
            lm.posterior(strict, logs, device=device)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_a_function_of_the_history_is_refused():
    model = MODELS["two contexts, three actions"]
    for run in (lm.simulate, lm.evaluate):
        with pytest.raises(DeviceError, match="functions of the history"):
            run(model, lambda history: 0, 10, rng=0, device="cuda")


def test_policy_graphs_are_refused_where_they_are_played():
    """Their exact value needs no episodes, and is the CPU's."""
    model = random_model(0, states=3, horizon=3)
    graph = lm.QMDP().plan(model).compact(vectors=2, graph=True).policy
    mixture = lm.MixturePolicy(graph.nodes, graph.followers, [graph.first] * 2, [0.5, 0.5])
    assert isinstance(graph, lm.PolicyGraph)
    for policy in (graph, mixture):
        with pytest.raises(DeviceError, match="policy graphs"):
            lm.simulate(model, policy, 5, rng=0, device="cuda")
        with pytest.raises(DeviceError, match="policy graphs"):
            lm.evaluate(model, policy, 5, rng=0, method="monte-carlo", device="cuda")
    assert lm.evaluate(model, graph, device="cuda") == lm.evaluate(model, graph)


def known(logs, **others):
    """The same logs, without contexts, with some fields replaced."""
    held = {name: getattr(logs, name) for name in ("states", "actions", "rewards", "offsets")}
    sizes = {name: getattr(logs, name) for name in ("n_states", "n_actions", "reward_values")}
    return lm.Trajectories(**{**held, **sizes, **others})


def gappy(logs, **others):
    """The same logs with some rewards missing, a last state too, and episode 1 going on from 0."""
    rewards, states = logs.rewards.copy(), logs.states.copy()
    rewards[::5] = -1
    states[-1] = -1
    continues = np.arange(len(logs)) == 1
    return known(logs, rewards=rewards, states=states, continues=continues, **others)


def test_posteriors_of_logs_with_gaps_are_refused():
    model = MODELS["two contexts, three actions"]
    logs = lm.simulate(model, lm.UniformPolicy(), 4, rng=1)
    for lacking in (gappy(logs), known(logs, continues=np.arange(4) == 2)):
        with pytest.raises(DeviceError, match="complete episodes"):
            lm.posterior(model, lacking, device="cuda")


def test_commands_play_on_a_gpu(tmp_path):
    model, files = random_model(0), [tmp_path / f"{d}.npz" for d in ("cpu", "cuda")]
    lm.save(model, tmp_path / "model.npz")
    for out in files:
        options = ["--episodes", "9", "--out", str(out), "--device", out.stem]
        result = CliRunner().invoke(app, ["simulate", str(tmp_path / "model.npz"), *options])
        assert result.exit_code == 0, result.output
    assert lm.load(files[0]) == lm.load(files[1])


def test_a_fit_from_logs_alone_and_its_command(tmp_path, monkeypatch):
    """The passes are the GPU's, and the model that of the CPU up to rounding."""
    made, begin = [], passes.EpisodePass.__init__

    def counted(*given):
        made.append("pass")
        begin(*given)

    monkeypatch.setattr(passes.EpisodePass, "__init__", counted)
    model = lm.make("separated", contexts=2, states=2, actions=1, horizon=6, delta=0.5, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 12, rng=0)
    known = {"reward_model": "state-action", "behaviour": "shared", "shared_initial": True}
    settled = {**known, "shared_rewards": False, "shared_transitions": False, "rng": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        one, other = (
            lm.initialize(None, logs, 1, **settled, device=device) for device in ("cpu", "cuda")
        )
    np.testing.assert_allclose(other.model.transitions, one.model.transitions, rtol=1e-9)
    assert len(made) == 1
    with pytest.raises(DeviceError, match="going on from a fit"):
        lm.initialize(None, logs, start=one, device="cuda")
    with pytest.raises(DeviceError, match="psr"):
        lm.initialize(logs, logs, 2, method="psr", device="cuda")
    lm.save(logs, tmp_path / "logs.parquet")
    command = ["fit", str(tmp_path / "logs.parquet"), "--contexts", "1", "--device", "cuda"]
    result = CliRunner().invoke(app, [*command, "--json"])
    assert result.exit_code == 0, result.output
    assert len(made) > 1


def mixed_logs(model):
    """Long episodes, short ones that are merged, and some that end early."""
    long = lm.simulate(model, lm.UniformPolicy(), 6, rng=3)
    short = lm.simulate(model, lm.UniformPolicy(), 10, rng=4, horizon=2)
    return [long, short]


def test_a_pass_of_em_counts_what_the_cpu_counts(monkeypatch):
    """The oracle is the CPU's pass; sums of n terms of size 1 differ by n roundings at most."""
    monkeypatch.setattr(passes, "_CHUNK", 4)
    monkeypatch.setattr(passes, "_SEGMENT", 32)
    model = testing.random_model(
        1, contexts=3, states=2, actions=1, horizon=70, reward_values=(1.0,)
    )
    episodes = Episodes(mixed_logs(model))
    assert len(episodes.groups) == 2
    table = model.packed().reshape(-1, 3)[episodes.cells]
    first, engine = model.initial.T * model.weights, Cuda()
    expected, value = episodes.expected_counts(table, first)
    counts, found = episodes.expected_counts(table, first, engine)
    np.testing.assert_allclose(counts.by_cell, expected.by_cell, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(counts.by_first, expected.by_first, rtol=1e-12, atol=1e-12)
    assert found == pytest.approx(value, rel=1e-13)
    again, _ = episodes.expected_counts(table, first, engine)
    assert np.array_equal(again.by_cell, counts.by_cell)


def test_a_pass_in_logarithms_and_one_that_is_impossible():
    model = lm.LatentMDP(np.ones((2, 1, 1, 1)), np.full((2, 1, 1), 0.5), horizon=70)
    episodes = Episodes([lm.simulate(model, lm.UniformPolicy(), 3, rng=0)])
    first, engine = model.initial.T * model.weights, Cuda()
    for table in (np.full((2, 2), 1e-200), np.array([[1e-200, 0.0], [1.0, 0.0]])):
        expected, value = episodes.expected_counts(table, first)
        counts, found = episodes.expected_counts(table, first, engine)
        np.testing.assert_allclose(counts.by_cell, expected.by_cell, rtol=1e-12)
        assert found == pytest.approx(value, rel=1e-13)
    assert episodes.expected_counts(np.zeros((2, 2)), first, engine)[1] == -np.inf


def test_em_fits_on_a_gpu_what_it_fits_on_the_cpu():
    model = lm.make("separated", contexts=2, states=2, actions=1, horizon=8, delta=0.3, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 20, rng=0)
    em = lm.EM(2, pseudo_counts=1.0, max_iter=20, initial="shared", shared_rewards=True)
    on_cpu, on_gpu = (em.fit(logs, start=model, device=d) for d in ("cpu", "cuda"))
    assert on_gpu.n_iter == on_cpu.n_iter
    assert on_gpu.log_likelihood == pytest.approx(on_cpu.log_likelihood, rel=1e-12)
    np.testing.assert_allclose(on_gpu.model.transitions, on_cpu.model.transitions, rtol=1e-9)


@pytest.mark.parametrize(
    "settings",
    [
        {"covariates": False, "behaviour": "by-context"},
        {"covariates": True, "shared_rewards": True},
        {"covariates": False, "shared_transitions": True},
    ],
    ids=["a logger who knew", "covariates", "shared transitions"],
)
def test_em_on_logs_with_gaps_of_individuals_who_are_known(settings):
    """Cells without rewards, segments, and a row of weights for every beginning."""
    model = lm.make("separated", contexts=2, states=2, actions=2, horizon=6, delta=0.3, rng=0)
    logs = lm.simulate(model, lm.UniformPolicy(), 20, rng=0)
    ages = np.arange(20) // 2 % 3  # one for both segments of an individual
    logs = gappy(logs, covariates=Covariates.from_columns({"age": ages}))
    em = lm.EM(2, pseudo_counts=1.0, max_iter=3, initial="own", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)
        on_cpu, on_gpu = (em.fit(logs, start=model, device=d) for d in ("cpu", "cuda"))
    assert on_gpu.n_iter == on_cpu.n_iter
    assert (on_gpu.weight_model is not None) == settings["covariates"]
    assert on_gpu.log_likelihood == pytest.approx(on_cpu.log_likelihood, rel=1e-11)
    np.testing.assert_allclose(on_gpu.responsibilities, on_cpu.responsibilities, rtol=1e-8)
    np.testing.assert_allclose(on_gpu.behaviour, on_cpu.behaviour, rtol=1e-8)


def test_logs_beyond_the_memory_of_the_gpu_are_refused_before_a_pass(monkeypatch):
    """The bytes that are asked for cover what is held after a fit, and not many times over."""
    model = testing.random_model(0, states=3, actions=2, horizon=12)
    logs = lm.simulate(model, lm.UniformPolicy(), 200, rng=0)
    asked, engine, episodes = [], Cuda(), Episodes([logs])
    monkeypatch.setattr(Gpu, "require_memory", lambda self, needed, what: asked.append(needed))
    held = episodes.held_by(engine, 2)
    table, first = model.packed().reshape(-1, 2)[episodes.cells], model.initial.T * model.weights
    episodes.expected_counts(table, first, engine)
    assert len(asked) == 1
    read = sum(array.nbytes for array in (*held._episodes, *held._lists))
    assert 0.5 * asked[0] < read + 8.0 * 3 * 200 + 8.0 * 11 * 200 < 1.5 * asked[0]
    monkeypatch.undo()
    monkeypatch.setattr(Gpu, "_free_bytes", property(lambda self: 1000.0))
    with pytest.raises(DeviceError, match=r"200 different episodes take .* 1e.03 are free"):
        lm.EM(2).fit(logs, rng=0, device="cuda")


@pytest.mark.usefixtures("real_gpu")
@pytest.mark.parametrize("kind", ["uniform", "Q-MDP"])
def test_a_million_episodes_are_those_of_the_cpu(kind):
    rng, shape = np.random.default_rng(0), (7, 15, 3)
    model = lm.LatentMDP(rng.dirichlet(np.full(15, 0.3), shape), rng.random(shape), horizon=30)
    policy = lm.UniformPolicy() if kind == "uniform" else lm.QMDP().plan(model).policy
    assert_same_episodes(model, policy, 1_000_000)
    logs = lm.simulate(model, policy, 1_000_000, rng=1)
    on_cpu, on_gpu = (lm.posterior(model, logs, device=device) for device in ("cpu", "cuda"))
    assert np.array_equal(on_gpu, on_cpu)
