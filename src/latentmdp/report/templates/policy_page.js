"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { contexts: M, states: S, actions: A, rewards: Z } = data.sizes;

  // ------------------------------------------------------------------------------------- the data

  const buffer = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const floats = (text) => new Float64Array(buffer(text));
  const integers = (text) => new Int32Array(buffer(text));

  const starts = integers(data.starts), nextState = integers(data.nextState);
  const reward = integers(data.reward), labels = integers(data.labels);
  const offsets = integers(data.offsets);
  const likelihood = floats(data.likelihood), prior = floats(data.prior);
  const initial = floats(data.initial), rewardValues = floats(data.rewardValues);
  const vectors = floats(data.vectors), bonus = data.bonus === null ? null : floats(data.bonus);
  // A policy graph goes from node to node; a mixture has first nodes for each policy in it.
  const graph = data.first === undefined ? null : {
    nodeStarts: integers(data.nodeStarts), followers: integers(data.followers),
    stays: integers(data.stays),
    first: integers(data.first), weights: data.weights || [1],
  };

  const named = (names, what, i) => (names === null ? `${what} ${i}` : names[i]);
  const contextName = (m) => named(data.contextNames, "context", m);
  const stateName = (s) => named(data.stateNames, "state", s);
  const actionName = (a) => named(data.actionNames, "action", a);

  const allows = (s, a) => starts[s * A + a + 1] > starts[s * A + a];
  const allowed = (s) => [...Array(A).keys()].filter((a) => allows(s, a));
  const terminal = (s) => starts[(s + 1) * A] === starts[s * A];
  const over = (t, s) => terminal(s) || (data.horizon !== null && t >= data.horizon);

  // ---------------------------------------------------------------------------------- the filter
  // The order of operations is that of the compiled filter. A context whose belief is too small
  // for a number sleeps: its belief is mantissa 2^(-512 level), and it may wake up again.

  const FAINT = 2 ** -500, SLEEP = 500, LEVEL = 512;
  const view = new DataView(new ArrayBuffer(8));

  /** x = mantissa 2^exponent with the mantissa in [1/2, 1). */
  function frexp(x) {
    if (x === 0) return [0, 0];
    let shift = 0;
    if (x < 2 ** -1000) { x *= 2 ** 54; shift = 54; }
    view.setFloat64(0, x);
    const high = view.getUint32(0);
    view.setUint32(0, (high & 0x800fffff) | 0x3fe00000);
    return [view.getFloat64(0), ((high >>> 20) & 0x7ff) - 1022 - shift];
  }

  function ldexp(x, exponent) {
    for (; exponent < -1000; exponent += 1000) x *= 2 ** -1000;
    return x * 2 ** exponent;
  }

  const blank = () => ({
    awake: new Float64Array(M), mantissa: new Float64Array(M), level: new Float64Array(M),
  });

  /** The belief after likelihoods table[row]; null if they are zero wherever the belief is not. */
  function conditioned(belief, table, row) {
    const { awake, level } = belief, at = row * M;
    let total = 0, care = false;
    for (let m = 0; m < M; m++) total += awake[m] * table[at + m];
    const least = total * FAINT;
    for (let m = 0; m < M; m++) {
      const product = awake[m] * table[at + m];
      if (level[m] > 0 || (awake[m] > 0 && table[at + m] > 0 && product < least)) care = true;
    }
    if (care || total < FAINT) return conditionedAsleep(belief, table, at);
    const next = blank(), scale = 1 / total;
    for (let m = 0; m < M; m++) next.awake[m] = awake[m] * table[at + m] * scale;
    return next;
  }

  function conditionedAsleep(belief, table, at) {
    const products = [];
    let highest = -Infinity;
    for (let m = 0; m < M; m++) {
      const asleep = belief.level[m] > 0;
      const [weight, bits] = frexp(asleep ? belief.mantissa[m] : belief.awake[m]);
      const [share, shareBits] = frexp(table[at + m]);
      const never = weight === 0 || share === 0;
      products[m] = [weight * share, never ? -Infinity : bits + shareBits - LEVEL * belief.level[m]];
      highest = Math.max(highest, products[m][1]);
    }
    if (highest === -Infinity) return null;
    const next = blank();
    let total = 0;
    products.forEach(([mantissa, exponent], m) => {
      if (exponent === -Infinity) return;
      if (exponent - highest > -SLEEP) {
        next.awake[m] = ldexp(mantissa, exponent - highest);
        total += next.awake[m];
      } else {
        next.level[m] = Math.floor((highest - exponent) / LEVEL) + 1;
        next.mantissa[m] = ldexp(mantissa, exponent - highest + LEVEL * next.level[m]);
      }
    });
    for (let m = 0; m < M; m++) {
      next.awake[m] /= total;
      next.mantissa[m] /= total;
    }
    return next;
  }

  function begun(s) {
    const belief = blank();
    belief.awake.set(prior);
    return conditioned(belief, initial, s) || belief;
  }

  /** The outcome of a step in the table; -1 if it is not listed. */
  function outcome(s, a, n, z) {
    let begin = starts[s * A + a], end = starts[s * A + a + 1];
    const last = end, key = n * Z + z;
    while (begin < end) {
      const middle = (begin + end) >> 1;
      if (nextState[middle] * Z + reward[middle] < key) begin = middle + 1;
      else end = middle;
    }
    return begin < last && nextState[begin] * Z + reward[begin] === key ? begin : -1;
  }

  /** The belief after a step; as it was if the step is impossible, or equally likely in all. */
  function observed(belief, s, a, n, z) {
    const k = outcome(s, a, n, z);
    return (k >= 0 && conditioned(belief, likelihood, k)) || belief;
  }

  /** Whether a first state, or a step, is possible in some context that is still believed in. */
  const canBegin = (s) => prior.some((share, m) => share > 0 && initial[s * M + m] > 0);
  function canFollow(belief, s, a, n, z) {
    const k = outcome(s, a, n, z);
    return k >= 0 && conditioned(belief, likelihood, k) !== null;
  }

  const unsmoothed = 1 / (1 - data.smoothing * S * Z);
  /** P_m(outcome k): the likelihood without the filter's smoothing. */
  function chance(k, m) {
    const share = likelihood[k * M + m];
    return data.smoothing > 0 ? Math.max(0, (share - data.smoothing) * unsmoothed) : share;
  }

  // -------------------------------------------------------------------------------- the decision

  /** The vector that is followed: the first of those with the largest product. */
  function followed(t, s, awake) {
    const group = (data.layers > 1 ? t : 0) * S + s;
    let winner = offsets[group], best = -Infinity;
    if (offsets[group + 1] - winner === 1) return winner;
    for (let k = offsets[group]; k < offsets[group + 1]; k++) {
      let value = 0;
      for (let m = 0, at = k * M; m < M; m++, at++) value += vectors[at] * awake[m];
      if (value > best) { best = value; winner = k; }
    }
    return winner;
  }

  /** Beliefs that change the action: for each context, how likely it must become, all else in
      proportion. The best vector along the way to certainty changes where two lines cross. */
  function turningPoints(t, s, awake) {
    const group = (data.layers > 1 ? t : 0) * S + s, points = [];
    const begin = offsets[group], end = offsets[group + 1], now = followed(t, s, awake);
    const here = Array.from({ length: end - begin }, (_, i) => {
      let value = 0;
      for (let m = 0; m < M; m++) value += vectors[(begin + i) * M + m] * awake[m];
      return value;
    });
    for (let m = 0; m < M; m++) {
      for (let k = now, x = 0; ;) {
        const slope = (j) => vectors[j * M + m] - here[j - begin];
        let next = -1, at = 1;
        for (let j = begin; j < end; j++) {
          if (slope(j) <= slope(k)) continue;
          const meet = (here[k - begin] - here[j - begin]) / (slope(j) - slope(k));
          if (meet >= x && meet < at) { at = meet; next = j; }
        }
        if (next < 0) break;
        if (labels[next] !== labels[now]) {
          points.push({ context: m, share: (1 - at) * awake[m] + at, action: labels[next] });
          break;
        }
        k = next;
        x = at;
      }
    }
    return points.sort((one, two) => (one.share - awake[one.context]) - (two.share - awake[two.context]));
  }

  /** The node of a graph after outcome k, with which state n is reached at time t. */
  function nextNode(node, s, a, k, t, n, awake) {
    if (k >= 0 && node >= 0 && labels[node] === a) {
      if (graph.stays[node]) {  // at its place among the nodes of the next state
        const here = data.layers > 1 ? (t - 1) * S + s : s, next = data.layers > 1 ? t * S + n : n;
        return over(t, n) ? -1 : offsets[next] + node - offsets[here];
      }
      return graph.followers[graph.nodeStarts[node] + k - starts[s * A + a]];
    }
    return over(t, n) ? -1 : followed(t, n, awake);
  }

  /** What an action is worth by one step of lookahead: under the belief, and by context. */
  function worth({ t, state: s, belief, node }, a) {
    const byContext = new Float64Array(M);
    for (let k = starts[s * A + a]; k < starts[s * A + a + 1]; k++) {
      const n = nextState[k];
      let at = -1;
      if (!over(t + 1, n)) {
        const { awake } = conditioned(belief, likelihood, k) || belief;
        const next = graph === null
          ? followed(t + 1, n, awake) : nextNode(node, s, a, k, t + 1, n, awake);
        at = next * M;
      }
      for (let m = 0; m < M; m++) {
        const later = at < 0 ? 0 : data.discount * vectors[at + m];
        byContext[m] += chance(k, m) * (rewardValues[reward[k]] + later);
      }
    }
    if (bonus !== null) for (let m = 0; m < M; m++) byContext[m] += bonus[(m * S + s) * A + a];
    const value = byContext.reduce((sum, v, m) => sum + belief.awake[m] * v, 0);
    return { action: a, value, byContext };
  }

  // --------------------------------------------------------------------------------- the history
  // steps[0] is the first state; every later one holds what was done and seen, and the belief then.

  // `part` is the policy of a mixture that is followed.

  let steps = [], part = 0;
  const now = () => steps[steps.length - 1];
  const mixes = graph !== null && graph.weights.length > 1;

  function begin(s) {
    const node = graph === null ? -1 : graph.first[part * S + s];
    steps = [{ t: 0, state: s, belief: begun(s), node }];
  }

  function add(a, n, z) {
    const { t, state, belief, node } = now(), k = outcome(state, a, n, z);
    const after = observed(belief, state, a, n, z);
    const next = graph === null ? -1 : nextNode(node, state, a, k, t + 1, n, after.awake);
    steps.push({
      t: t + 1, state: n, belief: after, action: a, reward: z, node: next,
    });
  }

  function recommended() {
    const { t, state, belief, node } = now();
    if (over(t, state)) return null;
    return labels[graph === null ? followed(t, state, belief.awake) : node];
  }

  /** The same history, had another policy of the mixture been drawn. */
  function followInstead(other) {
    const before = steps;
    part = other;
    if (before.length === 0) return;
    begin(before[0].state);
    for (const { action, state, reward: z } of before.slice(1)) add(action, state, z);
  }

  function randomPart() {
    const uniform = crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;
    let i = 0, reached = graph.weights[0];
    while (i < graph.weights.length - 1 && uniform >= reached) reached += graph.weights[++i];
    return i;
  }

  const written = () =>
    `${data.fingerprint}:` +
    steps.map((s, i) => (i > 0 ? `${s.action}.${s.state}.${s.reward}`
      : mixes ? `${s.state}.${part}` : s.state)).join(";");

  /** Replay the history of a link; false if it is not one of this policy. */
  function replay(text) {
    const [fingerprint, path] = text.split(":");
    if (fingerprint !== data.fingerprint || !path) return false;
    const parts = path.split(";").map((part) => part.split(".").map(Number));
    const within = (i, size) => Number.isInteger(i) && i >= 0 && i < size;
    const [first, other] = parts[0];
    if (parts[0].length !== (mixes ? 2 : 1) || !within(first, S) || !canBegin(first)) return false;
    if (mixes && !within(other, graph.weights.length)) return false;
    part = mixes ? other : 0;
    begin(first);
    for (const [a, n, z] of parts.slice(1)) {
      const { t, state, belief } = now();
      const fits = within(a, A) && within(n, S) && within(z, Z);
      if (!fits || over(t, state) || !canFollow(belief, state, a, n, z)) { steps = []; return false; }
      add(a, n, z);
    }
    return true;
  }

  // ------------------------------------------------------------------------------------ the page

  const find = (id) => document.getElementById(id);
  const percent = (p) =>
    p > 0 && p < 0.001 ? "< 0.1 %" : p < 1 && p > 0.999 ? "> 99.9 %" : `${(100 * p).toFixed(1)} %`;
  const rounded = (x) => String(Number(x.toPrecision(4)));
  const MOST_STEPS = 50, FEW = 9, CLOSE = 0.01;
  const COLOURS = ["#0072b2", "#c25e00", "#00855f", "#a33d87", "#8a6d00", "#3b52c4", "#b3243b"];
  const amount = (x) => rounded(x) + (data.unit ? ` ${data.unit}` : "");

  function element(tag, text, attributes = {}) {
    const created = document.createElement(tag);
    created.textContent = text;
    for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
    return created;
  }

  function fill(select, entries) {
    select.replaceChildren(...entries.map(([value, text]) => element("option", text, { value })));
  }

  const rewardText = (z) => amount(rewardValues[z]);
  const observation = (n, z) => stateName(n) + (Z > 1 ? `, paid ${rewardText(z)}` : "");

  function showAdvice(action, choices) {
    showChanges(action);
    if (steps.length === 0) {
      find("where").textContent = "Before the first observation";
      find("action").textContent = "Pick the first state";
      find("margin").textContent = "";
      return;
    }
    const { t, state } = now();
    const clock = data.horizon === null ? `Step ${t}` : `Step ${t} of ${data.horizon}`;
    const by = mixes ? `policy ${part + 1} recommends` : "recommended is";
    find("where").textContent = `${clock}, in ${stateName(state)}: ${by}`;
    if (action === null) {
      const why = terminal(state) ? `${stateName(state)} is terminal` : "the last step is done";
      find("where").textContent = `${clock}, in ${stateName(state)}`;
      find("action").textContent = "The episode is over";
      find("margin").textContent = `There is nothing left to choose: ${why}.`;
      return;
    }
    find("action").textContent = actionName(action);
    find("margin").textContent = marginText(action, choices);
  }

  function showChanges(action) {
    const points = action === null || graph !== null || !data.usesBelief
      ? [] : turningPoints(now().t, now().state, now().belief.awake);
    find("changes").hidden = points.length === 0;
    find("changes").querySelector("ul").replaceChildren(...points.slice(0, 5).map((point) => element(
      "li",
      `${actionName(point.action)}, if ${contextName(point.context)} were ` +
        `${percent(point.share)} likely or more (now ${percent(now().belief.awake[point.context])})`,
    )));
  }

  function marginOf(action, choices) {
    const others = choices.filter((c) => c.action !== action);
    if (others.length === 0) return null;
    const other = others.reduce((best, c) => (c.value > best.value ? c : best));
    return { other, by: choices.find((c) => c.action === action).value - other.value };
  }

  function marginText(action, choices) {
    const margin = marginOf(action, choices);
    const blind = data.usesBelief ? "" : graph !== null
      ? " This policy goes on by what was seen, not by the belief."
      : " This policy does not look at the belief.";
    if (margin === null) return `There is no other action.${blind}`;
    const { other, by } = margin, name = actionName(other.action);
    if (by === 0) return `It is worth as much as ${name}.${blind}`;
    if (by < 0) return `One step of lookahead prefers ${name}, by ${amount(-by)}.${blind}`;
    const close = by < CLOSE * Math.abs(other.value)
      ? ` A close call: that is less than 1 % of what can be earned from here.` : "";
    return `It is worth ${amount(by)} more than the next best, ${name}.${close}${blind}`;
  }

  function showBelief() {
    const awake = steps.length === 0 ? prior : now().belief.awake;
    const rows = Array.from(awake, (share, m) => {
      const row = element("tr", "");
      const bar = element("div", "", { class: "bar" });
      bar.style.width = `${100 * share}%`;
      bar.style.background = COLOURS[m % COLOURS.length];
      const cell = element("td", "");
      cell.append(bar);
      row.append(element("th", contextName(m), { scope: "row" }), element("td", percent(share)), cell);
      return row;
    });
    find("belief").tBodies[0].replaceChildren(...rows);
  }

  function showValues(action, choices) {
    find("values").hidden = choices.length === 0;
    if (choices.length === 0) return;
    find("values-note").textContent =
      "What each action is worth from here on, by one step of lookahead: under the belief, and in " +
      "each context.";
    const head = element("tr", "");
    head.append(element("th", "worth", { scope: "col" }));
    for (const c of choices) {
      head.append(element("th", actionName(c.action), { scope: "col" }));
    }
    const line = (name, entry, chosen) => {
      const row = element("tr", "", chosen ? { class: "chosen" } : {});
      row.append(element("th", name, { scope: "row" }));
      for (const c of choices) row.append(element("td", amount(entry(c))));
      return row;
    };
    find("by-action").tHead.replaceChildren(head);
    find("by-action").tBodies[0].replaceChildren(
      line("under the belief", (c) => c.value, true),
      ...Array.from({ length: M }, (_, m) => line(`in ${contextName(m)}`, (c) => c.byContext[m])),
    );
  }

  function firstStates() {
    const chances = Array.from({ length: S }, (_, s) => {
      let total = 0;
      for (let m = 0; m < M; m++) total += prior[m] * initial[s * M + m];
      return { key: s, text: stateName(s), chance: total };
    });
    return chances.filter((c) => c.chance > 0);
  }

  /** What may follow an action: states with how likely they are, or what is paid with one of them. */
  function observations(a, arrived = null) {
    const { state, belief } = now(), totals = new Map();
    for (let k = starts[state * A + a]; k < starts[state * A + a + 1]; k++) {
      if (arrived !== null && nextState[k] !== arrived) continue;
      let total = 0;
      for (let m = 0; m < M; m++) total += belief.awake[m] * chance(k, m);
      const key = arrived === null ? nextState[k] : reward[k];
      if (canFollow(belief, state, a, nextState[k], reward[k])) totals.set(key, (totals.get(key) || 0) + total);
    }
    const text = arrived === null ? stateName : rewardText;
    return Array.from(totals, ([key, chance]) => ({ key, text: text(key), chance }));
  }

  function buttons(box, entries) {
    const order = entries.sort((one, two) => two.chance - one.chance);
    const all = order.reduce((sum, entry) => sum + entry.chance, 0) || 1;
    box.replaceChildren(
      ...order.map((entry) => {
        const button = element("button", "", { type: "button", "data-key": entry.key });
        button.append(element("span", entry.text));
        button.append(element("span", percent(entry.chance / all), { class: "chance" }));
        return button;
      }),
    );
  }

  let possible = [];
  /** The possible states whose names hold what was typed; says so where it names none of them. */
  function filter() {
    const typed = find("typed").value.trim().toLowerCase();
    const shown = possible.filter((entry) => entry.text.toLowerCase().includes(typed));
    buttons(find("options"), shown);
    const known = Array.from({ length: S }, (_, s) => stateName(s).toLowerCase()).some((name) => name.includes(typed));
    const why = known ? "is impossible here in every model that is still likely" : "is the name of no state";
    find("refused").textContent = shown.length || !typed
      ? "" : `“${find("typed").value.trim()}” ${why}: nothing was changed.`;
    return shown;
  }

  function showStates(entries) {
    possible = entries;
    find("typed").value = "";
    find("entry").hidden = entries.length <= FEW && S <= FEW;
    find("paid").hidden = true;
    find("options").hidden = false;
    filter();
  }

  const taken = () => Number(find("taken").value);
  function showPick(action) {
    const started = steps.length > 0, done = started && action === null;
    find("pick").hidden = done;
    if (done) return;
    find("question").textContent = started ? "What was observed next?" : "What is the first state?";
    find("taken-line").hidden = !started;
    if (!started) {
      showStates(firstStates());
      return;
    }
    const entries = allowed(now().state).map((a) => [
      a, actionName(a) + (a === action ? " (recommended)" : ""),
    ]);
    fill(find("taken"), entries);
    find("taken").value = action;
    showStates(observations(action));
  }

  function showHistory() {
    const first = Math.max(0, steps.length - MOST_STEPS);
    find("earlier").hidden = first === 0;
    find("earlier").textContent = `${first} earlier steps are not shown.`;
    const list = find("history");
    list.start = first;
    list.replaceChildren(
      ...steps.slice(first).map((step, i) => {
        const text = first + i === 0 ? `began in ${stateName(step.state)}`
          : `${actionName(step.action)}, then ${observation(step.state, step.reward)}`;
        const item = element("li", text), bar = element("div", "", { class: "belief", role: "img" });
        const shares = Array.from(step.belief.awake);
        bar.setAttribute("aria-label", shares.map((share, m) => `${contextName(m)} ${percent(share)}`).join(", "));
        bar.append(...shares.map((share, m) => {
          const part = element("span", "", { title: `${contextName(m)} ${percent(share)}` });
          part.style.cssText = `width: ${100 * share}%; background: ${COLOURS[m % COLOURS.length]}`;
          return part;
        }));
        item.append(bar);
        return item;
      }),
    );
    find("undo").disabled = find("restart").disabled = steps.length === 0;
  }

  let situation = {};
  function show() {
    const action = steps.length === 0 ? null : recommended();
    let choices = [];
    if (action !== null) {
      choices = allowed(now().state).map((a) => worth(now(), a));
      choices.sort((one, two) => (two.action === action) - (one.action === action) || two.value - one.value);
    }
    if (mixes) find("part").value = part;
    showAdvice(action, choices);
    showPick(action);
    showBelief();
    showValues(action, choices);
    showHistory();
    const margin = action === null ? null : marginOf(action, choices);
    situation = {
      t: steps.length === 0 ? null : now().t,
      state: steps.length === 0 ? null : now().state,
      action,
      belief: Array.from(steps.length === 0 ? prior : now().belief.awake),
      margin: margin === null ? null : margin.by,
      byContext: choices.length === 0 ? [] : Array.from(choices[0].byContext),
      part,
    };
  }

  let waiting = 0;
  /** Show a change, and note it in the address a moment later, so that a reload keeps it. */
  function changed() {
    const inside = find("pick").contains(document.activeElement);
    find("copied").textContent = "";
    find("notice").hidden = true;
    show();
    if (inside && find("options").firstChild) find("options").firstChild.focus();
    clearTimeout(waiting);
    waiting = setTimeout(noteAddress, 400);
  }

  function noteAddress() {
    clearTimeout(waiting);
    const address = location.href.split("#")[0] + (steps.length === 0 ? "" : `#${written()}`);
    if (address !== location.href) history.replaceState(null, "", address);
  }

  /** A state was picked: the step is complete if only one amount goes with it. */
  let arrived = null;
  function choose(n) {
    if (steps.length === 0) {
      begin(n);
      changed();
      return;
    }
    arrived = n;
    const amounts = observations(taken(), n);
    if (amounts.length === 1) {
      pay(amounts[0].key);
      return;
    }
    find("options").hidden = find("entry").hidden = true;
    find("paid").hidden = false;
    find("paid-question").textContent = `What was paid, on the way to ${stateName(n)}?`;
    buttons(find("amounts"), amounts);
    find("amounts").firstChild.focus();
  }

  function pay(z) {
    add(taken(), arrived, z);
    changed();
  }

  function undo() {
    if (steps.length === 0) return;
    steps.pop();
    changed();
  }

  async function copyLink() {
    noteAddress();
    const text = location.href;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const box = element("textarea", "", { "aria-hidden": "true" });
      box.value = text;
      document.body.append(box);
      box.select();
      document.execCommand("copy");
      box.remove();
    }
    find("copied").textContent = "The link to this history is copied.";
  }

  function readAddress() {
    const text = location.hash.slice(1).replaceAll("%3A", ":").replaceAll("%3B", ";");
    steps = [];
    const read = text === "" || replay(text);
    show();
    find("notice").hidden = read;
    if (!read) find("notice").textContent = "The link belongs to another policy, or is damaged: the history is empty.";
  }

  for (const [box, picked] of [["options", choose], ["amounts", pay]]) {
    find(box).addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) picked(Number(button.dataset.key));
    });
  }
  find("taken").addEventListener("change", () => showStates(observations(taken())));
  find("back").addEventListener("click", () => showStates(observations(taken())));
  find("typed").addEventListener("input", filter);
  find("entry").addEventListener("submit", (event) => {
    event.preventDefault();
    const shown = filter();
    if (shown.length && find("typed").value.trim()) choose(shown[0].key);
  });
  find("undo").addEventListener("click", undo);
  find("restart").addEventListener("click", () => { steps = []; changed(); });
  find("copy").addEventListener("click", copyLink);
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest && event.target.closest("select, input, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "u") undo();
    const box = find(find("paid").hidden ? "options" : "amounts");
    const button = box.children[Number(event.key) - 1];
    if (/^[1-9]$/.test(event.key) && button && !find("pick").hidden) button.click();
  });
  addEventListener("hashchange", readAddress);

  if (mixes) {
    fill(find("part"), graph.weights.map((w, i) => [i, `policy ${i + 1} (${percent(w)})`]));
    find("part").addEventListener("change", () => {
      followInstead(Number(find("part").value));
      changed();
    });
    find("draw").addEventListener("click", () => { followInstead(randomPart()); changed(); });
  }
  readAddress();
  /** For programs: what the page shows, as numbers. */
  window.explorer = { situation: () => situation };
})();
