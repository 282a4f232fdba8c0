// Histograms over time, with the trust region drawn in, and the gate as a curve over ratios.

import { append, h } from "./dom.js";
import { chart, legend } from "./charts.js";
import { heatmap } from "./heatmap.js";
import { number, percent } from "./format.js";
import { shade } from "./heat-paint.js";
import { own } from "./own.js";
import { source } from "./source.js";
import { whenClosed } from "./lifetime.js";

const ORDER = ["ratio/token", "ratio/sequence", "gate/positive", "gate/negative", "advantage/token", "policy/entropy", "length/right", "length/wrong"];
const COLUMNS = 120;
const SHARES = [1, 0.1, 0.01, 0.001, 1e-4];

export async function distributionsPage(page) {
  if (!page.run.distributions.length) return page.none("This run has no histograms yet.");
  const grid = h("div.curves.wide");
  const fill = async () => {
    const [{ distributions }, catalogue] = await Promise.all([source.of("run", page.id), source.of("catalogue", page.id)]);
    const keys = [...distributions].sort((a, b) => rank(a) - rank(b));
    const heats = await Promise.all(keys.map((key) => source.heat(page.id, key, COLUMNS)));
    grid.replaceChildren();
    keys.forEach((key, index) => append(grid, [panel(key, heats[index], page.run.region, own(catalogue, key))]));
  };
  await fill();
  page.onMove(fill, 5000);
  return [h("div.beside", {}, gate(page.run.region), reading()), grid];
}

function rank(key) {
  const place = ORDER.indexOf(key);
  return place < 0 ? ORDER.length : place;
}

function panel(key, heat, region, spec) {
  const gateMap = { bounds: [], isGate: true };
  const box = heatmap({ title: key, heat, region: key.startsWith("gate/") ? gateMap : regionOf(key, region) });
  if (spec) append(box, [h("p.about", {}, spec.meaning)]);
  return box;
}

/** The trust region belongs to the histogram of the ratio that the surrogate looks at. */
function regionOf(key, region) {
  if (!region || !key.startsWith("ratio/")) return null;
  return (key === "ratio/sequence") === region.sequence ? region : null;
}

function reading() {
  const list = h("ul.legend.boxes", { "aria-label": "Colours" });
  const draw = () =>
    list.replaceChildren(
      ...SHARES.map((share) => {
        const box = h("span.cell");
        box.style.backgroundColor = shade(share);
        return h("li", {}, box, percent(share));
      }),
    );
  draw();
  addEventListener("themechange", draw);
  whenClosed(() => removeEventListener("themechange", draw));
  return h(
    "section.reading",
    { "aria-label": "How to read" },
    h("h3", {}, "How to read the maps"),
    h("p", {}, "Each column is a step, or a few, and adds up to 100%. Colour is the share of its values in a cell, on a log scale:"),
    list,
    h("p.quiet", {}, "Line: median. Dashed: 5% and 95%. The metric of the same name is the mean. Cells are equally high, so that what happens next to ratio 1 can be seen. Beside the ratio that the surrogate uses stands its gate, on the same axis."),
  );
}

function gate(region) {
  if (!region?.gate) return null;
  const { ratio, positive, negative } = region.gate;
  const curves = [
    { label: "advantage > 0", short: "A > 0", steps: ratio, values: positive, points: false },
    { label: "advantage < 0 (dashed)", short: "A < 0", steps: ratio, values: negative, dash: [5, 3], points: false },
  ];
  const of = region.sequence ? "sequence ratio" : "ratio";
  const title = `Gate of ${region.algorithm}: gradient let through, by ${of}`;
  const rest = region.told;
  const body = chart({ title, curves, height: 150, span: region.span, at: (value) => `${of} ${number(value, 4)}`, rest });
  return h("figure.curve.gate", { "data-key": "gate" }, h("figcaption", {}, h("h3", {}, title), h("output.readout", {}, rest)), body, legend(curves));
}
