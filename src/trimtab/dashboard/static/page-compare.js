// Two or more runs in one picture: a curve each, or seeds of one setting joined to a mean with its interval.

import { append, h, visible } from "./dom.js";
import { figure, legend } from "./charts.js";
import { linkTo } from "./links.js";
import { apart, groupsOf, together } from "./seeds.js";
import { own } from "./own.js";
import { source } from "./source.js";

const FIRST = ["reward/outcome", "evaluation/pass@1", "policy/entropy", "length/mean", "clip/removed", "gate/mass", "kl/old_k3", "groups/mixed"];
const POINTS = 400;

export async function comparePage(query) {
  const ids = [...query.getAll("run"), ...(query.get("runs") ?? "").split(",").filter(Boolean)];
  if (ids.length < 2) throw new Error("choose two or more runs to compare");
  const runs = await Promise.all(ids.map((id) => source.of("run", id)));
  return new Comparison(runs, query).show();
}

class Comparison {
  constructor(runs, query) {
    this.runs = runs;
    this.keys = [...new Set(runs.flatMap((run) => [...run.keys, ...run.evaluation_keys]))];
    this.groups = groupsOf(runs);
    this.figures = new Map();
    this.held = new Map();
    const seeds = this.groups.some((members) => members.length > 1);
    this.join = h("input", { type: "checkbox", id: "join", checked: seeds && query.get("join") !== "0", disabled: !seeds, change: () => this.redraw() });
    this.pick = h("select", { id: "more" }, h("option", { value: "" }, "choose …"), this.keys.map((key) => h("option", { value: key }, key)));
    this.legend = h("div", { "aria-label": "Runs" });
    this.grid = h("div.curves.eight");
    this.problem = h("p.problem", { role: "alert" });
  }

  async show() {
    await Promise.all(FIRST.filter((key) => this.keys.includes(key)).map((key) => this.load(key)));
    for (const key of FIRST) this.add(key);
    this.redraw();
    this.pick.addEventListener("change", () => this.choose(this.pick.value).catch((problem) => {
      this.problem.textContent = visible(problem.message);
    }));
    const ids = this.runs.map((run) => run.id);
    const { differences } = await source.ask("differences", { runs: JSON.stringify(ids) });
    const form = h(
      "form.controls",
      { submit: (event) => event.preventDefault() },
      h("label", {}, this.join, " join runs that differ in their seed only"),
      h("label", { for: "more" }, "Another metric "), this.pick,
    );
    return h("div", {}, h("h1", {}, `Compare ${ids.length} runs`), form, this.problem, this.legend, this.grid, table(this.runs, differences));
  }

  async load(key) {
    const found = await Promise.all(this.runs.map((run) => source.curves(run.id, [key], POINTS)));
    this.held.set(key, found.map((one) => own(one.curves, key) ?? { steps: [], values: [] }));
  }

  curves(key) {
    const held = this.held.get(key);
    return this.join.checked ? together(this.runs, this.groups, held) : apart(this.runs, held);
  }

  add(key) {
    if (!this.held.has(key) || this.figures.has(key)) return;
    const made = figure({ title: key, key, curves: this.curves(key), sync: "compare", below: true });
    this.figures.set(key, made);
    append(this.grid, [made]);
  }

  async choose(key) {
    this.pick.value = "";
    if (!key) return;
    if (!this.held.has(key)) await this.load(key);
    this.add(key);
    this.figures.get(key).scrollIntoView({ block: "nearest" });
  }

  redraw() {
    for (const [key, made] of this.figures) made.update(this.curves(key));
    const [first] = this.held.keys();
    if (first) this.legend.replaceChildren(legend(this.curves(first)));
  }
}

function table(runs, differences) {
  const names = Object.keys(differences);
  if (!names.length) return h("p.quiet", {}, "These runs have the same settings.");
  const head = h("tr", {}, h("th", { scope: "col" }, "setting"), runs.map((run) => h("th", { scope: "col" }, h("a", { href: linkTo(run.id, "overview") }, visible(run.id)))));
  const told = (value) => (value === null ? "–" : visible(typeof value === "string" ? value : JSON.stringify(value)));
  const rows = names.map((name) => h("tr", {}, h("th", { scope: "row" }, name), differences[name].map((value) => h("td.value", {}, told(value)))));
  return h("section", {}, h("h2", {}, "Where their settings differ"), h("div.scroll", {}, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))));
}
