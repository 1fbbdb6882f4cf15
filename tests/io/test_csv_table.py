"""Models as .csv tables: what is saved comes back, what is foreign is read, the rest is refused."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from support import models, random_model

import latentmdp as lm
from latentmdp.errors import FormatError

FOREIGN = """idstatefrom,idaction,idstateto,idoutcome,probability,reward
0,0,0,0,1,5
0,0,0,1,1,5
0,1,1,0,0.25,0
0,1,0,0,0.75,0
0,1,1,1,0.5,0
0,1,0,1,0.5,0
1,0,0,0,1,0
1,0,0,1,1,0
1,1,1,0,1,80.5
1,1,1,1,1,92.25
"""
COLUMNS = {"context": "idoutcome", "state": "idstatefrom", "action": "idaction"}
COLUMNS |= {"next_state": "idstateto"}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(models())
def test_a_model_comes_back(tmp_path, model):
    """Bit for bit where every reward occurs, as names are in order; floats are written in full."""
    path = tmp_path / "m.csv"
    lm.save(model, path)
    back = lm.load(path)
    for name in ("initial", "weights", "bonus", "initial_bonus"):
        np.testing.assert_array_equal(getattr(back, name), getattr(model, name))
    assert (back.horizon, back.discount) == (model.horizon, model.discount)
    assert back.context_names == model.context_names
    np.testing.assert_allclose(back.mean_rewards(), model.mean_rewards(), atol=1e-14)
    np.testing.assert_allclose(back.transitions, model.transitions, atol=1e-15)
    lm.save(back, path)
    assert lm.load(path) == back


def test_forbidden_terminal_and_endless_come_back(tmp_path):
    allowed = [[True, False], [True, True], [False, False]]
    model = random_model(S=3, A=2, allowed=allowed, initial=0)
    model = model.replace(horizon=None, discount=0.9)
    lm.save(model, tmp_path / "m.csv")
    back = lm.load(tmp_path / "m.csv")
    assert back.horizon is None
    np.testing.assert_array_equal(back.allowed, model.allowed)
    np.testing.assert_array_equal(back.packed(), model.packed())


def test_a_foreign_table(tmp_path):
    (tmp_path / "m.csv").write_text(FOREIGN)
    model = lm.load(tmp_path / "m.csv", columns=COLUMNS, horizon=50, discount=0.9)
    assert (model.n_contexts, model.n_states, model.n_actions) == (2, 2, 2)
    np.testing.assert_array_equal(model.transitions[:, 0, 1, 1], [0.25, 0.5])
    np.testing.assert_array_equal(model.mean_rewards()[:, 1, 1], [80.5, 92.25])
    hidden = lm.load(tmp_path / "m.csv", columns=COLUMNS, horizon=50, observed=False)
    assert hidden.n_rewards == 1


def test_without_horizon_and_discount_there_is_no_end_and_a_warning(tmp_path):
    (tmp_path / "m.csv").write_text(FOREIGN)
    with pytest.warns(UserWarning, match="no end and discount 0.95"):
        model = lm.load(tmp_path / "m.csv", columns=COLUMNS)
    assert (model.horizon, model.discount) == (None, 0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lm.load(tmp_path / "m.csv", columns=COLUMNS, discount=0.8).horizon is None
        assert lm.load(tmp_path / "m.csv", columns=COLUMNS, horizon=8).discount == 1.0


def test_parquet_tables_are_models_or_logs(tmp_path):
    table = random_model(S=2, A=2).to_table()
    pq.write_table(pa.table(table), tmp_path / "m.parquet")
    assert isinstance(lm.load(tmp_path / "m.parquet", horizon=3), lm.LatentMDP)
    with pytest.warns(UserWarning, match="no end"):
        assert isinstance(lm.load(tmp_path / "m.parquet"), lm.LatentMDP)
    renamed = {"p" if name == "probability" else name: c for name, c in table.items()}
    pq.write_table(pa.table(renamed), tmp_path / "r.parquet")
    assert lm.load(tmp_path / "r.parquet", probability="p", horizon=3).n_states == 2
    logs = lm.Trajectories.from_arrays([[0, 1]], [[0]], [[1]])
    lm.save(logs, tmp_path / "logs.parquet")
    assert lm.load(tmp_path / "logs.parquet") == logs


def test_what_a_table_cannot_say_is_refused(tmp_path):
    path = tmp_path / "m.csv"
    allowed = [[True, True], [True, True], [False, False]]
    ended = random_model(S=3, A=2, allowed=allowed)
    with pytest.raises(FormatError, match="episodes begin in state 2, which is terminal"):
        lm.save(ended, path)
    T = ended.transitions.copy()
    T[:, :2, :, 2] = 0.0
    T[:, :2] /= T[:, :2].sum(axis=-1, keepdims=True)
    with pytest.raises(FormatError, match="state 2 has no action and is never reached"):
        lm.save(ended.replace(transitions=T, initial=0), path)
    never = np.array([[True, False]] * 3)
    with pytest.raises(FormatError, match="action 1 is allowed nowhere"):
        lm.save(random_model(S=3, A=2, allowed=never), path)
    with pytest.raises(FormatError, match="never visited"):
        lm.save(random_model(allow_unvisited=True), path)
    with pytest.raises(FormatError, match="is saved as"):
        lm.save(lm.UniformPolicy(), path)
    assert not path.exists()


HOSTILE = {
    "empty": ("", "not a table|empty"),
    "no such columns": ("a,b\n1,2\n", "no column 'state'"),
    "a header only": ("context,state,action,next_state,probability,reward\n", "no rows"),
    "ragged": ("state,action,next_state,probability\n0,0\n", "not a table"),
    "twice": ("state,state,action,next_state,probability\n0,0,0,0,1\n", "occurs twice"),
    "a gap": ("state,action,next_state,probability\n0,0,0,\n", "'probability' is empty or NaN"),
    "a word": ("state,action,next_state,probability\n0,0,0,one\n", "'one' in row 0"),
    "an empty name": ("state,action,next_state,probability\n,0,0,1\n", "'state' is empty"),
    "a sum": ("state,action,next_state,probability\n0,0,0,0.5\n", "sum to 0.5"),
    "binary": ("\0\1\2\xff\n\0\0", "bad.csv"),
    "wide": (",".join(f"c{i}" for i in range(10_001)) + "\n", "columns|no column"),
    "digits": ("state,action,next_state,probability\n" + "9" * 5000 + ",0,0,1\n", ""),
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.filterwarnings("ignore:the table has no")
def test_bad_files_are_named(tmp_path, kind):
    content, message = HOSTILE[kind]
    path = tmp_path / "bad.csv"
    path.write_text(content, encoding="latin-1")
    if kind == "digits":  # odd, but a name is a name
        assert lm.load(path).n_states == 2
        return
    with pytest.raises(FormatError, match=message) as caught:
        lm.load(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("weight", "0.9", "column 'weight' is 0.9 in row .*earlier row"),
        ("horizon", "7", "column 'horizon' is 7 in row"),
        ("horizon", "x", "'horizon' is 'x'"),
        ("initial", "0.123", "column 'initial'"),
        ("discount", "2", "column 'discount' is 2 in row"),
    ],
)
def test_changed_extra_columns_are_named(tmp_path, column, value, message):
    path = tmp_path / "m.csv"
    lm.save(random_model(), path)
    lines = path.read_text().splitlines()
    place = lines[0].replace('"', "").split(",").index(column)
    cells = lines[5].split(",")
    cells[place] = value
    lines[5] = ",".join(cells)
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(FormatError, match=message):
        lm.load(path)


def test_arguments_only_where_they_mean_something(tmp_path):
    lm.save(random_model(), tmp_path / "m.npz")
    with pytest.raises(TypeError, match="load takes no 'horizon'"):
        lm.load(tmp_path / "m.npz", horizon=3)


@pytest.mark.parametrize("words", [["01", "02", "03"], ["1.0", "2.0", "3.0"], ["", "a", "b"]])
def test_names_that_a_table_would_not_give_back_are_refused_when_saving(tmp_path, words):
    model = lm.testing.random_model(0).replace(state_names=words)
    with pytest.raises(FormatError, match=r"when a \.csv table is read again"):
        lm.save(model, tmp_path / "model.csv")
    kept = model.replace(state_names=["a, b", '"', "=1+1"])
    lm.save(kept, tmp_path / "model.csv")
    assert set(lm.load(tmp_path / "model.csv").state_names) == set(kept.state_names)


def test_names_that_are_strings_of_numpy_are_saved(tmp_path):
    model = lm.testing.random_model(0).replace(state_names=np.array(["a", "b", "c"]))
    for form in ("npz", "json"):
        lm.save(model, tmp_path / f"model.{form}")
        assert lm.load(tmp_path / f"model.{form}").state_names == ("a", "b", "c")
