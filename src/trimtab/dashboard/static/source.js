// Where values come from: the server, or a report's own file. Both answer the same questions.

import { visible } from "./dom.js";

/** What `first.js` has asked already is not asked twice, and its answer is taken once. */
function answerTo(address) {
  const asked = window.trimtabAsked?.get(address);
  window.trimtabAsked?.delete(address);
  return asked ?? fetch(address);
}

class Server {
  constructor() {
    this.live = true;
    this.preference = document.body.hasAttribute("data-preference");
  }

  async ask(view, parameters = {}) {
    const query = new URLSearchParams(parameters).toString();
    const answer = await answerTo(`/api/${view}${query ? `?${query}` : ""}`);
    const values = await answer.json();
    if (!answer.ok) throw new Error(visible(values.error ?? answer.statusText));
    return values;
  }

  async curves(run, keys, points, after = null) {
    const parameters = { run, keys: keys.join(","), points };
    if (after !== null) parameters.after = after;
    return keys.length ? this.ask("curves", parameters) : { last: null, curves: {} };
  }

  heat(run, key, columns) {
    return this.ask("heat", { run, key, columns });
  }

  rollouts(run, step) {
    return this.ask("rollouts", { run, step });
  }

  tokens(run, step, rollout, other = "") {
    return this.ask("tokens", { run, step, rollout, as: other });
  }

  of(view, run, more = {}) {
    return this.ask(view, { run, ...more });
  }

  async prefer(marked) {
    const answer = await fetch("/api/preference", {
      method: "POST",
      headers: { "content-type": "application/json", "x-trimtab": "1" },
      body: JSON.stringify(marked),
    });
    const values = await answer.json();
    if (!answer.ok) throw new Error(values.error ?? answer.statusText);
    return values;
  }

  /** Calls tell(standing) at once and whenever the run moves; returns what ends it. */
  follow(run, tell) {
    const stream = new EventSource(`/api/stream?run=${encodeURIComponent(run)}`);
    stream.addEventListener("standing", (event) => tell(JSON.parse(event.data)));
    stream.addEventListener("gone", (event) => {
      tell({ state: "gone", detail: JSON.parse(event.data).error });
      stream.close();
    });
    return () => stream.close();
  }
}

class Report {
  constructor(values) {
    this.values = values;
    this.live = false;
    this.preference = false;
  }

  async ask(view) {
    if (!Object.hasOwn(this.values, view)) throw new Error(`this report holds no ${view}`);
    return this.values[view];
  }

  async curves(run, keys) {
    const held = this.values.curves.curves ?? {};
    return {
      last: this.values.curves.last ?? null,
      curves: Object.fromEntries(keys.filter((key) => Object.hasOwn(held, key)).map((key) => [key, held[key]])),
    };
  }

  async heat(run, key) {
    return this.values.heat[key] ?? { columns: [], edges: [], counts: [], outside: [], quantiles: [] };
  }

  async rollouts(run, step) {
    const held = this.values.rollouts[String(step)];
    if (!held) throw new Error(`this report holds no rollouts of step ${step}; open the run with trimtab watch`);
    return held;
  }

  async tokens(run, step, rollout, other = "") {
    const held = this.values.tokens[`${step}|${rollout}|${other}`];
    if (held) return held;
    const more = other ? `under ${other}` : "";
    throw new Error(`this report holds no tokens of ${rollout} ${more}; open the run with trimtab watch`);
  }

  of(view) {
    return this.ask(view);
  }

  follow() {
    return () => {};
  }
}

const held = document.getElementById("values");
export const source = held ? new Report(JSON.parse(held.textContent)) : new Server();
