"""Counted things and lists as one reads them."""

import pytest

from latentmdp._util.words import listed, plural


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (10_000, "10,000 runs")]
)
def test_a_number_and_its_noun(number, text):
    assert plural(number, "run") == text


def test_an_irregular_plural():
    assert plural(2, "set of logs", "sets of logs") == "2 sets of logs"
    assert plural(1, "set of logs", "sets of logs") == "1 set of logs"


@pytest.mark.parametrize(
    ("parts", "text"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), ("abc", "a, b and c")]
)
def test_a_list(parts, text):
    assert listed(parts) == text
