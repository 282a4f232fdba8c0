// Every metric, by the catalogue's sections, with smoothing, a log scale and a search. Values come as they are needed.

import { append, debounce, h, replace } from "./dom.js";
import { figure } from "./charts.js";
import { whenSeen } from "./seen.js";
import { withInterval } from "./series.js";
import { own } from "./own.js";
import { source } from "./source.js";

const POINTS = 600;

export async function curvesPage(page) {
  const look = { smooth: 0, log: false };
  const state = { sections: [], words: page.query.get("show") ?? "" };
  const none = h("p.quiet", { role: "status" });
  const all = h("div");
  const filter = (words) => {
    state.words = words;
    const shown = state.sections.filter((section) => section.filter(words.trim().toLowerCase()));
    const why = state.sections.length ? `no metric of this run is called like ${words}` : "This run has no metrics yet.";
    none.textContent = shown.length ? "" : why;
  };
  const build = async () => {
    const catalogue = await source.of("catalogue", page.id);
    const keys = [...page.run.keys, ...page.run.evaluation_keys];
    state.sections = grouped(keys, catalogue).map(([title, members]) => new Section(page, title, members, catalogue, look));
    replace(all, state.sections.map((section) => section.box));
    filter(state.words);
  };
  const change = (changes) => {
    Object.assign(look, changes);
    for (const section of state.sections) section.draw(changes);
  };
  await build();
  page.onGrow(() => keepingPlace(build));
  page.onMove(() => Promise.all(state.sections.map((section) => section.refresh())), 2000);
  return [controls(state.words, filter, change), none, all];
}

async function keepingPlace(build) {
  const place = scrollY;
  await build();
  scrollTo({ top: place, behavior: "instant" });
}

/** The metrics of one section of the catalogue; asks for their values once it comes into sight. */
class Section {
  constructor(page, title, keys, catalogue, look) {
    Object.assign(this, { page, keys, look, curves: {}, loaded: false });
    this.figures = new Map(keys.map((key) => [key, figure({ ...look, title: key, key, meaning: meaningOf(own(catalogue, key)), sync: page.id, curves: this.curvesOf(key) })]));
    this.items = keys.map((key) => h("div", { "data-metric": key }, this.figures.get(key), about(own(catalogue, key))));
    this.box = h("section", { "data-section": title }, h("h2", {}, title), h("div.curves", {}, this.items));
    whenSeen(this.box, () => {
      this.loaded = true;
      this.refresh().catch((problem) => append(this.box, [h("p.problem", { role: "alert" }, problem.message)]));
    });
  }

  curvesOf(key) {
    return [{ label: key, ...(withInterval(key, this.curves) ?? { steps: [], values: [] }) }];
  }

  async refresh() {
    if (!this.loaded) return;
    this.curves = (await source.curves(this.page.id, this.keys, POINTS)).curves;
    this.draw({ ...this.look });
  }

  draw(changes) {
    if (!this.loaded) return;
    for (const [key, made] of this.figures) made.update(this.curvesOf(key), changes);
  }

  filter(words) {
    for (const item of this.items) item.hidden = !item.dataset.metric.toLowerCase().includes(words);
    this.box.hidden = this.items.every((item) => item.hidden);
    return !this.box.hidden;
  }
}

function controls(search, filter, change) {
  const told = h("output.quiet", { for: "smooth" }, "off");
  const smooth = h("input", {
    type: "range", min: "0", max: "0.98", step: "0.02", value: "0", id: "smooth",
    input: debounce((event) => {
      const amount = Number(event.target.value);
      told.textContent = amount ? amount.toFixed(2) : "off";
      change({ smooth: amount });
    }, 60),
  });
  const log = h("input", { type: "checkbox", id: "log", change: (event) => change({ log: event.target.checked }) });
  const words = h("input", { type: "search", id: "search", placeholder: "ratio, clip, length …", value: search, input: (event) => filter(event.target.value) });
  return h(
    "form.controls",
    { submit: (event) => event.preventDefault() },
    h("label", { for: "search" }, "Metrics "), words,
    h("label", { for: "smooth" }, "Smoothing "), smooth, told,
    h("label", {}, log, " log scale"),
  );
}

function meaningOf(spec) {
  return spec ? `${spec.meaning} (${spec.unit})` : null;
}

function about(spec) {
  if (!spec) return null;
  const rows = [["formula", spec.formula], ["unit", spec.unit], ["over", spec.mask], ["joined by", spec.reduction], ["healthy", spec.healthy], ["read with", spec.read_with.join(", ")], ["source", spec.source]];
  const list = rows.filter(([, text]) => text).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]);
  return h("details.about", {}, h("summary", {}, spec.meaning), h("dl", {}, list));
}

function grouped(keys, catalogue) {
  const found = new Map();
  for (const key of keys) {
    const section = own(catalogue, key)?.section ?? (key.startsWith("evaluation/") ? "Evaluation" : "Others");
    if (!found.has(section)) found.set(section, []);
    found.get(section).push(key);
  }
  return [...found];
}
