"""POMDPs of others: those that are latent MDPs are read as such, the others are told why not."""

import itertools
import pickle
from contextlib import suppress

import numpy as np
import pytest
from solver_files import FactoredPomdp, FlatPomdp

import latentmdp as lm
from latentmdp import testing
from latentmdp.errors import FormatError
from latentmdp.planning.hsvi.lumping import lump

READERS = {".pomdp": (FlatPomdp, 1), ".pomdpx": (FactoredPomdp, 0)}


class Static:
    """A random POMDP whose states are (context, look) in any order; looks are observed.

    With `signal` a second, noisy observation says something about the context; with `shown` the
    first look is known.
    """

    def __init__(self, seed, M=2, V=3, A=2, signal=False, shown=True):
        rng = np.random.default_rng(seed)
        self.M, self.V, self.A, self.K = M, V, A, 2 if signal else 1
        X = M * V
        self.order = rng.permutation(X)  # state number of (m, v)
        self.T, self.O = np.zeros((A, X, X)), np.zeros((A, X, V * self.K))
        self.R = np.zeros((A, X))
        self.start = np.zeros(X)
        weights = rng.dirichlet(np.ones(M))
        first = np.eye(V)[0] if shown else rng.dirichlet(np.ones(V))
        for m in range(M):
            here = self.order[m * V : (m + 1) * V]
            self.T[np.ix_(range(A), here, here)] = rng.dirichlet(np.ones(V), (A, V))
            self.R[:, here] = rng.normal(size=(A, V)).round(3)
            self.start[here] = weights[m] * first
            for v in range(V):
                noise = rng.dirichlet(np.ones(self.K), A)
                self.O[:, here[v], v * self.K : (v + 1) * self.K] = noise

    def value(self, steps, belief=None):
        """The optimal discounted reward of the next steps, by recursion over observations."""
        belief = self.start if belief is None else belief
        if steps == 0 or belief.sum() == 0.0:
            return 0.0
        best = -np.inf
        for a in range(self.A):
            after = (belief @ self.T[a])[:, None] * self.O[a]
            later = sum(self.value(steps - 1, after[:, o]) for o in range(after.shape[1]))
            best = max(best, belief @ self.R[a] + 0.9 * later)
        return float(best)

    def head(self, values="reward"):
        X, Z = self.start.size, self.O.shape[2]
        return (
            f"# by hand\n\ndiscount: 0.9\nvalues: {values}\nstates: {X}\nactions: {self.A}\n"
            f"observations: {Z}\nstart: {' '.join(map(repr, self.start.tolist()))}\n"
        )

    def as_matrices(self):
        """T and O as matrices, costs instead of rewards, numbers over several lines."""
        text = self.head("cost")
        for a in range(self.A):
            text += f"T : {a}\n" + rows(self.T[a]) + f"\nO : {a}\n" + rows(self.O[a])
            for x in range(self.start.size):
                text += f"R: {a} : {x} : * : * {-float(self.R[a, x])!r}\n"
        return text

    def as_lines(self):
        """Single entries after wrong wildcards that they replace, rows, and rewards by row."""
        X, Z = self.start.size, self.O.shape[2]
        text = self.head() + "T: * : * uniform\nO: * uniform\nR: * : * : * : * 99\n"
        for a in range(self.A):
            for x in range(X):
                text += f"T: {a} : {x} " + " ".join(map(repr, self.T[a, x].tolist())) + "\n"
                text += "".join(f"O: {a}:{x}:{o} {float(self.O[a, x, o])!r}\n" for o in range(Z))
                if x % 2:
                    text += f"R: {a} : {x} : *\n" + " ".join([repr(float(self.R[a, x]))] * Z) + "\n"
                else:
                    text += f"R: {a} : {x}\n" + rows(np.full((X, Z), self.R[a, x]))
        return text


def rows(matrix):
    return "\n".join(" ".join(map(repr, map(float, row))) for row in matrix) + "\n"


def load(tmp_path, text, suffix=".pomdp", **arguments):
    path = tmp_path / f"theirs{suffix}"
    path.write_text(text)
    return lm.load(path, **arguments)


@pytest.mark.parametrize("signal", [False, True])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_flat_problems_are_found_out(tmp_path, seed, signal, shown):
    problem = Static(seed, M=2 + seed % 2, signal=signal, shown=shown)
    for text in (problem.as_matrices(), problem.as_lines()):
        model = load(tmp_path, text)
        assert model.n_contexts == problem.M
        assert (model.horizon, model.discount) == (None, 0.9)
        found = testing.optimal_value(model.replace(horizon=3))
        assert found == pytest.approx(problem.value(3), rel=1e-9)
    looks = problem.V * problem.K
    assert model.n_states <= looks + 1


def stripped(path):
    """The file without what our own comments say about the model."""
    text = path.read_text()
    path.write_text("".join(x for x in text.splitlines(True) if not x.startswith(("# ", "<!-- "))))


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("kind", [k for k in testing.small_models() if k != "unvisited rows"])
def test_what_we_export_reads_back_as_an_equal_problem(tmp_path, suffix, kind):
    model = testing.small_models()[kind]
    path = tmp_path / f"m{suffix}"
    lm.save(model, path)
    stripped(path)
    back = lm.load(path)
    assert back.horizon is None
    steps = model.horizon + 1
    assert testing.optimal_value(back.replace(horizon=steps)) == pytest.approx(
        testing.optimal_value(model), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize("suffix", READERS)
def test_endless_exports_read_back(tmp_path, suffix):
    model = testing.random_model(1, states=3).replace(horizon=None, discount=0.8)
    path = tmp_path / f"m{suffix}"
    lm.save(model, path)
    stripped(path)
    back = lm.load(path)
    delay = READERS[suffix][1]
    assert testing.optimal_value(back.replace(horizon=3 + delay)) == pytest.approx(
        testing.optimal_value(model.replace(horizon=3)), rel=1e-9
    )


FINCH = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!-- a comment -->
<pomdpx version="0.1" id="finch">
<Description>Two experts & a bird</Description>
<Discount>0.9</Discount>
<Variable>
<StateVar vnamePrev="bird_0" vnameCurr="bird_1" fullyObs="true">
<ValueEnum>low high</ValueEnum></StateVar>
<StateVar vnamePrev="model_0" vnameCurr="model_1" fullyObs="false">
<ValueEnum>M1 M2</ValueEnum></StateVar>
<ObsVar vname="sound"><NumValues>2</NumValues></ObsVar>
<ActionVar vname="do"><ValueEnum>fire fence</ValueEnum></ActionVar>
<RewardVar vname="worth"/><RewardVar vname="cost"/>
</Variable>
<InitialStateBelief>
<CondProb><Var>bird_0</Var><Parent>null</Parent><Parameter type = "TBL">
<Entry><Instance> - </Instance><ProbTable>1 0</ProbTable></Entry></Parameter></CondProb>
<CondProb><Var>model_0</Var><Parent>null</Parent><Parameter type = "TBL">
<Entry><Instance>-</Instance><ProbTable>uniform</ProbTable></Entry></Parameter></CondProb>
</InitialStateBelief>
<StateTransitionFunction>
<CondProb><Var>model_1</Var><Parent>model_0</Parent><Parameter>
<Entry><Instance>- -</Instance><ProbTable>identity</ProbTable></Entry></Parameter></CondProb>
<CondProb><Var>bird_1</Var><Parent>do model_0 bird_0</Parent><Parameter>
<Entry><Instance>* * - -</Instance><ProbTable>0.9 0.1 0.5 0.5</ProbTable></Entry>
<Entry><Instance>fire M1 - -</Instance><ProbTable>0.2 0.8 0.3 0.7</ProbTable></Entry>
<Entry><Instance>fence M2 low -</Instance><ProbTable>0.25 0.75</ProbTable></Entry>
</Parameter></CondProb>
</StateTransitionFunction>
<ObsFunction><CondProb><Var>sound</Var><Parent>do bird_1 model_1</Parent><Parameter>
<Entry><Instance>* * M1 -</Instance><ProbTable>SAY</ProbTable></Entry>
<Entry><Instance>* * M2 -</Instance><ProbTable>0.5 0.5</ProbTable></Entry>
</Parameter></CondProb></ObsFunction>
<RewardFunction>
<Func><Var>worth</Var><Parent>bird_1</Parent><Parameter>
<Entry><Instance>high</Instance><ValueTable>20</ValueTable></Entry></Parameter></Func>
<Func><Var>cost</Var><Parent>do</Parent><Parameter>
<Entry><Instance>-</Instance><ValueTable>-5 -1</ValueTable></Entry></Parameter></Func>
</RewardFunction>
</pomdpx>
"""
SILENT, TELLING = FINCH.replace("SAY", "0.5 0.5"), FINCH.replace("SAY", "0.9 0.1")


def test_hidden_variables_are_the_context(tmp_path):
    model = load(tmp_path, SILENT, ".pomdpx")
    assert model.context_names == ("M1", "M2")
    assert model.state_names == ("low", "high")
    assert model.action_names == ("fire", "fence")
    np.testing.assert_allclose(model.transitions[0, :, 0], [[0.2, 0.8], [0.3, 0.7]])
    np.testing.assert_allclose(model.transitions[1, :, 1], [[0.25, 0.75], [0.5, 0.5]])
    np.testing.assert_allclose(model.bonus[0, :, 0], [20 * 0.8 - 5, 20 * 0.7 - 5])
    np.testing.assert_array_equal(model.initial, [[1.0, 0.0]] * 2)
    assert model.reward_values.tolist() == [0.0]


def test_an_observation_that_tells_becomes_part_of_the_state(tmp_path):
    model = load(tmp_path, TELLING, ".pomdpx", horizon=3)
    assert model.horizon == 3
    assert set(model.state_names) == {"low", "low o0", "low o1", "high o0", "high o1"}
    names = list(model.state_names)
    row = model.transitions[0, names.index("low"), 0]
    assert row[names.index("high o0")] == pytest.approx(0.8 * 0.9)
    silent = load(tmp_path, SILENT, ".pomdpx", horizon=3)
    assert testing.optimal_value(model) > testing.optimal_value(silent)


def test_a_hidden_variable_that_moves_is_named(tmp_path):
    text = SILENT.replace("<ProbTable>identity</ProbTable>", "<ProbTable>1 0 0.1 0.9</ProbTable>")
    with pytest.raises(FormatError, match="the hidden variable 'model_0' moves"):
        load(tmp_path, text, ".pomdpx")


TIGER = """
discount: 0.95
values: reward
states: tiger-left tiger-right
actions: listen open-left open-right
observations: growl-left growl-right
start: uniform
T: listen
identity
T: open-left
uniform
T: open-right
uniform
O: listen
0.85 0.15
0.15 0.85
O: open-left
uniform
O: open-right
uniform
R: listen : * : * : * -1
R: open-left : tiger-left : * : * -100
R: open-left : tiger-right : * : * 10
R: open-right : tiger-left : * : * 10
R: open-right : tiger-right : * : * -100
"""


def test_a_tiger_that_is_drawn_anew_ends_the_episode(tmp_path):
    with pytest.warns(UserWarning, match="after open-left, open-right the hidden state is drawn"):
        model = load(tmp_path, TIGER)
    assert model.context_names == ("tiger-left", "tiger-right")
    assert [model.state_names[s] for s in np.flatnonzero(model.terminal)] == ["end"]
    # Listen once, and open the other door: what is heard is right with probability .85.
    listened = -1.0 + 0.95 * (0.85 * 10.0 - 0.15 * 100.0)
    assert testing.optimal_value(model.replace(horizon=2)) == pytest.approx(max(-1.95, listened))
    # Twice the same growl: the posterior is .85^2 / (.85^2 + .15^2); else listen for ever.
    right, wrong = 0.85**2, 0.15**2
    opened = -1.95 + 0.95**2 * (10.0 * right - 100.0 * wrong - 2 * 0.85 * 0.15)
    assert testing.optimal_value(model.replace(horizon=3)) == pytest.approx(opened)


def test_a_tiger_that_moves_is_told_by_the_shortest_sequence(tmp_path):
    moves = TIGER.replace("T: open-left\nuniform", "T: open-left\n0.9 0.1\n0.1 0.9")
    message = (
        "from 'tiger-left', after open-left and 'growl-left', the state may be 'tiger-left' or "
        "'tiger-right'"
    )
    with (
        pytest.raises(FormatError, match=message),
        pytest.warns(UserWarning, match="after open-right"),
    ):
        load(tmp_path, moves)


def test_what_leads_to_doubt_is_told_step_by_step(tmp_path):
    text = (
        "discount: 0.9\nvalues: reward\nstates: a b c d\nactions: go\nobservations: o p\n"
        "start: a\nT: go : a : b 1\nT: go : b : c 1\nT: go : c : c .5\nT: go : c : d .5\n"
        "T: go : d : d 1\nO: go : * : o 1\nO: go : b : o 0\nO: go : b : p 1\n"
    )
    told = "from 'a', after go and 'p'; go and 'o'; go and 'o', the state may be 'c' or 'd'"
    with pytest.raises(FormatError, match=told):
        load(tmp_path, text)


@pytest.mark.parametrize("shown", [False, True])
def test_rows_that_nearly_sum_to_one_are_made_to(tmp_path, shown):
    text = "discount: 0.9\nvalues: reward\nstates: a b c\nactions: x\nstart: a\n"
    text += "T: x\n0.333 0.333 0.333\n1 0 0\n1 0 0\nR: x : b : * : * 1\n"
    if shown:
        text = text.replace("0.333 0.333 0.333", "0.33 0.33 0.31")
        with pytest.raises(FormatError, match=r"'a' sums to 0\.97, must sum to 1"):
            load(tmp_path, text)
        return
    with pytest.warns(UserWarning, match=r"'a' sums to 0\.999: it was made to sum to 1"):
        model = load(tmp_path, text)
    np.testing.assert_allclose(model.transitions[0, 0, 0], 1 / 3)


def test_a_tiger_that_stays_is_a_latent_mdp(tmp_path):
    stays = TIGER.replace("T: open-left\nuniform", "T: open-left\nidentity")
    model = load(tmp_path, stays.replace("T: open-right\nuniform", "T: open-right\nidentity"))
    assert model.n_contexts == 2
    assert model.action_names == ("listen", "open-left", "open-right")
    # The two growls, and how it begins.
    assert model.n_states == 3
    # Listening once: the right door has 0.85 10 - 0.15 100 < -1, so two steps earn -1.95.
    assert testing.optimal_value(model.replace(horizon=2)) == pytest.approx(-1.0 - 0.95)


class Determined:
    """A random POMDP whose hidden state moves, but follows from what is seen.

    Every state has a colour and noisy observations of this colour only; two successors of a state
    never have the same colour. What is observed tells something about the state at every step.
    """

    def __init__(self, seed, X=6, A=2, colours=3, starts=3):
        rng = np.random.default_rng(seed)
        self.A, self.Z = A, 2 * colours
        colour = np.arange(X) % colours
        self.T, self.O = np.zeros((A, X, X)), np.zeros((A, X, self.Z))
        self.R = rng.normal(size=(A, X)).round(3)
        for a in range(A):
            for x in range(X):
                reached = rng.choice(colours, rng.integers(1, colours + 1), replace=False)
                states = [rng.choice(np.flatnonzero(colour == c)) for c in reached]
                self.T[a, x, states] = rng.dirichlet(np.ones(len(states)))
                self.O[a, x, 2 * colour[x] : 2 * colour[x] + 2] = rng.dirichlet(np.ones(2))
        self.start = np.zeros(X)
        self.start[rng.choice(X, starts, replace=False)] = rng.dirichlet(np.ones(starts))

    def text(self):
        X = self.start.size
        text = f"discount: 0.9\nvalues: reward\nstates: {X}\nactions: {self.A}\n"
        text += "observations: " + " ".join(f"o{z}" for z in range(self.Z)) + "\n"
        text += f"start: {' '.join(map(repr, self.start.tolist()))}\n"
        for a in range(self.A):
            text += f"T : {a}\n" + rows(self.T[a]) + f"O : {a}\n" + rows(self.O[a])
            text += "".join(f"R: {a} : {x} : * : * {float(self.R[a, x])!r}\n" for x in range(X))
        return text

    def value(self, steps, belief=None):
        return Static.value(self, steps, belief)

    def blind(self, actions):
        """What a sequence of actions earns."""
        earned, joint = 0.0, self.start
        for t, a in enumerate(actions):
            earned += 0.9**t * (joint @ self.R[a])
            joint = joint @ self.T[a]
        return earned


def blind(model, actions):
    """What a sequence of actions earns in a latent MDP whose rewards are not seen."""
    joint, earned = model.weights[:, None] * model.initial, 0.0
    for t, a in enumerate(actions):
        earned += 0.9**t * (joint * model.bonus[:, :, a]).sum()
        joint = np.einsum("ms,msn->mn", joint, model.transitions[:, :, a])
    return earned


@pytest.mark.parametrize("seed", range(15))
def test_hidden_states_that_are_determined_become_nodes(tmp_path, seed):
    """Against enumeration of histories: whatever is paid, every way to act earns the same."""
    problem = Determined(seed, starts=2 + seed % 3)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        problem.R = rng.normal(size=problem.R.shape).round(3)
        model = load(tmp_path, problem.text())
        best = testing.optimal_value(model.replace(horizon=4))
        assert best == pytest.approx(problem.value(4), rel=1e-9, abs=1e-12)
        for actions in itertools.product(range(problem.A), repeat=3):
            assert blind(model, actions) == pytest.approx(problem.blind(actions), abs=1e-12)


def rover(rocks=3):
    """A rover on a line of `rocks` cells with a rock in each: a POMDPX file by hand.

    To sample a good rock pays 10 and makes it bad; to check reads the rock here without error, the
    next one with noise. The last cell to the east is the end.
    """
    cells = [f"c{i}" for i in range(rocks)] + ["out"]
    names = [f"rock{i}" for i in range(rocks)]

    def table(variable, parents, entries, kind="CondProb", word="ProbTable"):
        body = "".join(
            f"<Entry><Instance>{where}</Instance><{word}>{what}</{word}></Entry>\n"
            for where, what in entries
        )
        return (
            f"<{kind}><Var>{variable}</Var><Parent>{parents}</Parent><Parameter>\n{body}"
            f"</Parameter></{kind}>\n"
        )

    variables = "".join(
        f'<StateVar vnamePrev="{name}_0" vnameCurr="{name}_1" fullyObs="{seen}">'
        f"<ValueEnum>{values}</ValueEnum></StateVar>\n"
        for name, seen, values in [
            ("rover", "true", " ".join(cells)),
            *((name, "false", "bad good") for name in names),
        ]
    )
    variables += '<ObsVar vname="reading"><ValueEnum>fine poor</ValueEnum></ObsVar>\n'
    variables += '<ActionVar vname="do"><ValueEnum>east sample here next</ValueEnum></ActionVar>\n'
    variables += '<RewardVar vname="pay"/>\n'
    first = table("rover_0", "null", [("c0", "1")])
    first += "".join(table(f"{name}_0", "null", [("-", "uniform")]) for name in names)
    moves = [("* - -", " ".join(repr(float(x)) for x in np.eye(rocks + 1).ravel()))]
    moves += [
        (f"east {c} -", " ".join("1" if n == d else "0" for n in cells))
        for c, d in itertools.pairwise(cells)
    ]
    steps = table("rover_1", "do rover_0", moves)
    for i, name in enumerate(names):
        entries = [("* * - -", "identity"), (f"sample c{i} * -", "1 0")]
        steps += table(f"{name}_1", f"do rover_0 {name}_0", entries)
    every = " ".join("*" * rocks)
    readings = [(f"* * {every} -", "0.5 0.5")]
    for i in range(rocks):
        one = " ".join("-" if j == i else "*" for j in range(rocks))
        readings.append((f"here c{i} {one} -", "0 1 1 0"))
        two = " ".join("-" if j == (i + 1) % rocks else "*" for j in range(rocks))
        readings.append((f"next c{i} {two} -", "0.2 0.8 0.9 0.1"))
    sights = table("reading", f"do rover_1 {' '.join(f'{n}_1' for n in names)}", readings)
    pays = [
        (f"sample c{i} {' '.join(w if j == i else '*' for j in range(rocks))}", r)
        for i in range(rocks)
        for w, r in (("bad", "-10"), ("good", "10"))
    ]
    parents = f"do rover_0 {' '.join(f'{n}_0' for n in names)}"
    pays = table("pay", parents, [*pays, (f"east c{rocks - 1} {every}", "3")], "Func", "ValueTable")
    return (
        f"<pomdpx><Discount>0.9</Discount><Variable>{variables}</Variable><InitialStateBelief>"
        f"{first}</InitialStateBelief><StateTransitionFunction>{steps}</StateTransitionFunction>"
        f"<ObsFunction>{sights}</ObsFunction><RewardFunction>{pays}</RewardFunction></pomdpx>"
    )  # fmt: skip


def rover_value(rocks, steps, cell=0, belief=None):
    """The optimal reward of the rover, by recursion over beliefs on sets of good rocks."""
    belief = np.full(2**rocks, 0.5**rocks) if belief is None else belief
    if steps == 0 or cell == rocks or belief.sum() == 0.0:
        return 0.0
    sets = np.arange(2**rocks)

    def good(i):
        return (sets >> i & 1).astype(float)

    east = 3.0 * belief.sum() * (cell == rocks - 1)
    east += 0.9 * rover_value(rocks, steps - 1, cell + 1, belief)
    sampled = np.bincount(sets & ~(1 << cell), belief, sets.size)
    sample = 10.0 * belief @ (2.0 * good(cell) - 1.0)
    sample += 0.9 * rover_value(rocks, steps - 1, cell, sampled)
    options = [east, sample]
    after = (cell + 1) % rocks
    for fine in (good(cell), 0.2 + 0.7 * good(after)):
        parts = (belief * fine, belief * (1.0 - fine))
        options.append(0.9 * sum(rover_value(rocks, steps - 1, cell, part) for part in parts))
    return float(max(options))


def test_a_rock_that_was_sampled_is_known(tmp_path):
    model = load(tmp_path, rover(), ".pomdpx")
    assert model.n_contexts == 8
    assert model.context_names[3] == "bad good good"
    # Cells times sets of sampled rocks among those passed, a reading with each, and the end.
    names = model.state_names
    assert "c1 rock0_0=bad fine" in names
    assert [names[s] for s in np.flatnonzero(model.terminal)] == ["out"]
    for steps in (1, 2, 3, 4):
        best = testing.optimal_value(model.replace(horizon=steps))
        assert best == pytest.approx(rover_value(3, steps), rel=1e-12)
    # What was sampled is as if it had been bad, so a search sees three cells and the end; in the
    # last cell the rock of the second, which is out of reach, does not matter.
    assert lump(model).problem.width.tolist() == [8, 8, 4, 1]


def test_equal_rows_are_kept_once(tmp_path):
    """What a factored problem pays and what follows, kept once, is the same as dense arrays say."""
    model = load(tmp_path, rover(), ".pomdpx")
    table, rewards = model.outcomes, model.row_rewards()
    for distinct, pattern in ((table.distinct, table.pattern), rewards):
        assert np.unique(distinct, axis=0).shape == distinct.shape
        assert len(distinct) == pattern.max() + 1 < 40 < pattern.size
    dense = model.replace(bonus=model.bonus)
    assert dense == model
    assert dense.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(model.planning_rewards(), dense.planning_rewards())
    np.testing.assert_array_equal(dense.row_rewards().dense(), model.bonus.reshape(8, -1))
    again = pickle.loads(pickle.dumps(model))
    assert again == model
    assert repr(again) == repr(dense)


def test_a_construction_that_is_too_large_is_refused(tmp_path):
    with pytest.raises(FormatError, match="more than 10 states of 8 contexts: load"):
        load(tmp_path, rover(), ".pomdpx", max_states=10)


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("start: b", [0.0, 1.0, 0.0]),
        ("start: 2", [0.0, 0.0, 1.0]),
        ("start include: a c", [0.5, 0.0, 0.5]),
        ("start exclude: a", [0.0, 0.5, 0.5]),
        ("start: 0.25 0.25 0.5", [0.25, 0.25, 0.5]),
        ("", [1 / 3] * 3),
    ],
)
def test_starts(tmp_path, start, first):
    """States that stay for ever and pay 1, 10 or 100: the value tells where it begins."""
    text = f"discount: 0.5\nvalues: reward\nstates: a b c\nactions: x\nobservations: o\n{start}\n"
    text += "T: x identity\nO: x uniform\nR: x:a:*:* 1\nR: x:b:*:* 10\nR: x:c:*:* 100\n"
    model = load(tmp_path, text, horizon=1)
    assert testing.optimal_value(model) == pytest.approx(np.dot(first, [1, 10, 100]))


def test_an_mdp_is_a_latent_mdp_with_one_context(tmp_path):
    text = "discount: 0.9\nvalues: reward\nstates: a b\nactions: x y\nstart: a\n"
    text += "T: x identity\nT: y uniform\nR: y : b : * : * 1\n"
    model = load(tmp_path, text)
    assert (model.n_contexts, model.n_states) == (1, 2)
    assert model.state_names == ("a", "b")


def test_discount_one_needs_an_end(tmp_path):
    text = Static(0).as_lines().replace("discount: 0.9", "discount: 1")
    with pytest.raises(FormatError, match=r"load\(path, horizon=\.\.\.\)"):
        load(tmp_path, text)
    assert load(tmp_path, text, horizon=4).discount == 1.0


def test_an_end_that_contexts_share_is_terminal(tmp_path):
    text = (
        "discount: 0.9\nvalues: reward\nstates: a1 a2 end\nactions: x y\nobservations: a end\n"
        "start: 0.3 0.7 0\nT: x : a1 : end 1\nT: x : a2 : a2 1\nT: y : a1 : a1 1\n"
        "T: y : a2 : end 1\nT: * : end : end 1\nO: * : a1 : a 1\nO: * : a2 : a 1\n"
        "O: * : end : end 1\nR: x : a1 : end : * 5\nR: y : a2 : end : * 7\n"
    )
    model = load(tmp_path, text)
    assert model.n_contexts == 2
    assert model.state_names == ("a", "end")
    assert model.terminal.tolist() == [False, True]
    best = max(0.3 * 5 + 0.9 * 0.7 * 7, 0.7 * 7 + 0.9 * 0.3 * 5)
    assert testing.optimal_value(model.replace(horizon=4)) == pytest.approx(best)


HEAD = "discount: 0.9\nvalues: reward\nstates: a b\nactions: x\nobservations: o p\n"
BAD = {
    "unknown name": (HEAD + "T: x : q : a 1\n", "'q' is none of the states"),
    "unknown action": (HEAD + "T: z identity\n", "'z' is none of the actions"),
    "no number": (HEAD + "T: x : a : b one\n", "'one' is no number"),
    "NaN": (HEAD + "T: x : a : b nan\n", "'nan' is not finite"),
    "negative": (HEAD + "T: x : a : b -1\n", r"T: x : a : b: probabilities lie in \[0, 1\]"),
    "a short row": (HEAD + "T: x : a 1\n", "T: x : a must have 2 numbers, got 1"),
    "a short matrix": (HEAD + "T: x\n1 0 0\n", "must have 4 numbers, got 3"),
    "a sum": (HEAD + "T: x : a : a 0.5\nT: x: b : b 1\nO: x uniform\n", "'a' sums to 0.5"),
    "too many parts": (HEAD + "T: x : a : a : a 1\n", "too many parts"),
    "no discount": ("values: reward\nstates: 2\nactions: 1\n", "no discount"),
    "no states": ("discount: 0.9\n", "declares no states"),
    "values": ("discount: 0.9\nvalues: worth\n", "values must be reward or cost"),
    "too many states": ("discount: 0.9\nstates: 99999999999\n", "is not between 1 and 1,000,000"),
    "fewer states than none": ("discount: 0.9\nstates: -5\n", "is not between 1 and 1,000,000"),
    "too many entries": (
        "discount: .9\nstates: 900000\nactions: 90000\nobservations: 2\nT: * uniform\n",
        "T: has more than 16,777,216 entries",
    ),
    "twice": ("discount: 0.9\nstates: a a\n", "names 'a' twice"),
    "before": ("discount: 0.9\nT: a identity\nstates: 2\n", "before they are declared"),
    "nothing follows": (HEAD + "T: x : a : b 1\nO: x uniform\n", "nothing follows|no action"),
    "no observation": (HEAD + "T: x identity\nO: x : a : o 1\n", "'b' have no observation"),
    "no start": (HEAD + "start exclude: a b\n", "leaves no state"),
    "prose": ("Dear reader,\n", "does not begin with a statement"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_flat_files_are_told_why(tmp_path, kind):
    text, message = BAD[kind]
    with pytest.raises(FormatError, match=message):
        load(tmp_path, text)


BAD_XML = {
    "entities": ("<Discount>", "<!DOCTYPE x [<!ENTITY a 'b'>]><Discount>", "refused"),
    "broken": ("</Discount>", "", "broken"),
    "a sum": ("0.25 0.75", "0.25 0.5", "what follows 'fence low M2' sums to 0.75, must sum to 1"),
    "a short table": ("0.25 0.75", "0.25", "must have 2 numbers, got 1"),
    "unknown value": ("fence M2", "fence M9", "'M9' is no value of 'model_0'"),
    "unknown parent": ("do model_0 bird_0", "do mode_0 bird_0", "unknown parent 'mode_0'"),
    "a diagram": ('type = "TBL"', 'type = "DD"', "decision diagram"),
    "negative": ("0.25 0.75", "-0.25 1.25", "probabilities lie"),
    "no number": ("0.25 0.75", "0.25 x", "'x' is no number"),
    "no table": ("<Var>bird_1</Var>", "<Var>bird_0</Var>", "no distribution of 'bird_1'"),
    "huge": ("<NumValues>2<", "<NumValues>99999999<", "must be a number below a million"),
    "discount": ("<Discount>0.9<", "<Discount>9<", r"must lie in \(0, 1\]"),
    "undeclared": ("<Var>bird_1</Var>", "<Var>bard_1</Var>", "'bard_1', which is not declared"),
}


@pytest.mark.parametrize("kind", BAD_XML)
def test_bad_factored_files_are_told_why(tmp_path, kind):
    old, new, message = BAD_XML[kind]
    assert old in SILENT
    with pytest.raises(FormatError, match=message):
        load(tmp_path, SILENT.replace(old, new), ".pomdpx")


@pytest.mark.parametrize("suffix", READERS)
@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_never_crash(tmp_path, suffix, seed):
    rng = np.random.default_rng(seed)
    text = SILENT if suffix == ".pomdpx" else Static(seed, V=2).as_lines()
    data = bytearray(text.encode())
    for _ in range(rng.integers(1, 6)):
        place = int(rng.integers(len(data)))
        kind = rng.integers(3)
        if kind == 0:
            data[place] = int(rng.integers(256))
        elif kind == 1:
            del data[place : place + int(rng.integers(1, 30))]
        else:
            data[place:place] = data[place : place + int(rng.integers(1, 60))]
    path = tmp_path / f"damaged{suffix}"
    path.write_bytes(bytes(data))
    with suppress(FormatError):
        assert isinstance(lm.load(path), lm.LatentMDP)


ENVIRONMENTS = """2, [waiting, gone]
2, [hot, cold]
3, [feel, left, right]
2, [warm, chill]

4, [p, q, left, right]
[0.8, 0.1, 10, -5]
[0.3, 0.4, -5, 4]

# Transition function (s,a,s -> p)
0,0,0 -> 1
0,1,0 -> q
0,1,1 -> 1-q
0,2,1 -> 1
1,_,1 -> 1

# Observation function (a,s,o -> p)
0,0,0 -> p
0,0,1 -> 1-p
1,0,0 -> 1
2,0,0 -> 1
_,1,1 -> 1

# Reward function (s,a -> r)
0,0 -> -1
0,1 -> left
0,2 -> right

# Initial beliefs (s -> p)
0 -> 1
"""


def test_several_environments_in_one_text(tmp_path):
    """Against the recursion over what can be felt; q is seen too, as one goes or does not."""

    def value(belief, steps):
        if steps == 0:
            return 0.0
        p, q = np.array([0.8, 0.3]), np.array([0.1, 0.4])
        felt = value(belief * p, steps - 1) + value(belief * (1 - p), steps - 1) - belief.sum()
        left = belief @ [10, -5] + value(belief * q, steps - 1)
        return max(felt, left, belief @ [-5, 4])

    model = load(tmp_path, ENVIRONMENTS, ".txt", horizon=4)
    assert model.context_names == ("hot waiting", "cold waiting")
    assert (model.action_names, model.discount) == (("feel", "left", "right"), 1.0)
    assert testing.optimal_value(model) == pytest.approx(value(np.array([0.5, 0.5]), 4), rel=1e-9)
    tuples = ENVIRONMENTS.replace("beliefs (s -> p)\n0 -> 1", "tuples (n,s)\n1,0\n0,0")
    assert load(tmp_path, tuples, ".txt", horizon=4) == model
    with pytest.warns(UserWarning, match=r"discount of 0\.95"):
        assert load(tmp_path, ENVIRONMENTS, ".txt").duration.discount == 0.95


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0,0,0 -> p", "0,0,0 -> r", "'r' is no number"),
        ("0,2,1 -> 1\n", "0,2,1 -> .7\n", "sums to 0.7"),
        ("0,2 -> right", "0,3 -> right", "'3' in '0,3' must be below 3"),
        ("0,2 -> right", "0 -> right", "'0' must be 2 numbers"),
        ("[0.3, 0.4, -5, 4]\n", "", "each of 2 environments must have 4 parameters"),
        ("3, [feel, left", "4, [feel, left", "must be a number of distinct names"),
        ("0,1,1 -> 1-q\n", "0,1,1 -> .5\n0,1,0 -> .5\n1,0,0 -> 1\n", "sums to"),
        ("_,1,1 -> 1", "_,1,0 -> 1", "moves"),
        ("0 -> 1\n", "0 -> .5\n", "start sums to 0.5"),
    ],
)
def test_what_is_wrong_with_environments(tmp_path, old, new, message):
    assert old in ENVIRONMENTS
    with pytest.raises(FormatError, match=message):
        load(tmp_path, ENVIRONMENTS.replace(old, new), ".txt", horizon=4)
