"""Readers of exported files by their public specification, and a plain solver for each.

They share nothing with the writers: a .pomdp file is read by its grammar, a POMDPX file by its XML
tables, and both are solved by recursion over beliefs.
"""

import itertools
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np


class FlatPomdp:
    """A .pomdp file as dense arrays: T (A, S, S), O (A, S, Z), R (A, S)."""

    def __init__(self, path: Path) -> None:
        lines = [line.split("#")[0].strip() for line in path.read_text().splitlines()]
        lists: dict[str, list[str]] = {}
        entries = []
        for line in filter(None, lines):
            keyword, _, rest = line.partition(":")
            if keyword in "TOR":
                entries.append((keyword, [part.strip() for part in rest.split(":")]))
            else:
                lists[keyword] = rest.split()
        assert lists["values"] == ["reward"]
        self.discount = float(lists["discount"][0])
        self.states, self.actions = lists["states"], lists["actions"]
        self.observations = lists["observations"]
        S, A, Z = len(self.states), len(self.actions), len(self.observations)
        self.T, self.O, self.R = np.zeros((A, S, S)), np.zeros((A, S, Z)), np.zeros((A, S))
        for keyword, parts in entries:
            *where, last = parts
            target, value = last.split()
            self._enter(keyword, [*where, target], float(value))
        self.start = np.zeros(S)
        self.start[self.states.index(lists["start"][0])] = 1.0
        np.testing.assert_allclose(self.T.sum(axis=2), 1.0, atol=1e-12)
        np.testing.assert_allclose(self.O.sum(axis=2), 1.0, atol=1e-12)

    def _enter(self, keyword: str, where: list[str], value: float) -> None:
        second = self.observations if keyword == "O" else self.states
        index = tuple(
            slice(None) if name == "*" else names.index(name)
            for name, names in zip(where, [self.actions, self.states, second])
        )
        if keyword == "R":
            assert where[2:] == ["*", "*"]
            self.R[index[:2]] = value
        else:
            {"T": self.T, "O": self.O}[keyword][index] = value

    def value(self, steps: int, belief: np.ndarray | None = None) -> float:
        """The optimal discounted reward of the next `steps` steps."""
        belief = self.start if belief is None else belief
        if steps == 0 or belief.sum() == 0.0:
            return 0.0
        best = -np.inf
        for a in range(len(self.actions)):
            arrived = (belief @ self.T[a])[:, None] * self.O[a]
            seen = np.flatnonzero(arrived.sum(axis=0) > 0.0)
            future = sum(self.value(steps - 1, arrived[:, o]) for o in seen)
            best = max(best, belief @ self.R[a] + self.discount * future)
        return float(best)


class FactoredPomdp:
    """A POMDPX file: its variables and each table over (parents, variable)."""

    def __init__(self, path: Path) -> None:
        root = ET.parse(path).getroot()
        assert root.tag == "pomdpx"
        self.discount = float(root.findtext("Discount"))
        self.domain: dict[str, list[str]] = {}
        self.hidden: list[str] = []
        self.observed: list[str] = []
        for variable in root.iter("StateVar"):
            values = variable.findtext("ValueEnum").split()
            name = variable.get("vnamePrev").removesuffix("_0")
            self.domain[f"{name}_0"] = self.domain[f"{name}_1"] = values
            (self.observed if variable.get("fullyObs") == "true" else self.hidden).append(name)
        self.domain["action"] = root.find(".//ActionVar").findtext("ValueEnum").split()
        self.tables = {
            element.findtext("Var"): self._table(element)
            for element in [*root.iter("CondProb"), *root.iter("Func")]
        }

    def _table(self, element: ET.Element) -> tuple[list[str], np.ndarray]:
        variable, parents = element.findtext("Var"), element.findtext("Parent").split()
        axes = [p for p in parents if p != "null"]
        axes += [variable] if variable in self.domain else []
        table = np.zeros([len(self.domain[axis]) for axis in axes])
        for entry in element.iter("Entry"):
            names = entry.findtext("Instance").split()
            index = tuple(
                slice(None) if name in "-*" else self.domain[axis].index(name)
                for name, axis in zip(names, axes, strict=True)
            )
            text = entry.findtext("ProbTable") or entry.findtext("ValueTable")
            numbers = np.array(text.split(), dtype=float)
            table[index] = numbers.reshape(table[index].shape) if "-" in names else numbers[0]
        if variable in self.domain:
            np.testing.assert_allclose(table.sum(axis=-1), 1.0, atol=1e-12)
        return axes, table

    def _chance(self, variable: str, values: dict[str, int]) -> float:
        axes, table = self.tables[variable]
        return float(table[tuple(values[axis] for axis in axes)])

    def value(self, steps: int) -> float:
        """The optimal discounted reward of the first `steps` steps."""
        names = [f"{name}_0" for name in (*self.hidden, *self.observed)]
        beliefs: dict[tuple[int, ...], dict[int, float]] = {}
        for values in itertools.product(*(range(len(self.domain[name])) for name in names)):
            assigned = dict(zip(names, values))
            chance = np.prod([self._chance(name, assigned) for name in names])
            if chance > 0.0:
                beliefs.setdefault(values[1:], {})[values[0]] = float(chance)
        return sum(self._value(steps, seen, belief) for seen, belief in beliefs.items())

    def _value(self, steps: int, seen: tuple[int, ...], belief: dict[int, float]) -> float:
        """From what is observed and the unnormalised belief over the hidden variable."""
        if steps == 0:
            return 0.0
        best = -np.inf
        for a in range(len(self.domain["action"])):
            now, following = 0.0, {}
            for hidden, mass in belief.items():
                before = dict(
                    zip([f"{n}_0" for n in (*self.hidden, *self.observed)], [hidden, *seen])
                )
                before["action"] = a
                now += mass * self._chance("payoff", before)
                for after, chance in self._successors(before):
                    group = following.setdefault(after[1:], {})
                    group[after[0]] = group.get(after[0], 0.0) + mass * chance
            future = sum(self._value(steps - 1, s, b) for s, b in following.items())
            best = max(best, now + self.discount * future)
        return best

    def _successors(self, before: dict[str, int]):
        names = [f"{name}_1" for name in (*self.hidden, *self.observed)]
        partial = [(dict(before), 1.0)]
        for name in names:
            partial = [
                ({**values, name: v}, chance * p)
                for values, chance in partial
                for v in range(len(self.domain[name]))
                if (p := self._chance(name, {**values, name: v})) > 0.0
            ]
        return [(tuple(values[name] for name in names), chance) for values, chance in partial]
