from pathlib import Path

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.instances import get_instance, list_instances, make, register
from latentmdp.instances import registry as registry_module
from latentmdp.testing import ConformanceError, check_instance

NAMES = [instance.name for instance in list_instances()]


def test_the_registry_lists_every_family():
    assert set(NAMES) == {
        "random",
        "separated",
        "lower-bound",
        "deterministic",
        "wait-hub",
        "river-swim",
        "treatment",
        "visitor",
        "frozen-lake",
        "sparse",
        "rock-sample",
        "identification",
        "cue",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_instance_conforms(name):
    check_instance(name)


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_fixes_the_model_bit_for_bit(name):
    assert make(name, rng=3) == make(name, rng=np.random.default_rng(3))


@pytest.mark.parametrize("name", ["random", "separated", "deterministic", "rock-sample"])
def test_another_seed_is_another_model(name):
    assert make(name, rng=0) != make(name, rng=1)


@pytest.mark.parametrize("name", NAMES)
def test_an_entry_shows_its_name_summary_and_defaults(name):
    entry = get_instance(name)
    shown = str(entry)
    assert shown.startswith(f"{name}(")
    assert entry.summary in shown
    for argument, default in entry.arguments.items():
        assert f"{argument}={default!r}" in shown


@pytest.mark.parametrize("name", NAMES)
def test_the_horizon_is_an_argument_unless_the_construction_fixes_it(name):
    if name == "lower-bound":
        assert "horizon" not in get_instance(name).arguments
    else:
        assert make(name, rng=0, horizon=4).horizon == 4


def test_a_duration_is_given_to_any_builder_that_takes_a_horizon():
    assert make("rock-sample", rng=0, horizon=None).horizon is None
    assert make("rock-sample", rng=0, horizon=3, discount=1.0).discount == 1.0
    endless = make("identification", horizon=None, discount=0.9)
    assert (endless.horizon, endless.discount) == (None, 0.9)
    with pytest.raises(ValueError, match="total reward must be bounded"):
        make("rock-sample", horizon=None, discount=1.0)


def test_the_documentation_lists_every_instance_with_its_arguments():
    text = (Path(__file__).parents[2] / "docs" / "instances.md").read_text()
    for entry in list_instances():
        section = text.partition(f"### `{entry.name}`")[2].partition("###")[0]
        for argument, default in entry.arguments.items():
            assert f"`{argument}={default!r}`" in section, (entry.name, argument)


def test_make_is_the_public_name():
    model = lm.make("separated", contexts=7, states=15, actions=3, horizon=30, delta=0.5, rng=0)
    assert (model.n_contexts, model.n_states, model.n_actions, model.horizon) == (7, 15, 3, 30)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("river_swim", "'river-swim'"), ("seperated", "'separated'"), ("frozenlake", "'frozen-lake'")],
)
def test_an_unknown_name_suggests_close_ones(name, hint):
    with pytest.raises(ValueError, match=f"no instance '{name}' .did you mean .*{hint}"):
        make(name)


def test_a_name_like_nothing_lists_what_there_is():
    with pytest.raises(ValueError, match="no instance 'zzzz'; known: cue, deterministic"):
        make("zzzz")


def test_a_name_that_is_no_string():
    with pytest.raises(TypeError, match="must be a string, got int"):
        make(3)


def test_an_unknown_argument_suggests_close_ones():
    with pytest.raises(TypeError, match=r"'separated' takes no argument 'context' .*'contexts'"):
        make("separated", context=3)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("random", {"contexts": 0}, "contexts must be at least 1, got 0"),
        ("random", {"concentration": 0.0}, r"concentration must lie in \(0, inf\], got 0.0"),
        ("random", {"reward_density": 1.5}, r"reward_density must lie in \[0, 1\], got 1.5"),
        ("random", {"reward_low": 0.7, "reward_high": 0.2}, r"reward_high must lie in \[0.7, 1\]"),
        ("random", {"rewards": "mine"}, "rewards must be one of 'own', 'shared', got 'mine'"),
        ("random", {"start": 7}, r"initial state must lie in \[0, 7\), got 7"),
        ("separated", {"delta": 0.0}, r"delta must lie in \(0, 2\], got 0.0"),
        ("separated", {"delta": 2.0}, "delta must be below 2"),
        ("deterministic", {"start": 9}, r"start must lie in \[0, 5\), got 9"),
        ("deterministic", {"variation": -0.1}, r"variation must lie in \[0, 1\], got -0.1"),
        ("lower-bound", {"variant": "easy"}, "variant must be one of 'plain', 'amplified'"),
        ("lower-bound", {"depth": 2}, "depth must be 1 in the plain variant, got 2"),
        ("lower-bound", {"epsilon": 0.6}, r"epsilon must lie in \(0, 0.5\], got 0.6"),
        ("river-swim", {"backward": 0.9}, r"backward must lie in \[0, 0.72\], got 0.9"),
        ("frozen-lake", {"map_name": "5x5"}, "map_name must be one of '4x4', '8x8', got '5x5'"),
        ("wait-hub", {"horizon": 0}, "horizon must be at least 1, got 0"),
        ("identification", {"noise": 1.5}, r"noise must lie in \[0, 1\], got 1.5"),
        ("rock-sample", {"size": 2, "rocks": 5}, "rocks must be at most the number of cells, 4"),
        ("rock-sample", {"positions": [(0, 1)]}, "positions must be those of 4 rocks, got 1"),
        (
            "rock-sample",
            {"rocks": 2, "positions": [(0, 1), (0, 1)]},
            r"positions must be distinct, got \[\(0, 1\), \(0, 1\)\]",
        ),
        (
            "rock-sample",
            {"rocks": 2, "positions": [(0, 1), (4, 0)]},
            r"positions: \(4, 0\) is not on a grid of 4 x 4",
        ),
        ("rock-sample", {"start": (0, -1)}, r"start: \(0, -1\) is not on a grid of 4 x 4"),
        ("rock-sample", {"discount": 1.0}, "discount"),
    ],
)
def test_bad_values_name_the_argument(name, arguments, message):
    with pytest.raises(ValueError, match=message):
        make(name, rng=0, **arguments)


def test_bad_types_name_the_argument():
    with pytest.raises(TypeError, match="delta must be a number, got str"):
        make("separated", rng=0, delta="big")
    with pytest.raises(TypeError, match=r"start must be given as \(row, column\), in integers"):
        make("rock-sample", rng=0, start=3)
    with pytest.raises(TypeError, match="rng must be a non-negative integer seed"):
        make("river-swim", rng="seed")


@pytest.fixture
def scratch_registry(monkeypatch):
    monkeypatch.setattr(registry_module, "_REGISTRY", {})


@pytest.mark.usefixtures("scratch_registry")
class TestRegister:
    def test_adds_a_builder(self):
        @register("coin")
        def coin(*, bias: float = 0.7, horizon: int = 2) -> lm.LatentMDP:
            """Guess a biased coin; the bias is an argument, the horizon too."""
            return lm.LatentMDP(
                np.ones((2, 1, 2, 1)), [[[bias, 1 - bias]], [[1 - bias, bias]]], horizon=horizon
            )

        check_instance("coin")
        assert make("coin", bias=0.9).mean_rewards()[0, 0, 0] == 0.9
        with pytest.raises(ValueError, match="'coin' is already registered"):
            register("coin")(coin)

    def test_refuses_an_argument_without_default(self):
        def build(*, size: int) -> lm.LatentMDP:
            """No default."""
            raise NotImplementedError

        with pytest.raises(ValueError, match="'size' of instance 'x' has no default"):
            register("x")(build)

    def test_refuses_a_builder_without_docstring(self):
        def build() -> lm.LatentMDP:
            raise NotImplementedError

        with pytest.raises(ValueError, match="'x' has no docstring"):
            register("x")(build)

    def test_check_instance_lists_every_broken_rule(self):
        state = {"calls": 0}

        @register("bad")
        def bad(*, colour: int = 1) -> lm.LatentMDP:
            """Changes from call to call."""
            state["calls"] += 1
            return lm.LatentMDP(
                np.ones((2, 1, 1, 1)), np.full((2, 1, 1), 0.5), horizon=state["calls"]
            )

        with pytest.raises(ConformanceError) as failure:
            check_instance("bad")
        text = str(failure.value)
        assert "instance 'bad' does not conform" in text
        assert "same seed gave two different models" in text
        assert "argument 'colour' is not documented" in text
        assert "contexts 0 and 1 are the same MDP" in text
        assert "every policy is optimal" in text

    def test_check_instance_reports_a_builder_that_fails(self):
        @register("broken")
        def broken() -> lm.LatentMDP:
            """Fails."""
            raise RuntimeError("out of ideas")

        with pytest.raises(ConformanceError, match="raised RuntimeError: out of ideas"):
            check_instance("broken")
