"""Models from long tables: any frame, names, gaps, and errors that say where."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from support import models, random_model

import latentmdp as lm
from latentmdp.errors import ModelError
from latentmdp.outcomes import distinct_amounts


def rows():
    """Two contexts; `open` leads to the end, `wait` is not allowed in `far`."""
    found = []
    for context, luck in (("good", 0.9), ("bad", 0.2)):
        found += [
            (context, "near", "open", "end", luck, 10.0),
            (context, "near", "open", "far", 1.0 - luck, -1.0),
            (context, "near", "wait", "near", 1.0, 0.0),
            (context, "far", "open", "near", 1.0, -2.0),
        ]
    return found


NAMES = ("context", "state", "action", "next_state", "probability", "reward")


def table(changed=(), **columns):
    """The rows as columns; `changed` puts values at (column, row)."""
    found = {name: [row[i] for row in rows()] for i, name in enumerate(NAMES)}
    for name, row, value in changed:
        found[name][row] = value
    return {**found, **columns}


def make(given=None, **arguments):
    return lm.LatentMDP.from_table(
        table() if given is None else given, **{"horizon": 5, **arguments}
    )


def test_a_table_says_what_a_model_is():
    model = make()
    assert model.context_names == ("good", "bad")  # as the table lists them
    assert model.state_names == ("end", "far", "near")
    assert model.action_names == ("open", "wait")
    assert model.terminal.tolist() == [True, False, False]
    assert model.allowed.tolist() == [[False, False], [True, False], [True, True]]
    assert model.reward_values.tolist() == [-2.0, -1.0, 0.0, 10.0]
    assert model.reward_model == "transition"
    np.testing.assert_allclose(model.mean_rewards()[:, 2, 0], [0.9 * 10 - 0.1, 0.2 * 10 - 0.8])
    np.testing.assert_allclose(model.transitions[:, 2, 0], [[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    assert pickle.loads(pickle.dumps(model)) == model


def test_frames_of_any_library_say_the_same(tmp_path):
    columns, model = table(), make()
    frame = pd.DataFrame(columns)
    frame.to_csv(tmp_path / "t.csv", index=False)
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    forms = [
        frame,
        frame.astype({"state": "category", "context": "string"}),
        pl.DataFrame(columns),
        pl.DataFrame(columns).with_columns(pl.col("state").cast(pl.Categorical)),
        pl.DataFrame(columns).lazy(),
        pa.table(columns),
        pa.RecordBatch.from_pydict(columns),
        frame.to_dict("records"),
        frame.to_records(),
        # Contexts are numbered as they are listed; all else may stand in any order.
        frame.sample(frac=1.0, random_state=0).sort_values("context", ascending=False),
        tmp_path / "t.csv",
        str(tmp_path / "t.parquet"),
    ]
    for form in forms:
        assert make(form) == model, type(form)


def test_columns_are_renamed_by_both_ways():
    given = {name.upper(): column for name, column in table().items()}
    assert make(given, columns={name: name.upper() for name in NAMES}) == make()
    assert make(given, **{name: name.upper() for name in NAMES}) == make()
    with pytest.raises(ModelError, match="columns names 'model', which is none of"):
        make(columns={"model": "context"})


@given(models())
def test_a_model_comes_back_from_its_own_table(model):
    model = model.replace(context_names=None)
    others = {name: getattr(model, name) for name in ("initial", "weights", "horizon", "discount")}
    others |= {"bonus": model.bonus, "initial_bonus": model.initial_bonus}
    back = lm.LatentMDP.from_table(model.to_table(), **others)
    used = np.unique(model.outcomes.reward)
    np.testing.assert_array_equal(back.reward_values, np.sort(model.reward_values[used]))
    np.testing.assert_allclose(back.transitions, model.transitions, atol=1e-14)
    np.testing.assert_allclose(back.mean_rewards(), model.mean_rewards(), atol=1e-12)
    np.testing.assert_array_equal(back.initial, model.initial)


def test_integers_stay_numbers_or_become_names():
    assert make(table(state=[0, 0, 0, 1] * 2, next_state=[2, 1, 0, 0] * 2)).state_names is None
    model = make(table(state=[0, 0, 0, 7] * 2, next_state=[30, 7, 0, 0] * 2))
    assert model.state_names == ("0", "7", "30")
    whole = make(table(context=[0.0] * 4 + [1.0] * 4))
    assert whole.context_names is None
    mixed = make(table(state=[0, 0, 0, 1] * 2, next_state=["end", 1, 0, 0] * 2))
    assert mixed.state_names == ("0", "1", "end")


def test_names_come_in_natural_order():
    states = [f"bed{i}" for i in (10, 2, 1)]
    model = lm.LatentMDP.from_table(
        {"state": states, "action": ["go"] * 3, "next_state": states, "probability": [1.0] * 3}
        | {"reward": [1, 2, 3]},
        horizon=1,
    )
    assert model.state_names == ("bed1", "bed2", "bed10")
    assert model.n_contexts == 1


def test_rows_with_equal_keys_add_up():
    given = table()
    doubled = {name: column * 2 for name, column in given.items()}
    doubled["probability"] = [p / 2 for p in doubled["probability"]]
    assert make(doubled) == make()


def test_amounts_that_are_not_observed():
    seen, unseen = make(), make(observed=False)
    assert unseen.reward_values.tolist() == [0.0]
    np.testing.assert_allclose(unseen.bonus, seen.mean_rewards())
    np.testing.assert_allclose(unseen.planning_rewards(), seen.planning_rewards())
    more = make(observed=False, bonus=np.ones((2, 3, 2)))
    np.testing.assert_allclose(more.bonus[:, more.allowed], unseen.bonus[:, more.allowed] + 1.0)


def test_the_same_as_from_amounts():
    rng = np.random.default_rng(0)
    M, S, A = 2, 3, 2
    T, amounts = rng.dirichlet(np.ones(S), (M, S, A)), rng.integers(-3, 4, (M, S, A, S))
    m, s, a, n = np.indices(T.shape).reshape(4, -1)
    given = {"context": m, "state": s, "action": a, "next_state": n}
    given |= {"probability": T.ravel(), "reward": amounts.ravel()}
    for observed in (True, False):
        one = lm.LatentMDP.from_table(given, horizon=4, observed=observed)
        two = lm.LatentMDP.from_amounts(T, amounts, horizon=4, observed=observed)
        np.testing.assert_allclose(one.packed(), two.packed(), atol=1e-15)
        np.testing.assert_allclose(one.planning_rewards(), two.planning_rewards(), atol=1e-12)


def test_probabilities_by_name():
    model = make(initial={"near": 0.25, "far": 0.75}, weights={"good": 0.9, "bad": 0.1})
    np.testing.assert_array_equal(model.initial, [[0.0, 0.75, 0.25]] * 2)
    np.testing.assert_array_equal(model.weights, [0.9, 0.1])
    assert make(initial="near").initial[0].tolist() == [0.0, 0.0, 1.0]
    numbered = table(state=[0, 0, 0, 1] * 2, next_state=[2, 1, 0, 0] * 2)
    assert make(numbered, initial={1: 1.0}).initial[0].tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(ModelError, match="initial names the state 'nera', which is none of"):
        make(initial={"nera": 1.0})
    with pytest.raises(ModelError, match=r"weights: sums to 0\.5"):
        make(weights={"good": 0.5})


def test_a_table_without_rewards_pays_nothing():
    given = table()
    del given["reward"]
    with pytest.warns(UserWarning, match="no column 'reward': every reward is 0"):
        model = make(given)
    assert model.reward_values.tolist() == [0.0]
    with pytest.raises(ModelError, match=r"no column 'cost' \(reward\)"):
        make(given, reward="cost")


def test_rounding_is_no_information():
    values, index = distinct_amounts(np.array([0.3, 0.1 + 0.2, 1e9, 0.0, 1e-18, -5.0]))
    assert values.size == 4
    assert index[0] == index[1]
    assert index[3] == index[4]
    given = table([("reward", 3, 0.1 + 0.2), ("reward", 7, 0.3)])
    assert make(given).n_rewards == 4


MISTAKES = {
    "no such column": ({"state": None}, "no column 'state'"),
    "no rows": ({name: [] for name in NAMES}, "no rows"),
    "a short column": ({"action": ["open"]}, "column 'action' has 1 rows"),
    "a missing cell": ([("state", 2, None)], "column 'state' is empty or NaN in row 2"),
    "an empty name": ([("action", 3, "")], "column 'action' is empty or NaN in row 3"),
    "NaN": ([("probability", 1, float("nan"))], "'probability' is empty or NaN in row 1"),
    "an infinite reward": ([("reward", 5, np.inf)], "'reward' is inf in row 5: must be finite"),
    "a word": ([("probability", 4, "most")], "'probability' is 'most' in row 4: must be a number"),
    "a word that counts": ([("reward", 4, "1")], "'reward' is '1' in row 4: must be a number"),
    "negative": ([("probability", 0, -0.1)], "'probability' is -0.1 in row 0: probabilities lie"),
    "more than one": ([("probability", 6, 1.5)], "'probability' is 1.5 in row 6"),
    "a sum": (
        [("probability", 0, 0.8)],
        "context 'good', state 'near', action 'open' sum to 0.9, off by -0.1.*1 of 6 rows",
    ),
    "a pair of one context": (
        [("action", 7, "wait")],
        "action 'open' of state 'far' is listed for context 'good', but not for context 'bad'",
    ),
    "two dimensions": ({"reward": np.zeros((8, 2))}, "column 'reward' must be one-dimensional"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    change, message = MISTAKES[mistake]
    given = table(change) if isinstance(change, list) else {**table(), **change}
    given = {name: column for name, column in given.items() if column is not None}
    with pytest.raises(ModelError, match=message):
        make(given)


def test_mistakes_of_another_kind():
    with pytest.raises(ModelError, match="column 'reward' is missing in row 1"):
        make([dict(zip(NAMES, rows()[0])), dict(zip(NAMES[:-1], rows()[1]))])
    with pytest.raises(TypeError, match="row 1 of the table must be a mapping"):
        make([dict(zip(NAMES, rows()[0])), 3])
    with pytest.raises(TypeError, match="a table is a frame"):
        make(3)
    with pytest.raises(TypeError, match="from_table takes no state_names"):
        make(state_names=["a", "b", "c"])
    with pytest.raises(TypeError, match="unknown argument 'horizont'"):
        make(horizont=3)
    with pytest.raises(ModelError, match=r"is read from \.csv or \.parquet, not from '\.xlsx'"):
        make("models.xlsx")
    with pytest.raises(ModelError, match="discount below 1"):
        make(horizon=None)
    assert random_model().to_table()["state"].dtype == np.int64


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_columns_are_separated_as_the_header_shows(separator, tmp_path):
    head = ("context", "state", "action", "next_state", "probability", "reward")
    rows = [("A", "very ill", "give drug", "well, again", "1", "-2.5")]
    cells = [head, *rows]
    lines = (separator.join(f'"{c}"' if separator in c else c for c in row) for row in cells)
    (tmp_path / "m.csv").write_text("\n".join(lines))
    model = lm.LatentMDP.from_table(tmp_path / "m.csv", horizon=3)
    assert model.state_names == ("very ill", "well, again")
    assert model.reward_values.tolist() == [-2.5]
