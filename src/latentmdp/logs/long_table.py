"""Episodes as a long table, one row per step: the form in which logs come and go.

`Trajectories.from_table` says what the columns are; `fields_of_table` makes episodes of rows, and
`table_of` rows of episodes. The rows are sorted by episode and time; what
is said of a row names the column and the row as the user has them, counted from 0.

Empty cells. A row without a state or an action is a lost step, and splits its episode into
segments of one individual. A state is also known from the next state of the row before, and a next
state from the state of the row after. What remains is -1: a reward, or the next state of a
segment's last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latentmdp._util import validation
from latentmdp._util.arrays import Flags, Floats, Integers
from latentmdp._util.words import listed
from latentmdp.errors import TrajectoryError
from latentmdp.logs import frames
from latentmdp.logs.base import END, MissingCells
from latentmdp.logs.covariates import Covariates

if TYPE_CHECKING:
    from latentmdp.logs.trajectories import Trajectories

OPTIONAL = ("next_state", "context", "count", "propensity", "terminated")
WORDS = ("episode", "t", "state", "action", "reward", *OPTIONAL)
"""Our words for the columns of a table of logs; the last five may be absent."""

MANY_VALUES = 20
"""Rewards of more distinct values are measured, not counted: "auto" makes levels of them."""

LEVELS = 10
"""Levels that "auto" makes: enough to keep apart what differs, few enough that each (s, a) has data
for every level."""


def reward_levels_of(values: Floats, counts: Integers, number: int) -> tuple[Floats, Floats]:
    """About `number` levels of rewards, given their distinct values in order and their counts.

    The levels have about equal mass. Returns the means of what they hold, (Z,), and the edges
    between them, (Z - 1,).

    A value that alone has the mass of a level, as zero often has, is a level of its own; the others
    are cut at quantiles. Edges lie halfway between the values on both sides.
    """
    if values.size <= number:
        means, groups = values, np.arange(values.size)
    else:
        heavy = counts * number >= counts.sum()
        run = np.cumsum(heavy | np.concatenate([[False], heavy[:-1]]))
        rest = np.where(heavy, 0, counts)
        light_levels = max(number - int(heavy.sum()), 1)
        mass = rest.sum() or 1
        # within a run between heavy values: cut where the mass so far passes multiples of a share
        before = np.cumsum(rest) - rest
        begin = np.concatenate([[0], np.flatnonzero(np.diff(run)) + 1])
        inside = before - np.repeat(before[begin], np.diff(np.append(begin, run.size)))
        cut = np.where(heavy, 0, ((inside + 0.5 * rest) * light_levels / mass).astype(np.int64))
        new = np.concatenate([[True], (np.diff(run) != 0) | (np.diff(cut) != 0)])
        groups = np.cumsum(new) - 1
        totals = np.bincount(groups, counts * values)
        means = totals / np.bincount(groups, counts)
    last = np.flatnonzero(np.diff(groups))
    low, high = values[last], values[last + 1]
    middle = low + 0.5 * (high - low)
    edges = np.where((middle > low) & (middle <= high), middle, high)
    ends = np.concatenate([[-1], last, [values.size - 1]])
    means = np.clip(means, values[ends[:-1] + 1], values[ends[1:]])
    return means + 0.0, edges + 0.0


class TableOptions(NamedTuple):
    """How a table becomes logs: the arguments of `Trajectories.from_table` but for column names.

    `levels` are the levels of categories among the covariates, where they are known beforehand, and
    the codes what whole numbers that are names of states or actions stand for; "auto" looks.
    """

    covariates: tuple[str, ...] = ()
    reward_levels: int | str | None = "auto"
    informative_rewards: bool = True
    reward_values: ArrayLike | None = None
    reward_edges: ArrayLike | None = None
    n_states: int | None = None
    n_actions: int | None = None
    state_names: Sequence[str] | None = None
    action_names: Sequence[str] | None = None
    rewards_are_indices: bool = False
    levels: Mapping[str, Sequence[str]] | None = None
    state_codes: Integers | Literal["auto"] | None = "auto"
    action_codes: Integers | Literal["auto"] | None = "auto"


def fields_of_table(
    table: Any, names: Mapping[str, str | None], options: TableOptions
) -> dict[str, Any]:
    """The arguments of `Trajectories` that a long table describes.

    `names` are what the table calls each of `WORDS`, None for a column that is not to be read.

    Raises
    ------
    TrajectoryError
        Naming the column and the row.
    """
    try:
        rows = _sorted_rows(*_read(table, names, options.covariates))
        states, state_names = _labels(rows, ("state", "next_state"), options)
        actions, action_names = _labels(rows, ("action",), options)
        action = actions["action"]
        links = _linked(rows, states)
        end, state_names = _ended(rows, links, state_names)
        segments = _segments(rows, links, action)
        steps, of_episode = segments.steps, segments.episode
        n_states = options.n_states
        if n_states is not None and end is not None:
            n_states = max(n_states, end + 1, len(state_names or ()))
        fields: dict[str, Any] = {
            "states": segments.states,
            "actions": action[steps],
            **_rewards(rows, steps, options),
            "offsets": segments.offsets,
            "contexts": rows.constant("context", of_episode),
            "counts": rows.constant("count", of_episode),
            "continues": segments.continues,
            "propensities": rows.propensities(steps),
            "covariates": _covariates(rows, of_episode, options),
            "n_states": n_states,
            "n_actions": options.n_actions,
            "state_names": state_names,
            "action_names": action_names,
            "episode_names": rows.episode_names(of_episode),
        }
    except ValueError as error:
        raise TrajectoryError(str(error)) from None
    amounts = fields.get("amounts")
    without_reward = fields["rewards"] < 0 if amounts is None else np.isnan(amounts)
    missing = MissingCells(
        states=int((states["state"] < 0).sum()),
        actions=int((action < 0).sum()),
        rewards=int(without_reward.sum()),
        next_states=int((states["next_state"] < 0).sum()) if "next_state" in states else 0,
        lost_steps=int(rows.size - steps.size),
        segments=0 if segments.continues is None else int(segments.continues.sum()),
        ends=segments.ends,
    )
    return {**fields, "missing": missing if any(missing) else None}


# ------------------------------------------------------------------------------- reading columns


def _read(
    table: Any, names: Mapping[str, str | None], covariates: Sequence[str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The columns of a table by our words, as pyarrow has them, and what the table calls them."""
    columns = {word: name for word, name in names.items() if name is not None}
    for word in ("episode", "state", "action", "reward"):
        if word not in columns:
            raise ValueError(f"the column of {word!r} cannot be left out")
    optional = [word for word in OPTIONAL if columns.get(word) == word]
    columns |= {_covariate(name): name for name in covariates}
    labels = [w for w in ("episode", "state", "action", "next_state") if w in columns]
    return frames.columns_of(table, columns, optional=optional, labels=labels), columns


def _covariate(name: str) -> str:
    """How a covariate's column is called here, apart from our own words."""
    return f"covariate {name}"


@dataclass(frozen=True)
class _Rows:
    """A table sorted by (episode, time): columns of pyarrow in the order of the table.

    `order` gives the row of the table for each sorted row, None where it was sorted; `offsets` the
    first sorted row of each episode, `labels` what episodes are called.
    """

    columns: dict[str, Any]
    names: dict[str, str]
    order: Integers | None
    offsets: Integers
    labels: Sequence[Any]

    @property
    def size(self) -> int:
        return int(self.offsets[-1])

    def sorted(self, values: NDArray[Any]) -> NDArray[Any]:
        return values if self.order is None else values[self.order]

    def called(self, row: int) -> str:
        """How a message calls a sorted row."""
        episode = int(np.searchsorted(self.offsets, row, side="right")) - 1
        number = row if self.order is None else int(self.order[row])
        step = row - int(self.offsets[episode])
        return f"row {number}, episode {self.labels[episode]}, step {step}"

    def refuse(self, wrong: Flags, word: str, why: str | Callable[[int], str]) -> None:
        """Raise for the first sorted row marked wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            value = self.columns[word][row if self.order is None else int(self.order[row])].as_py()
            reason = why if isinstance(why, str) else why(row)
            raise ValueError(f"{self.called(row)}: {self.names[word]} is {value}, {reason}")

    def floats(self, word: str) -> Floats:
        """A column of numbers; NaN where a cell is empty."""
        return self.sorted(frames.floats(self.names[word], self.columns[word]))

    def integers(self, word: str, dtype: type[np.signedinteger[Any]] = np.int32) -> Integers:
        """A column of non-negative integers; -1 where a cell is empty."""
        values = self.sorted(frames.whole(self.names[word], self.columns[word]))
        empty = np.zeros(values.size, np.bool_)
        if values.dtype.kind == "f":
            empty = np.isnan(values)
            values = np.where(empty, 0.0, values)
            self.refuse(values != np.rint(values), word, "must be an integer")
        self.refuse(values < 0, word, "must not be negative")
        self.refuse(values > np.iinfo(dtype).max, word, f"larger than {np.dtype(dtype)} holds")
        whole = values.astype(np.int64)
        whole[empty] = -1
        return whole

    def constant(self, word: str, episode: Integers) -> Integers | None:
        """A column that says one thing per episode, for the given episodes."""
        if word not in self.columns:
            return None
        values = self.integers(word, np.int64 if word == "count" else np.int32)
        self.refuse(values < 0, word, "must be given")
        first = values[self.offsets[:-1]]
        expected = np.repeat(first, np.diff(self.offsets))
        self.refuse(values != expected, word, "but another value earlier in the episode")
        return first[episode]

    def covariate(self, name: str, episode: Integers) -> frames.Values:
        """A covariate, which is the same in all rows of an episode that tell it."""
        word = _covariate(name)
        column = frames.values_or_labels(name, self.columns[word])
        values = self.sorted(column.values)
        filled = ~np.isnan(values)
        first = np.where(filled, np.arange(values.size), values.size)
        lead = np.minimum.reduceat(first, self.offsets[:-1]) if values.size else first
        each = np.append(values, np.nan)[lead]
        expected = np.repeat(each, np.diff(self.offsets))
        self.refuse(filled & (values != expected), word, "but another value earlier in the episode")
        return frames.Values(each[episode], column.labels)

    def propensities(self, steps: Integers) -> Floats | None:
        if "propensity" not in self.columns:
            return None
        values = self.floats("propensity")
        wrong = np.zeros(values.size, np.bool_)
        wrong[steps] = ~((values[steps] > 0.0) & (values[steps] <= 1.0))
        self.refuse(
            wrong, "propensity", "the probability of an action that was taken lies in (0, 1]"
        )
        return values[steps]

    def episode_names(self, episode: Integers) -> NDArray[np.object_] | None:
        """What the given episodes are called, None where that is their number."""
        labels = self.labels
        if isinstance(labels, np.ndarray):
            if np.array_equal(labels, np.arange(labels.size)):
                return None
            labels = labels.tolist()
        names = np.empty(len(labels), dtype=object)
        names[:] = [str(label) for label in labels]
        return names[episode]


def _sorted_rows(columns: dict[str, Any], names: dict[str, str]) -> _Rows:
    episode, labels = _episodes(names["episode"], columns["episode"])
    if "t" in columns:
        t, counts = frames.times(names["t"], columns["t"])
    else:
        t, counts = np.arange(episode.size), False
    same = episode[1:] == episode[:-1]
    in_order = (episode[1:] > episode[:-1]) | (same & (t[1:] >= t[:-1]))
    order = None
    if not in_order.all():
        order = _sorting(episode, t)
        episode, t = episode[order], t[order]
        same = episode[1:] == episode[:-1]
    first = np.flatnonzero(np.concatenate([[True], ~same]))[: episode.size]
    offsets = np.concatenate([first, [episode.size]]).astype(np.int64)
    called: Any = episode[first] if labels is None else [labels[i] for i in episode[first]]
    rows = _Rows(columns, names, order, offsets, called)
    again = np.concatenate([[False], same & (t[1:] == t[:-1])])[: episode.size]
    ups = np.diff(t)[same]
    # dates, or visits in months 0, 3, 6, 12: times, whose order counts
    if not counts or 2 * (ups > 1).sum() > ups.size:
        rows.refuse(again, "t", "occurs twice in the episode")
        return rows
    begin, length = t[offsets[:-1]], np.diff(offsets)  # 0, 1, a year: wherever it begins
    expected = np.arange(t.size) + np.repeat(begin - offsets[:-1], length)

    def why(row: int) -> str:
        gap = "occurs twice" if again[row] else f"but step {expected[row]} is missing"
        return (
            f"{gap}; {names['t']} must count 0, 1, 2, ..., or be a date or time (leave it out, "
            "t=None, if rows are in order and none is lost)"
        )

    rows.refuse(t != expected, "t", why)
    return rows


def _sorting(episode: Integers, t: NDArray[Any]) -> Integers:
    """The order of rows by episode, and by t within it: of one number for both where it fits."""
    if t.dtype.kind == "i":
        width = int(t.max()) - int(t.min()) + 1
        span = int(episode.max()) - int(episode.min()) + 1
        if width * span < 2**62:
            return np.argsort((episode - episode.min()) * width + (t - t.min()), kind="stable")
    return np.lexsort((t, episode))


def _episodes(name: str, cells: Any) -> tuple[Integers, list[str] | None]:
    """Episodes by number, and what they are called where that is not their number."""
    frames.require_filled(name, cells)
    if frames.is_text(cells):
        codes, labels = frames.coded(cells, natural=False)
        return codes, list(labels)
    values = frames.whole(name, cells)
    if values.dtype.kind == "f":
        wrong = values != np.rint(values)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"column {name!r} is {values[row]} in row {row}: episodes are called by integers "
                "or by strings"
            )
    if values.size and not -(2.0**62) < float(values.min()) <= float(values.max()) < 2.0**62:
        row = int(np.argmax(abs(values.astype(np.float64)) >= 2.0**62))
        raise ValueError(f"column {name!r} is {values[row]} in row {row}: too large for a number")
    return values.astype(np.int64), None


def codes_among(columns: Iterable[Integers]) -> Integers | None:
    """The whole numbers in some columns, if they are names, such as 1 and 2, or 10, 20 and 40.

    Numbers from 0 on, of which one or the other may not have occurred, are no names.
    """
    found = np.unique(np.concatenate([column[column >= 0] for column in columns]))
    if not found.size or (found[0] == 0 and 2 * found.size > found[-1]):
        return None
    return found


def _labels(
    rows: _Rows, words: Sequence[str], options: TableOptions
) -> tuple[dict[str, Integers], tuple[str, ...] | None]:
    """Columns of states or of actions by number, -1 where a cell is empty, and their names.

    With a size, and with names that were declared, whole numbers are what they are; otherwise they
    may be codes.
    """
    kind = words[0]
    declared, size, codes = (
        getattr(options, name) for name in (f"{kind}_names", f"n_{kind}s", f"{kind}_codes")
    )
    present = [word for word in words if word in rows.columns]
    texts = [word for word in present if frames.is_text(rows.columns[word])]
    filled = [w for w in present if rows.columns[w].null_count < rows.size]
    if texts and any(word not in texts for word in filled):
        odd = next(word for word in filled if word not in texts)
        raise ValueError(
            f"column {rows.names[odd]!r} holds {frames.cell(rows.columns[odd], 0)!r} in row 0, a "
            f"number, while column {rows.names[texts[0]]!r} holds names"
        )
    if not texts:
        numbers = {word: rows.integers(word) for word in present}
        if isinstance(codes, str):
            codes = codes_among(numbers.values()) if declared is None and size is None else None
        if codes is not None:
            for word, column in numbers.items():
                numbers[word] = np.where(column < 0, -1, codes.searchsorted(column))
            declared = tuple(map(str, codes.tolist()))
        if declared is not None:
            for word, column in numbers.items():
                rows.refuse(column >= len(declared), word, f"but there are {len(declared)} names")
        return numbers, None if declared is None else tuple(declared)
    ranks: list[Integers]
    *ranks, names = frames.coded(*(rows.columns[word] for word in texts))
    if declared is not None:
        index = {label: i for i, label in enumerate(declared)}
        # an empty cell, -1, picks the last entry, -1 again; -2 is a label that was not declared
        rank = np.array([*(index.get(label, -2) for label in names), -1], np.int64)
        ranks, names = [rank[c] for c in ranks], tuple(declared)
    numbers = {word: rows.sorted(c) for word, c in zip(texts, ranks)}
    numbers |= {word: np.full(rows.size, -1) for word in present if word not in texts}
    some = [repr(name) for name in names[:5]] + (["..."] if len(names) > 5 else [])
    for word, c in numbers.items():
        rows.refuse(c == -2, word, f"which is none of {listed(some)}")
    return numbers, names


def _covariates(rows: _Rows, episode: Integers, options: TableOptions) -> Covariates | None:
    """The covariates of the given episodes, categories by the levels that are known beforehand."""
    if not options.covariates:
        return None
    columns = {name: rows.covariate(name, episode) for name in options.covariates}
    levels = {name: c.labels for name, c in columns.items() if c.labels is not None}
    values = np.column_stack([column.values for column in columns.values()])
    table = Covariates(options.covariates, values, levels)
    if options.levels is None:
        return table
    return Covariates(table.names, table.relabelled(options.levels), options.levels)


# -------------------------------------------------------------------------- from rows to segments


@dataclass(frozen=True)
class _Links:
    """The state and the next state of every sorted row, -1 where unknown, and who begins."""

    state: Integers
    next_state: Integers
    begins: Flags


def _linked(rows: _Rows, columns: dict[str, Integers]) -> _Links:
    """What is known of states from their own row, the row before and the row after."""
    state = columns["state"].copy()
    begins = np.zeros(rows.size, np.bool_)
    begins[rows.offsets[:-1]] = True
    inside = ~begins[1:]
    next_state = columns.get("next_state")
    following = np.full(rows.size, -1)
    if next_state is None:
        following[:-1][inside] = state[1:][inside]
        return _Links(state, following, begins)
    both = inside & (next_state[:-1] >= 0) & (state[1:] >= 0)
    broken = np.append(both & (next_state[:-1] != state[1:]), False)[: rows.size]

    def why(row: int) -> str:
        later = row + 1 if rows.order is None else int(rows.order[row + 1])
        value = frames.cell(rows.columns["state"], later)
        return f"but the {rows.names['state']} of the following step is {value} (row {later})"

    rows.refuse(broken, "next_state", why)
    fill = inside & (state[1:] < 0)
    state[1:][fill] = next_state[:-1][fill]
    following = next_state.copy()
    fill = inside & (next_state[:-1] < 0)
    following[:-1][fill] = state[1:][fill]
    return _Links(state, following, begins)


def _ended(
    rows: _Rows, links: _Links, names: tuple[str, ...] | None
) -> tuple[int | None, tuple[str, ...] | None]:
    """Lead steps that ended an episode for good, without a next state, to a state of their own."""
    if "terminated" not in rows.columns:
        return None, names
    values = rows.floats("terminated")
    rows.refuse(~np.isin(values, (0.0, 1.0)), "terminated", "must be true or false")
    over = values == 1.0
    last = np.append(links.begins[1:], True)[: rows.size]
    rows.refuse(over & ~last, "terminated", "but the episode goes on in the next row")
    nowhere = over & (links.next_state < 0)
    if not nowhere.any():
        return None, names
    highest = max(int(links.state.max(initial=-1)), int(links.next_state.max(initial=-1))) + 1
    end = highest if names is None else len(names)
    if names is not None and END in names:
        end = names.index(END)
    elif names is not None:
        names = (*names, END)
    links.next_state[nowhere] = end
    return end, names


class _Segments(NamedTuple):
    """Episodes in the layout of `Trajectories`; `steps` are the sorted rows that are steps."""

    states: Integers
    steps: Integers
    offsets: Integers
    continues: Flags | None
    episode: Integers
    ends: int


def _segments(rows: _Rows, links: _Links, action: Integers) -> _Segments:
    """Cut episodes where steps are lost; one whose first step is lost begins with an empty one."""
    complete = (links.state >= 0) & (action >= 0)
    after_gap = np.concatenate([[True], ~complete[:-1]])[: rows.size]
    begins = links.begins | (complete & after_gap)
    first = np.flatnonzero(begins)
    before: Integers = np.cumsum(complete) - complete  # steps before each row
    steps = np.flatnonzero(complete)
    offsets = np.append(before[first], steps.size).astype(np.int64)
    empty = np.diff(offsets) == 0
    last = np.full(first.size, -1, np.int64)
    last[~empty] = links.next_state[steps[offsets[1:][~empty] - 1]]
    last[empty] = links.state[first[empty]]
    states = np.insert(links.state[steps], offsets[1:], last)
    continues = ~links.begins[first]
    episode = np.searchsorted(rows.offsets, first, side="right") - 1
    final = np.append(~continues[1:], True)[: continues.size] & ~empty
    ends = int((final & (last < 0)).sum())
    return _Segments(states, steps, offsets, continues if continues.any() else None, episode, ends)


# ---------------------------------------------------------------------------------------- rewards


def _rewards(rows: _Rows, steps: Integers, options: TableOptions) -> dict[str, Any]:
    """Rewards of the steps by index, -1 where missing, with their values, edges or amounts."""
    if options.rewards_are_indices:
        return {"rewards": rows.integers("reward")[steps], "reward_values": None}
    rewards = rows.floats("reward")[steps]
    if not options.informative_rewards:
        if options.reward_values is not None or options.reward_edges is not None:
            raise ValueError("rewards that say nothing about the context have no reward_values")
        unseen = np.zeros(steps.size, np.int64)
        return {"rewards": unseen, "reward_values": np.zeros(1), "amounts": rewards}
    filled = ~np.isnan(rewards)
    edges: Floats | None = None
    if options.reward_values is None:
        if options.reward_edges is not None:
            raise ValueError("reward_edges need reward_values, the means of the levels")
        distinct = np.unique(rewards[filled], return_counts=True)
        values, edges = reward_values_of_counts(*distinct, options.reward_levels)
    else:
        values = validation.reward_values(options.reward_values)
        if options.reward_edges is not None:
            edges = validation.reward_edges(options.reward_edges, values)
    codes = np.full(steps.size, -1, np.int64)
    if edges is not None:
        codes[filled] = np.searchsorted(edges, rewards[filled], side="right")
    else:
        codes[filled] = _matched(rows, steps[filled], rewards[filled], values)
    measured = {} if edges is None else {"amounts": rewards}  # levels are evidence, these are paid
    return {"rewards": codes, "reward_values": values, "reward_edges": edges, **measured}


def reward_values_of_counts(
    distinct: Floats, counts: Integers, levels: int | str | None
) -> tuple[Floats, Floats | None]:
    """The values of rewards, given the distinct ones in order and their counts, and any edges.

    `levels` as in `Trajectories.from_table`.
    """
    if levels not in ("auto", None) and (isinstance(levels, bool | str) or int(levels) < 1):
        raise ValueError(f"reward_levels must be 'auto', None or a positive number, got {levels!r}")
    most = MANY_VALUES if levels == "auto" else distinct.size if levels is None else int(levels)
    if distinct.size > most:
        return reward_levels_of(distinct, counts, LEVELS if levels == "auto" else most)
    return np.array([0.0, 1.0]) if np.isin(distinct, (0.0, 1.0)).all() else distinct, None


def _matched(rows: _Rows, steps: Integers, rewards: Floats, values: Floats) -> Integers:
    """The index of each reward among the values; each must be one of them."""
    order = np.argsort(values)
    nearest = np.minimum(np.searchsorted(values[order], rewards), values.size - 1)
    wrong = np.zeros(rows.size, np.bool_)
    wrong[steps[values[order][nearest] != rewards]] = True
    listing = values.tolist() if values.size <= 10 else [*values[:5].tolist(), "..."]
    rows.refuse(wrong, "reward", f"not one of the values {listing}")
    return np.asarray(order[nearest])


# -------------------------------------------------------------------------- from episodes to rows


def table_of(logs: Trajectories) -> dict[str, NDArray[Any]]:
    """The columns of logs, one row per step; see `Trajectories.to_table`."""
    individuals = logs.individuals()
    index = np.flatnonzero(np.bincount(individuals, logs.lengths) == 0)
    if index.size:
        raise TrajectoryError(
            f"episode {int(logs.beginnings()[index[0]])} has no steps, and a table holds one "
            "row per step: drop such episodes (logs[logs.lengths > 0]), or save the logs as "
            ".npz"
        )
    steps = logs.steps()
    rewards: NDArray[Any] = logs.values()
    if logs.reward_values is None and logs.rewards.min(initial=0) >= 0:
        rewards = logs.rewards
    rows: dict[str, NDArray[Any]] = {
        "state": steps.state,
        "action": logs.actions,
        "reward": rewards,
        "next_state": steps.next_state,
    }
    if logs.propensities is not None:
        rows["propensity"] = logs.propensities
    episode = steps.episode
    if logs.continues is not None:
        rows, episode = _with_lost_rows(logs, rows, episode)
    individual = individuals[episode]
    begins = np.searchsorted(individual, np.arange(logs.n_individuals))
    columns: dict[str, NDArray[Any]] = {
        "episode": individual if logs.episode_names is None else logs.episode_names[episode],
        "t": np.arange(individual.size) - begins[individual],
        **rows,
    }
    names = {"state": logs.state_names, "action": logs.action_names, "next_state": logs.state_names}
    columns |= {word: _named(columns[word], words) for word, words in names.items()}
    if logs.contexts is not None:
        columns["context"] = logs.contexts[episode]
    if logs.counts is not None:
        columns["count"] = logs.counts[episode]
    if logs.covariates is not None:
        for name, values in zip(logs.covariates.names, logs.covariates.values[episode].T):
            labels = logs.covariates.levels.get(name)
            codes = np.where(np.isnan(values), -1, values)
            columns[name] = values if labels is None else _named(codes.astype(np.int64), labels)
    return columns


def _with_lost_rows(
    logs: Trajectories, rows: dict[str, NDArray[Any]], episode: Integers
) -> tuple[dict[str, NDArray[Any]], Integers]:
    """The rows of a table with one more before each segment that continues another."""
    assert logs.continues is not None
    later = np.flatnonzero(logs.continues)
    before = logs.offsets[later]
    rows = {**rows, "reward": rows["reward"].astype(np.float64)}
    lost: dict[str, Any] = {
        "state": logs.last_states[later - 1],
        "action": -1,
        "next_state": logs.first_states[later],
    }
    longer = {n: np.insert(column, before, lost.get(n, np.nan)) for n, column in rows.items()}
    return longer, np.insert(episode, before, later)


def _named(codes: NDArray[Any], names: Sequence[str] | None) -> NDArray[Any]:
    """Indices by their names, or as they are; -1 becomes None, or NaN."""
    if names is not None:
        return np.array([*names, None], dtype=object)[codes]  # -1 picks the last, None
    if codes.min(initial=0) < 0:
        return np.where(codes < 0, np.nan, codes.astype(np.float64))
    return codes
