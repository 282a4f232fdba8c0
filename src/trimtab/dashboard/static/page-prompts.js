// The prompt pool: how the pass rate of each prompt moved, how often it was drawn and kept.

import { append, debounce, h, svg, visible } from "./dom.js";
import { percent } from "./format.js";
import { source } from "./source.js";

const SHOWN = 200;
const BANDS = ["never right", "mostly wrong", "mostly right", "always right"];

export async function promptsPage(page) {
  let held = await source.of("prompts", page.id);
  const list = h("tbody");
  const search = h("input", { type: "search", id: "search", placeholder: "text or id" });
  const order = h("select", { id: "order" }, Object.entries(ORDERS).map(([value, [text]]) => h("option", { value }, text)));
  const band = h("select", { id: "band" }, h("option", { value: "" }, "all bands"), BANDS.map((name) => h("option", { value: name }, name)));
  const count = h("p.quiet", { role: "status" });
  const top = h("section", { "aria-label": "Bands" });
  const fill = () => {
    const wanted = search.value.trim().toLowerCase();
    const fits = (prompt) => !wanted || prompt.text.toLowerCase().includes(wanted) || prompt.id.toLowerCase().includes(wanted);
    const hits = held.prompts.filter((prompt) => fits(prompt) && (!band.value || bandOf(last(prompt)) === band.value));
    hits.sort(ORDERS[order.value][1]);
    list.replaceChildren();
    append(list, hits.slice(0, SHOWN).map((prompt) => row(prompt, held.span)));
    const read = held.steps_read < held.steps ? `, from ${held.steps_read} of ${held.steps} recorded steps` : "";
    count.textContent = `${Math.min(SHOWN, hits.length)} of ${hits.length} prompts${read}`;
  };
  const draw = () => {
    top.replaceChildren();
    append(top, bands(held));
    fill();
  };
  search.addEventListener("input", debounce(fill, 80));
  order.addEventListener("change", fill);
  band.addEventListener("change", fill);
  draw();
  page.onMove(async () => {
    held = await source.of("prompts", page.id);
    draw();
  }, 10000);
  const heads = ["prompt", "drawn", "kept", "last pass rate", held.span ? `pass rate, steps ${held.span[0]} to ${held.span[1]}` : "pass rate"];
  const head = h("tr", {}, heads.map((name, index) => h("th", { scope: "col", class: index > 0 && index < 4 ? "number" : null }, name)));
  const form = h("form.controls", { submit: (event) => event.preventDefault() }, h("label", { for: "search" }, "Search "), search, h("label", { for: "band" }, "Band "), band, h("label", { for: "order" }, "Order "), order);
  return [top, form, count, h("div.scroll", {}, h("table.prompts", {}, h("thead", {}, head), list))];
}

const last = (prompt) => prompt.rates.at(-1)?.[1] ?? null;
const moved = (prompt) => (prompt.rates.length < 2 ? 0 : Math.abs(prompt.rates.at(-1)[1] - prompt.rates[0][1]));
const ORDERS = {
  draws: ["most drawn", (a, b) => b.draws - a.draws || b.kept - a.kept],
  hard: ["lowest pass rate", (a, b) => (last(a) ?? 2) - (last(b) ?? 2)],
  easy: ["highest pass rate", (a, b) => (last(b) ?? -1) - (last(a) ?? -1)],
  moved: ["moved most", (a, b) => moved(b) - moved(a)],
  kept: ["kept most", (a, b) => b.kept - a.kept],
};

function bandOf(rate) {
  if (rate === null) return null;
  if (rate <= 0) return BANDS[0];
  if (rate <= 0.5) return BANDS[1];
  return rate <= 0.999 ? BANDS[2] : BANDS[3];
}

function bands(held) {
  const total = held.bands.reduce((sum, band) => sum + band.prompts, 0) || 1;
  const parts = held.bands.map((band, index) => {
    const box = h(`div.band.band-${index}`, {}, h("strong", {}, band.prompts.toLocaleString("en")), ` ${band.name} `, h("span.quiet", {}, percent(band.prompts / total)));
    box.style.flexGrow = String(Math.max(band.prompts, total / 50));
    return box;
  });
  const draws = `${held.draws.toLocaleString("en")} draws, ${percent(held.draws ? held.kept / held.draws : null)} of them kept for training.`;
  return [h("h2", {}, `${held.total.toLocaleString("en")} prompts, by the pass rate at their last draw`), h("div.bands", {}, parts), h("p.quiet", {}, draws)];
}

function row(prompt, span) {
  return h(
    "tr",
    {},
    h("th.prompt", { scope: "row", dir: "auto", title: prompt.id }, visible(prompt.text.slice(0, 200))),
    h("td.number", {}, prompt.draws),
    h("td.number", {}, prompt.kept),
    h("td.number", {}, percent(last(prompt))),
    h("td", {}, spark(prompt.rates, span)),
  );
}

/** Dots over the whole run, so that rows can be compared: left its first recorded step, right its last. */
function spark(rates, [from, to]) {
  if (!rates.length) return "–";
  const points = rates.map(([step, rate]) => [4 + (172 * (step - from)) / (to - from || 1), 20 - 16 * rate]);
  const told = rates.map(([step, rate]) => `step ${step}: ${percent(rate)}`).join(", ");
  const rails = [4, 20].map((y) => svg("line", { x1: 0, x2: 180, y1: y, y2: y }));
  const marks = points.map(([x, y]) => svg("circle", { cx: x, cy: y, r: 2.6 }));
  const line = svg("polyline", { points: points.map((point) => point.join(",")).join(" ") });
  return svg("svg", { class: "spark", viewBox: "0 0 180 24", width: 180, height: 24, role: "img", "aria-label": told }, svg("title", {}, told), rails, line, marks);
}
