"""The explorer does what a session does: the same actions, the same beliefs, and no request."""

import json
import re

import numpy as np
import pytest

import latentmdp as lm
from latentmdp.report.policy_page import write_explorer
from latentmdp.testing import random_model

STEPS = 1_000

FOLLOW = """async (walks) => {
  const shown = [];
  const click = (box, key) => document.querySelector(`#${box} button[data-key="${key}"]`).click();
  const pick = (state, reward) => {
    click("options", state);
    if (!document.getElementById("paid").hidden) click("amounts", reward);
  };
  for (const walk of walks) {
    document.getElementById("restart").click();
    const part = document.getElementById("part");
    if (part) { part.value = walk.part; part.dispatchEvent(new Event("change")); }
    pick(walk.first);
    const notes = [window.explorer.situation()];
    for (const [action, state, reward] of walk.steps) {
      const taken = document.getElementById("taken");
      taken.value = action;
      taken.dispatchEvent(new Event("change"));
      pick(state, reward);
      const told = window.explorer.situation();
      told.text = document.getElementById("action").textContent;
      notes.push(told);
    }
    shown.push(notes);
  }
  return shown;
}"""


def named_model():
    """Costs, names with odd characters, forbidden actions, a terminal state, hidden bonus."""
    model = random_model(
        3, contexts=3, states=6, actions=4, horizon=30, forbidden=0.4, n_terminal=1, zeros=0.5,
        reward_values=(-1.5, 0.0, 2.25), bonus=True, discount=0.97,
    )  # fmt: skip
    return model.replace(
        state_names=["<b>new</b>", "worn & old", 'says "hi"', "d", "</script>", "gone"],
        action_names=["wait", "repair", "replace it", "ask"],
        context_names=["good\\bad", "naïve", "<i>"],
    )


def policies():
    finite = lm.make("visitor")
    endless = random_model(
        8, contexts=4, states=5, actions=3, horizon=None, discount=0.9, zeros=0.3
    )
    named = named_model()
    return {
        "visitor": lm.HSVI(gap=0.05, time_limit=1.0).plan(finite).policy,
        "endless": lm.HSVI(gap=0.05, time_limit=1.0).plan(endless).policy,
        "named": lm.QMDP(smoothing=0.001).plan(named).policy,
        "drawn": lm.Robust("regret", gap=0.01, time_limit=2.0).plan(finite).policy,
        "drawn-endless": lm.Robust("regret", gap=0.02, time_limit=2.0).plan(endless).policy,
    }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The policies, each with its page."""
    folder, found = tmp_path_factory.mktemp("explorer"), policies()
    for name, policy in found.items():
        write_explorer(policy, folder / f"{name}.html", title=f"Explorer <{name}>")
    return {name: (policy, (folder / f"{name}.html").as_uri()) for name, policy in found.items()}


def random_walks(policy, rng, deviate=0.2):
    """Episodes of STEPS steps in all; now and then another action is taken."""
    model, walks, left = policy.model, [], STEPS
    table, A = model.outcomes, model.n_actions
    beginnings = np.flatnonzero((model.initial.max(axis=0) > 0.0) & ~model.terminal)
    while left > 0:
        followed, part = policy, 0
        if isinstance(policy, lm.MixturePolicy):
            part = int(rng.integers(policy.weights.size))
            followed = policy.parts[part]
        session, state = followed.session(), int(rng.choice(beginnings))
        session.observe(state)
        walk = {"part": part, "first": state, "steps": []}
        notes = [(session.belief, session.act_index())]
        likely = model.weights * model.initial[:, state]
        context = rng.choice(model.n_contexts, p=likely / likely.sum())
        for _ in range(min(left, 250)):
            action = session.act_index()
            if rng.random() < deviate:
                action = int(rng.choice(np.flatnonzero(model.allowed[state])))
            row = slice(*table.starts[state * A + action : state * A + action + 2])
            chances = table.probs[row, context]
            k = rng.choice(chances.size, p=chances / chances.sum())
            seen = int(table.next_state[row][k]), int(table.reward[row][k])
            state, z = seen
            session.observe(state, float(model.reward_values[z]), action=action)
            walk["steps"].append((action, state, z))
            notes.append((session.belief, None if session.over else session.act_index()))
            left -= 1
            if session.over:
                break
        walks.append((walk, notes))
    return walks


@pytest.mark.parametrize("name", ["visitor", "endless", "named", "drawn", "drawn-endless"])
def test_a_thousand_random_steps_are_those_of_a_session(written, visit, name):
    policy, address = written[name]
    page, events = visit(address)
    walks = random_walks(policy, np.random.default_rng(7))
    shown = page.evaluate(FOLLOW, [walk for walk, _ in walks])
    assert sum(len(notes) - 1 for notes in shown) == STEPS
    for (walk, notes), seen in zip(walks, shown):
        for t, ((belief, action), told) in enumerate(zip(notes, seen)):
            assert told["action"] == action, (walk, t)
            assert told["t"] == t
            np.testing.assert_allclose(told["belief"], belief, rtol=0.0, atol=1e-9)
            names = policy.model.action_names
            if t > 0 and action is not None:
                assert told["text"] == (f"action {action}" if names is None else names[action])
    assert events == {"said": [], "asked": [address]}


def test_margin_and_values_are_those_of_explain(written, visit):
    for name in ("visitor", "endless", "named"):
        policy, address = written[name]
        page, _ = visit(address)
        model = policy.model
        for walk, notes in random_walks(policy, np.random.default_rng(3))[:2]:
            walk["steps"], notes = walk["steps"][:6], notes[:7]
            [shown] = page.evaluate(FOLLOW, [walk])
            states = [walk["first"], *(n for _, n, _ in walk["steps"])]
            for t, ((belief, action), told) in enumerate(zip(notes, shown)):
                if action is None:
                    continue
                expected = lm.explain(model, policy, states[t], belief, t)
                assert told["margin"] == pytest.approx(expected.margin, abs=1e-9)
                np.testing.assert_allclose(told["byContext"], expected.by_context, atol=1e-9)


def test_of_a_mixture_the_reader_says_what_was_drawn(written, visit):
    policy, address = written["drawn"]
    assert policy.weights.size > 1
    page, events = visit(address)
    page.locator("#options button").first.click()
    state = page.evaluate("window.explorer.situation().state")
    told = lm.explain(policy.model, policy, state)
    for i, part in enumerate(told.parts):
        page.select_option("#part", str(i))
        shown = page.evaluate("window.explorer.situation()")
        assert (shown["part"], shown["action"], shown["t"]) == (i, part.action, 0)
        assert shown["margin"] == pytest.approx(part.margin, abs=1e-9)
        np.testing.assert_allclose(shown["byContext"], part.by_context, atol=1e-9)
        assert f"policy {i + 1} recommends" in page.text_content("#where")
    page.locator("#options button").first.click()
    if page.locator("#paid").is_visible():
        page.locator("#amounts button").first.click()
    page.click("#copy")
    again, _ = visit(page.url)
    assert again.evaluate("window.explorer.situation()") == page.evaluate(
        "window.explorer.situation()"
    )
    counts = page.evaluate(
        """() => {
          const found = Array(document.getElementById("part").options.length).fill(0);
          for (let i = 0; i < 1000; i++) {
            document.getElementById("draw").click();
            found[window.explorer.situation().part] += 1;
          }
          return found;
        }"""
    )
    # six standard errors of a share are at most 0.095
    np.testing.assert_allclose(np.array(counts) / 1000, policy.weights, atol=0.095)
    wrong, _ = visit(page.url.replace(f".{policy.weights.size - 1}", ".99", 1))
    assert "another policy" in wrong.text_content("#notice")
    assert events == {"said": [], "asked": [address]}


def test_beliefs_too_small_for_a_number_wake_up_again(tmp_path, visit):
    """A context that loses by 2^-1000 and more sleeps, and is believed again when it must be."""
    towards = np.array([[1.0 - 1e-9, 1e-9], [1e-9, 1.0 - 1e-9]])
    transitions = np.broadcast_to(towards[:, None, None, :], (2, 2, 1, 2))
    model = lm.LatentMDP(transitions, np.zeros((2, 2, 1)), initial=0, horizon=400)
    policy = lm.AlphaVectorPolicy(
        np.tile(np.eye(2), (800, 1)), [0] * 1600, range(0, 1601, 2), model
    )
    write_explorer(policy, tmp_path / "page.html")
    page, _ = visit((tmp_path / "page.html").as_uri())
    walk = {"first": 0, "steps": [(0, 0, 0)] * 150 + [(0, 1, 0)] * 170}
    [shown] = page.evaluate(FOLLOW, [walk])
    session = policy.session()
    session.observe(0)
    for told, (action, state, _) in zip(shown[1:], walk["steps"]):
        session.observe(state, 0.0, action=action)
        np.testing.assert_allclose(told["belief"], session.belief, rtol=0.0, atol=1e-12)
    assert session.belief[1] > 0.99


def crowd():
    """Forty named states, of which few can follow; amounts of two sizes; few steps."""
    S = 40
    transitions = np.zeros((2, S, 2, S))
    for s in range(S):
        for m in range(2):
            transitions[m, s, :, (s + 1) % S] = 0.3 + 0.4 * m
            transitions[m, s, :, (s + 2) % S] = 0.7 - 0.4 * m
    rewards = np.zeros((2, S, 2))
    rewards[0, ::2, 0] = rewards[1, 1::2, 1] = 0.6
    names = [f"place {s:02d}" for s in range(S)]
    return lm.LatentMDP(transitions, rewards, initial=np.ones(S) / S, horizon=6, state_names=names)


def test_typing_filters_and_what_is_impossible_changes_nothing(tmp_path, visit):
    policy = lm.QMDP().plan(crowd()).policy
    write_explorer(policy, tmp_path / "page.html", unit="k€")
    page, events = visit((tmp_path / "page.html").as_uri())
    assert page.locator("#options button").count() == 40
    page.fill("#typed", "place 1")
    assert page.locator("#options button").count() == 10
    page.fill("#typed", "12")
    page.press("#typed", "Enter")
    assert page.evaluate("window.explorer.situation().state") == 12
    before = page.evaluate("window.explorer.situation()")
    for typed, told in (("place 30", "impossible here"), ("the moon", "the name of no state")):
        page.fill("#typed", typed)
        page.press("#typed", "Enter")
        assert told in page.text_content("#refused")
        assert page.evaluate("window.explorer.situation()") == before
    page.fill("#typed", "13")
    page.press("#typed", "Enter")
    assert page.text_content("#paid-question") == "What was paid, on the way to place 13?"
    assert page.locator("#amounts button span:first-child").all_text_contents()[0].endswith(" k€")
    page.locator("#amounts button").first.click()
    assert page.evaluate("window.explorer.situation().t") == 1
    bars = page.eval_on_selector_all(".belief", "all => all.map(e => e.ariaLabel)")
    assert len(bars) == 2
    assert bars[0] == "context 0 50.0 %, context 1 50.0 %"
    assert events["said"] == []


def test_what_would_change_it_is_what_explain_says(written, visit):
    policy, address = written["visitor"]
    page, _ = visit(address)
    page.locator("#options button").first.click()
    state = page.evaluate("window.explorer.situation().state")
    told = lm.explain(policy.model, policy, state)
    names = policy.model.context_names
    expected = {
        (policy.model.action_names[point.action], names[point.context])
        for point in told.turning_points
        if point.belief is not None
    }
    lines = page.locator("#changes li").all_text_contents()
    found = {tuple(line.split(" were ")[0].split(", if ")) for line in lines}
    assert found
    assert found <= expected


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_every_screen(written, visit, width, scheme):
    for _, address in written.values():
        page, events = visit(address)
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        for _ in range(3):
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.locator("#options button:visible, #amounts button:visible").first.click()
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", background)[:3])) > 384
        assert light == (scheme == "light")
        assert events == {"said": [], "asked": [address]}


def test_undo_keyboard_and_links(written, visit):
    _, address = written["visitor"]
    page, events = visit(address)
    page.keyboard.press("1")
    page.keyboard.press("2")
    page.keyboard.press("1")
    before = page.evaluate("window.explorer.situation()")
    assert before["t"] == 2
    page.click("#copy")
    page.wait_for_function("document.querySelector('#copied').textContent.startsWith('The link')")
    link = page.url
    assert "#" in link
    page.keyboard.press("u")
    assert page.evaluate("window.explorer.situation().t") == 1
    page.click("#undo")
    page.click("#restart")
    assert page.evaluate("window.explorer.situation().t") is None
    again, said = visit(link)
    assert again.evaluate("window.explorer.situation()") == before
    assert again.locator("#history li").count() == 3
    again.focus("#options button")
    again.keyboard.press("Enter")
    assert again.evaluate("document.activeElement.closest('#options') !== null")
    mailed, _ = visit(link.replace(";", "%3B").replace(":0%", "%3A0%"))
    assert mailed.evaluate("window.explorer.situation()") == before
    whose = link.partition("#")[2].partition(":")[0]
    for history in ("00000000:0;1.2.0", f"{whose}:0;9.9.9", f"{whose}:0;1", f"{whose}:x", "%"):
        wrong, complained = visit(f"{address}#{history}")
        assert "another policy" in wrong.text_content("#notice"), history
        assert wrong.evaluate("window.explorer.situation().t") is None
        assert complained["said"] == []
    assert events["said"] == said["said"] == []


def test_names_are_shown_as_they_are(written, visit):
    policy, address = written["named"]
    page, _ = visit(address)
    assert page.title() == "Explorer <named>"
    contexts = page.locator("#belief tbody th").all_text_contents()
    assert contexts == list(policy.model.context_names)
    initial = lm.belief.filter_tables(policy.model, policy.smoothing).initial  # (S, M)
    possible = initial.max(axis=1) > 0.0
    states = page.locator("#options button span:first-child").all_text_contents()
    assert sorted(states) == sorted(np.array(policy.model.state_names)[possible])


def test_a_markov_policy_has_a_page_too(tmp_path, visit):
    model = named_model()
    policy = lm.MarkovPolicy(model.allowed.argmax(axis=1))
    write_explorer(policy, tmp_path / "page.html", model=model)
    page, events = visit((tmp_path / "page.html").as_uri())
    page.locator('#options button[data-key="1"]').click()
    told = page.evaluate("window.explorer.situation()")
    expected = lm.explain(model, policy, 1)
    assert told["action"] == expected.action
    assert told["margin"] == pytest.approx(expected.margin, abs=1e-9)
    np.testing.assert_allclose(told["belief"], expected.belief, atol=1e-12)
    assert "does not look at the belief" in page.text_content("#margin")
    assert events["said"] == []


# --------------------------------------------------------------------------- without a browser


def data_of(path):
    text = path.read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_holds_everything_and_names_no_host(tmp_path):
    policy = lm.QMDP().plan(named_model()).policy
    write_explorer(policy, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text
    assert data_of(tmp_path / "page.html")["stateNames"] == list(named_model().state_names)


def test_what_has_no_page_is_refused(tmp_path):
    model = random_model(0)
    out = tmp_path / "page.html"
    with pytest.raises(TypeError, match="draws its actions"):
        write_explorer(lm.UniformPolicy(), out, model=model)
    with pytest.raises(ValueError, match="give model="):
        write_explorer(lm.MarkovPolicy([0, 0, 0]), out)
    wide = lm.make("random", 0, contexts=20, states=60, actions=8, horizon=300)
    told = r"would be 42 MiB: 144,000 vectors take 30\.1 MiB.*plan\.compact"
    with pytest.raises(ValueError, match=told):
        write_explorer(lm.QMDP().plan(wide).policy, out)
    assert not out.exists()
