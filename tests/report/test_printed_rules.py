"""What a decision page prints is simulated, as read from its HTML, against what the page promises.

The rule is read by a parser of its own, from the words and percentages of the page alone, and
played step by step in sessions that only keep the belief.
"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.report import write_decision_page


class Page(HTMLParser):
    """The tables of a page as (title, rows of texts), and its paragraphs."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.captions, self._into = [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "strong":
            self.tables.append(("", []))
            self._into = "title"
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th") and self.tables:
            self.tables[-1][1][-1].append("")
            self._into = "cell"
        elif tag == "p" and attributes.get("class") == "caption":
            self.captions.append("")
            self._into = "caption"

    def handle_endtag(self, tag):
        if tag in ("td", "th", "strong", "p"):
            self._into = None

    def handle_data(self, text):
        if self._into == "title":
            self.tables[-1] = (text, [])
        elif self._into == "cell":
            self.tables[-1][1][-1][-1] += text
        elif self._into == "caption":
            self.captions[-1] += text


def read_rules(text, model):
    """(first, last, {state: (action, [[(share, action)] by context])}) of each table, and b."""
    phases, base = [], None
    for title, (header, *rows) in [t for t in Page(text).tables if t[1]]:
        if header[0] != "state":
            continue
        base = np.array([float(share) / 100 for share in re.findall(r"([\d.]+)%", header[1])])
        steps = [int(number) for number in re.findall(r"\d+", title)]
        first, last = (0, 10**9) if not steps else (steps[0], steps[-2])
        states = {}
        for state, action, *columns in rows:
            changes = [re.findall(r"(?:^|; )(.+?) from ([\d.]+)%", cell) for cell in columns]
            states[state] = action, [[(float(x) / 100, a) for a, x in c] for c in changes]
        phases.append((first, last, states))
    return phases, base


def simulated(model, phases, base, episodes):
    """Mean return of the printed rule, and its standard error; a blank cell must not occur."""
    states_called, actions_called = (
        getattr(model, f"{what}_names") or [f"{what} {i}" for i in range(size)]
        for what, size in (("state", model.n_states), ("action", model.n_actions))
    )
    rng, table, returns = np.random.default_rng(0), model.outcomes, np.zeros(episodes)
    contexts = rng.choice(model.n_contexts, p=model.weights, size=episodes)
    states = np.array([rng.choice(model.n_states, p=model.initial[m]) for m in contexts])
    session = lm.QMDP().plan(model).policy.batch_session(episodes)
    session.observe(states)
    for t in range(model.duration.cut_off(1e-4)):
        live = np.flatnonzero(~model.terminal[states])
        rules = next(rules for first, last, rules in phases if first <= t <= last)
        actions, paid, beliefs = np.zeros(episodes, int), np.zeros(episodes), session.beliefs
        for i in live:
            action, columns = rules[states_called[states[i]]]
            m = int(np.argmax(beliefs[i] - base))
            for share, other in columns[m]:
                action = other if beliefs[i, m] >= share else action
            actions[i] = actions_called.index(action)
            row = states[i] * model.n_actions + actions[i]
            chances = table.probs[table.starts[row] : table.starts[row + 1], contexts[i]]
            seen = table.starts[row] + rng.choice(chances.size, p=chances / chances.sum())
            states[i], paid[i] = table.next_state[seen], model.reward_values[table.reward[seen]]
        returns += model.discount**t * paid
        if not live.size or model.duration.is_over(t + 1):
            break
        session.observe(states, np.where(np.isin(np.arange(episodes), live), paid, 0.0), actions)
    return returns.mean(), returns.std() / np.sqrt(episodes)


def machines():
    """A machine that is run or repaired at a cost, without an end, wearing at one of two rates."""
    transitions = np.array([[[[1 - r, r], [1, 0]], [[0, 1], [0.8, 0.2]]] for r in (0.1, 0.7)])
    costs = np.array([[0.0, -2.0], [-5.0, -4.0]])
    return lm.LatentMDP.from_amounts(transitions, costs, horizon=None, discount=0.8, initial=0)


def pump():
    """The pump of docs/how-to/costs_to_risk.md."""
    transitions = np.zeros((3, 3, 3, 3))
    for m, (wear, mends) in enumerate(((0.05, 0.9), (0.3, 0.8), (0.3, 0.1))):
        transitions[m, 0, :2, :2] = [[1 - wear, wear], [1 - wear / 2, wear / 2]]
        transitions[m, 1, 0] = [0.0, 0.7, 0.3]
        transitions[m, 1, 1:, :2] = [[mends, 1 - mends], [0.95, 0.05]]
        transitions[m, 2, 2, 0] = 1.0
    return lm.LatentMDP.from_amounts(
        transitions,
        np.array([[0.0, -1.0, 0.0], [-2.0, -3.0, -8.0], [0.0, 0.0, -25.0]]),
        horizon=24,
        initial=0,
        weights=[0.6, 0.3, 0.1],
        allowed=[[True, True, False], [True, True, True], [False, False, True]],
        state_names=["fine", "leaking", "broken"],
        action_names=["run", "service", "overhaul"],
        context_names=["sound", "worn bearing", "corroded"],
    )


INSTANCES = {
    "treatment": lambda: lm.make("treatment"),
    "pump": pump,
    "without an end": machines,
    "6 x 40": lambda: lm.make("separated", 0, contexts=6, states=40, actions=2, horizon=5),
    "frozen-lake": lambda: lm.make("frozen-lake", horizon=20),
}


@pytest.mark.parametrize("name", INSTANCES)
def test_the_printed_rule_earns_what_the_page_says(tmp_path, name):
    """Within 2 % of the plan, or the page says what it loses; in any case the number holds."""
    model = INSTANCES[name]()
    plan = lm.HSVI(gap=0.01, time_limit=5.0).plan(model)
    write_decision_page(model, plan.policy, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    (note,) = [c for c in Page(text).captions if "as printed" in c]
    printed, own = (float(x) for x in re.findall(r"earns (-?[\d.]*\d)", note)[:2])
    mean, error = simulated(model, *read_rules(text, model), episodes=1_500)
    # Four standard errors of 1,500 episodes, and the rounding of what is printed.
    assert mean == pytest.approx(printed, abs=4.0 * error + 2e-3 * abs(printed))
    assert own == pytest.approx(plan.lower, rel=0.02, abs=4.0 * error)
    if own - printed > 0.02 * abs(own):
        assert "less" in note
    assert len(text) < 1_000_000
