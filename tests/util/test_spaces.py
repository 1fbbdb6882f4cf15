"""Finite spaces as numbers: every element has one, and the way back is the same."""

import numpy as np
import pytest
from gymnasium import spaces

from latentmdp._util.spaces import FiniteSpace, element_name

MANY = [
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete([3, 2], start=[1, 5]),
    spaces.MultiDiscrete(np.array([[2, 3], [2, 2]])),
    spaces.MultiBinary((2, 2)),
    spaces.Dict(x=spaces.Discrete(2), y=spaces.Tuple((spaces.Discrete(3, start=1),))),
    spaces.Tuple((spaces.Discrete(2), spaces.Dict(a=spaces.Discrete(2), b=spaces.MultiBinary(2)))),
]


@pytest.mark.parametrize("space", MANY, ids=str)
def test_numbers_and_elements_are_one_to_one(space):
    finite = FiniteSpace("observation_space", space)
    elements = [finite.element(i) for i in range(finite.n)]
    assert all(space.contains(element) for element in elements)
    assert [finite.index(element) for element in elements] == list(range(finite.n))
    assert len({str(element) for element in elements}) == finite.n
    drawn = {finite.index(space.sample()) for _ in range(60 * finite.n)}
    assert drawn == set(range(finite.n))  # one is missed with probability n e^-60
    names = finite.names()
    assert names is None or len(set(names)) == finite.n


def test_names_say_what_the_parts_are():
    assert FiniteSpace("observation_space", spaces.Discrete(4)).names() is None
    assert FiniteSpace("observation_space", MANY[0]).names() == ("-2", "-1", "0", "1")
    assert FiniteSpace("observation_space", MANY[1]).names()[0] == "(1, 5)"
    assert FiniteSpace("observation_space", MANY[4]).names()[-1] == "x 1, y[0] 3"
    assert FiniteSpace("observation_space", MANY[5]).names()[-1] == "1, a 1, b[0] 1, b[1] 1"


def test_what_is_not_finite_is_refused_by_name():
    box = spaces.Box(0.0, 1.0, (2,))
    with pytest.raises(TypeError, match=r"got Box\(.*TransformAction"):
        FiniteSpace("action_space", box)
    with pytest.raises(TypeError, match=r"of which Box\(.*is a part.*TransformObservation"):
        FiniteSpace("observation_space", spaces.Tuple((spaces.Discrete(2), box)))
    with pytest.raises(ValueError, match="combinations, more than can be numbered"):
        FiniteSpace("observation_space", spaces.MultiBinary(40))


@pytest.mark.parametrize(
    ("space", "element"),
    [(MANY[0], 2), (MANY[1], (4, 5)), (MANY[1], (1,)), (MANY[4], {"x": 2, "y": (1,)})],
)
def test_elements_that_are_not_in_the_space(space, element):
    with pytest.raises(ValueError, match="the world gave"):
        FiniteSpace("observation_space", space).index(element)


def test_a_name_does_not_depend_on_the_order_of_keys():
    space = FiniteSpace("s", spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Discrete(3)}))
    element = {"b": 1, "a": 2}
    assert element_name(element) == "a 2, b 1" == space.names([space.index(element)])[0]
