"""Covariates: what is known of an individual before its first step, and the weights it implies.

A covariate is a number or a category. An `Encoder` turns those of an individual into a design
vector x: numbers are standardised, a category becomes one column per level, and every column has
its mean subtracted. So x = 0 is the average individual, and what is missing, or a category that was
never seen, is taken for the average. A `WeightModel` turns x into weights of the contexts,

    w_m(x) = exp(c_m + <beta_m, x>) / sum_n exp(c_n + <beta_n, x>),

the belief with which an episode of that individual begins.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from latentmdp._util import arrays
from latentmdp._util.arrays import Floats, Integers
from latentmdp._util.fields import Fielded
from latentmdp._util.words import listed


class Covariates(Fielded):
    """Numbers and categories of N individuals; immutable.

    Parameters
    ----------
    names : (k,)
        What the covariates are called.
    values : (N, k)
        The numbers; a category is the index of its level. NaN where a value is missing.
    levels : mapping of names to lists of texts
        What the levels of each category are called; a covariate without levels is a number.
    """

    names: tuple[str, ...]
    values: Floats
    levels: dict[str, tuple[str, ...]]

    def __init__(
        self,
        names: Sequence[str],
        values: ArrayLike,
        levels: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        checked, categories = _checked_names(names, levels)
        table = np.array(values, dtype=np.float64) + 0.0
        if table.ndim != 2 or table.shape[1] != len(checked):
            raise ValueError(f"values must have shape (N, {len(checked)}), got {table.shape}")
        if np.isinf(table).any():
            i, k = arrays.first_index(np.isinf(table))
            raise ValueError(f"covariate {checked[k]!r} of individual {i} is infinite")
        for name, labels in categories.items():
            codes = table[:, checked.index(name)]
            codes = codes[~np.isnan(codes)]
            wrong = (codes != np.rint(codes)) | (codes < 0) | (codes >= len(labels))
            if wrong.any():
                raise ValueError(
                    f"covariate {name!r} has {len(labels)} levels, but a value is "
                    f"{codes[np.argmax(wrong)]:g}"
                )
        arrays.store(self, {"names": checked, "values": table, "levels": categories})

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, ArrayLike], categories: Iterable[str] = ()
    ) -> Covariates:
        """Covariates from one column each: numbers stay numbers, texts and flags are categories.

        Numbers are too where they are named among the `categories`. None and NaN are missing
        values.
        """
        from latentmdp.logs import frames

        names, values, levels = list(columns), [], {}
        for name in names:
            cells = frames.values_or_labels(name, columns[name], as_labels=name in categories)
            values.append(cells.values)
            if values[0].size != cells.values.size:
                raise ValueError(
                    f"covariate {name!r} has {cells.values.size} values, others have "
                    f"{values[0].size}"
                )
            if cells.labels is not None:
                levels[name] = cells.labels
        table = np.column_stack(values) if values else np.empty((0, 0))
        return cls(names, table, levels)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, key: Any) -> Covariates:
        """The covariates of some individuals: a slice, a mask or an index array."""
        rows = self.values[key]
        if rows.ndim != 2:
            raise IndexError(
                f"covariates are taken by a slice, a mask or an index array, got {key}"
            )
        return Covariates(self.names, rows, self.levels)

    def row(self, individual: int) -> dict[str, float | str | None]:
        """The covariates of one individual by name; None for one that is missing."""
        cells: dict[str, float | str | None] = {}
        for name, value in zip(self.names, self.values[individual].tolist()):
            labels = self.levels.get(name)
            if np.isnan(value):
                cells[name] = None
            else:
                cells[name] = value if labels is None else labels[int(value)]
        return cells

    def relabelled(self, levels: Mapping[str, Sequence[str]]) -> Floats:
        """`values` with categories by the indices of other levels; NaN where they have none."""
        table = self.values.copy()
        for name, labels in self.levels.items():
            k = self.names.index(name)
            table[:, k] = _by_level(table[:, k], labels, levels.get(name, ()))
        return table

    @classmethod
    def concat(cls, parts: Iterable[Covariates]) -> Covariates:
        """Join the individuals of several; levels are joined too."""
        batches = list(parts)
        first = batches[0]
        for i, batch in enumerate(batches):
            if batch.names != first.names or batch.levels.keys() != first.levels.keys():
                raise ValueError(
                    f"batch {i} has covariates {_described(batch)}, batch 0 {_described(first)}"
                )
        levels = {
            name: tuple(dict.fromkeys(label for batch in batches for label in batch.levels[name]))
            for name in first.levels
        }
        return cls(first.names, np.concatenate([b.relabelled(levels) for b in batches]), levels)

    def encoder(self, counts: ArrayLike | None = None) -> Encoder:
        """The `Encoder` of these individuals, each counted once or by `counts` (N,)."""
        return Encoder.of(self, counts)

    def __repr__(self) -> str:
        return f"Covariates({len(self)} individuals, {_described(self)})"


class Encoder(Fielded):
    """From covariates to design vectors of d entries, of which zero is the average individual.

    Parameters
    ----------
    names, levels
        As of `Covariates`.
    means, scales : (d,)
        What is subtracted from each column of the design, and by what it is then divided. A number
        has one column, a category one for each level.
    """

    names: tuple[str, ...]
    levels: dict[str, tuple[str, ...]]
    means: Floats
    scales: Floats

    def __init__(
        self,
        names: Sequence[str],
        levels: Mapping[str, Sequence[str]] | None,
        means: ArrayLike,
        scales: ArrayLike,
    ) -> None:
        words, labels = _checked_names(names, levels)
        centre, width = arrays.as_floats("means", means), arrays.as_floats("scales", scales)
        arrays.store(self, {"names": words, "levels": labels, "means": centre, "scales": width})
        d = len(self.columns)
        if centre.shape != (d,) or width.shape != (d,) or (width <= 0.0).any():
            raise ValueError(f"means and scales must have {d} entries each, and scales be positive")

    @classmethod
    def of(cls, covariates: Covariates, counts: ArrayLike | None = None) -> Encoder:
        """Means and standard deviations of individuals, each counted once or by `counts` (N,)."""
        names, levels = covariates.names, covariates.levels
        each = np.ones(len(covariates)) if counts is None else np.asarray(counts, np.float64)
        raw = _design_of(covariates, names, levels)
        weights = np.where(np.isnan(raw), 0.0, each[:, None])
        totals = np.maximum(weights.sum(axis=0), 1e-300)
        filled = np.where(np.isnan(raw), 0.0, raw)
        means = (weights * filled).sum(axis=0) / totals
        spread = np.sqrt((weights * (filled - means) ** 2).sum(axis=0) / totals)
        narrow = spread <= 1e-12 * np.maximum(np.abs(means), 1.0)
        is_level = np.array([level is not None for _, level in _parts(names, levels)], np.bool_)
        return cls(names, levels, means, np.where(is_level | narrow, 1.0, spread))

    @property
    def columns(self) -> tuple[str, ...]:
        """What the columns of the design are called: "age", "region=north", ..."""
        parts = _parts(self.names, self.levels)
        return tuple(n if k is None else f"{n}={self.levels[n][k]}" for n, k in parts)

    @property
    def width(self) -> int:
        """d: the number of columns of the design."""
        return self.means.size

    def design(self, covariates: Any) -> Floats:
        """The design vectors (N, d) of individuals.

        Parameters
        ----------
        covariates
            `Covariates`, a mapping of columns, a list of mappings (one per individual), or a frame.
            A warning says how many values are missing or were never seen: they count as average.
        """
        table = covariates if isinstance(covariates, Covariates) else self._read(covariates)
        if table.names != self.names or table.levels.keys() != self.levels.keys():
            raise ValueError(
                f"covariates must be {', '.join(self.names)}, got {', '.join(table.names)}"
            )
        raw = _design_of(table, self.names, self.levels)
        return np.where(np.isnan(raw), 0.0, (raw - self.means) / self.scales)

    def vector(self, covariates: Mapping[str, Any]) -> Floats:
        """The design vector (d,) of one individual, whose covariates are given by name."""
        if not isinstance(covariates, Mapping):
            raise TypeError(
                f"covariates of one individual are a mapping of names to values, got "
                f"{type(covariates).__name__}"
            )
        row: Floats = self.design({name: [value] for name, value in covariates.items()})[0]
        return row

    def _read(self, table: Any) -> Covariates:
        """Covariates of a table, checked against these; says what it takes for average."""
        from latentmdp.logs import frames

        columns = frames.named_columns(table)
        strange = [str(name) for name in columns if name not in self.names]
        if isinstance(table, Mapping) and strange:
            raise ValueError(
                f"there is no covariate {strange[0]!r}; there are "
                f"{listed([repr(name) for name in self.names])}"
            )
        known = {name: columns[name] for name in self.names if name in columns}
        given = Covariates.from_columns(known, self.levels)
        for name, labels in given.levels.items():
            if name not in self.levels:
                raise ValueError(f"covariate {name!r} is a number, got {labels[0]!r}")
        values = np.full((len(given) if known else 1, len(self.names)), np.nan)
        notes = [f"{name} is not given" for name in self.names if name not in known]
        for name, cells, read in zip(given.names, given.values.T, given.relabelled(self.levels).T):
            values[:, self.names.index(name)] = read
            unseen = np.flatnonzero(np.isnan(read) & ~np.isnan(cells))
            if unseen.size:
                label = given.levels[name][int(cells[unseen[0]])]
                notes.append(f"{name}={label} was never seen before")
            elif np.isnan(cells).any():
                notes.append(f"{name} is missing")
        if notes:
            warnings.warn(f"covariates: {listed(notes)}; taken for the average", stacklevel=3)
        return Covariates(self.names, values, self.levels)

    def __repr__(self) -> str:
        return f"Encoder({', '.join(self.columns)})"


class WeightModel(Fielded):
    """Weights of the contexts for an individual with design vector x: a softmax of c + beta x.

    Parameters
    ----------
    encoder
        Turns covariates into design vectors.
    intercepts : (M,)
        c_m, of the average individual.
    coefficients : (M, d)
        beta_m.
    """

    encoder: Encoder
    intercepts: Floats
    coefficients: Floats

    def __init__(self, encoder: Encoder, intercepts: ArrayLike, coefficients: ArrayLike) -> None:
        arrays.require_instance("encoder", encoder, Encoder)
        c = arrays.as_floats("intercepts", intercepts)
        beta = arrays.as_floats("coefficients", coefficients)
        if c.ndim != 1 or c.size == 0 or beta.shape != (c.size, encoder.width):
            raise ValueError(
                f"intercepts must have shape (M,) and coefficients (M, {encoder.width}), got "
                f"{c.shape} and {beta.shape}"
            )
        arrays.store(self, {"encoder": encoder, "intercepts": c, "coefficients": beta})

    @property
    def n_contexts(self) -> int:
        """M."""
        return self.intercepts.size

    def weights(self, design: ArrayLike) -> Floats:
        """w(x) for a design vector (d,), shape (M,), or for many (N, d), shape (N, M)."""
        x = np.asarray(design, np.float64)
        scores = self.intercepts + x @ self.coefficients.T
        return arrays.shares_of_logs(scores)

    def of(self, covariates: Any) -> Floats:
        """The weights of one individual (M,), a mapping of names to values, or of many (N, M).

        Many are a mapping of names to columns, a list of mappings, a frame or `Covariates`.
        """
        if isinstance(covariates, Mapping) and not any(
            isinstance(value, list | tuple | np.ndarray) or hasattr(value, "dtype")
            for value in covariates.values()
        ):
            return self.weights(self.encoder.vector(covariates))
        return self.weights(self.encoder.design(covariates))

    def permuted(self, order: Sequence[int] | Integers) -> Self:
        """The same model with its contexts in another order."""
        index = np.asarray(order)
        return type(self)(self.encoder, self.intercepts[index], self.coefficients[index])

    def __repr__(self) -> str:
        return f"WeightModel({self.n_contexts} contexts, {', '.join(self.encoder.columns)})"


def _checked_names(
    names: Sequence[str], levels: Mapping[str, Sequence[str]] | None
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    checked = tuple(names)
    if isinstance(names, str) or not all(isinstance(name, str) for name in checked):
        raise TypeError(f"names must be a list of texts, got {names!r:.60}")
    if len(set(checked)) < len(checked):
        raise ValueError(f"names of covariates must differ, got {list(checked)}")
    categories = {}
    for name, labels in (levels or {}).items():
        if name not in checked:
            raise ValueError(f"levels names {name!r}, which is none of {list(checked)}")
        categories[name] = tuple(str(label) for label in labels)
        if len(set(categories[name])) < len(categories[name]):
            raise ValueError(f"levels of {name!r} must differ, got {list(labels)}")
    return checked, categories


def _parts(
    names: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> list[tuple[str, int | None]]:
    """The columns of a design: a number has one, without a level, a category one for each level."""
    none: list[int | None] = [None]
    return [(n, k) for n in names for k in (range(len(levels[n])) if n in levels else none)]


def _design_of(
    covariates: Covariates, names: Sequence[str], levels: Mapping[str, Sequence[str]]
) -> Floats:
    """The columns of the design (N, d) before they are centred, NaN where nothing is known."""
    values = dict(zip(covariates.names, covariates.relabelled(levels).T))
    design = np.empty((len(covariates), len(_parts(names, levels))))
    for column, (name, level) in zip(design.T, _parts(names, levels)):
        value = values[name]
        column[:] = value if level is None else np.where(np.isnan(value), np.nan, value == level)
    return design


def _by_level(codes: Floats, labels: Sequence[str], levels: Sequence[str]) -> Floats:
    """Indices of labels as indices of other levels; NaN where they have none."""
    index = {label: float(i) for i, label in enumerate(levels)}
    # the last entry is for missing values, whose code becomes the number of labels
    indices = np.array([*(index.get(label, np.nan) for label in labels), np.nan])
    return indices[np.where(np.isnan(codes), len(labels), codes).astype(np.int64)]


def _described(covariates: Covariates) -> str:
    parts = [
        f"{name} ({len(covariates.levels[name])} levels)" if name in covariates.levels else name
        for name in covariates.names
    ]
    return ", ".join(parts) or "none"
