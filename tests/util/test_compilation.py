"""Compilation is told once, and only where something is compiled."""

from numba import njit

from latentmdp._util.clock import on_first_compilation


def test_compilation_is_told_once():
    @njit
    def twice(x):
        return 2 * x

    @njit
    def thrice(x):
        return 3 * x

    said = []
    with on_first_compilation(lambda: said.append(1)):
        assert twice(2) == 4
        assert thrice(2.0) == 6.0
    assert said == [1]
    with on_first_compilation(lambda: said.append(1)):
        assert twice(3) == 6
    assert said == [1]


def test_nobody_is_told_afterwards():
    @njit
    def half(x):
        return x / 2

    said = []
    with on_first_compilation(lambda: said.append(1)):
        pass
    half(4.0)
    assert said == []
