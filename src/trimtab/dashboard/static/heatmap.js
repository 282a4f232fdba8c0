// A distribution over time: steps to the right, values upwards, the share of a step's values as colour.

import { h } from "./dom.js";
import { number, percent } from "./format.js";
import { whenClosed } from "./lifetime.js";
import { BOTTOM, layout, paint } from "./heat-paint.js";
import { whenSeen } from "./seen.js";

/** {title, heat, region: {bounds, gate} or null, height}: a figure with canvas and readout. */
export function heatmap({ title, heat, region = null, height = 220 }) {
  const isGate = region?.isGate ?? false;
  const canvas = h("canvas", { role: "img", "aria-label": `${title} over time`, tabindex: "0" });
  canvas.style.height = `${height}px`;
  const draw = () => paint(canvas, heat, region, height);
  const observer = new ResizeObserver(draw);
  whenSeen(canvas, () => observer.observe(canvas));
  addEventListener("themechange", draw);
  whenClosed(() => {
    observer.disconnect();
    removeEventListener("themechange", draw);
  });
  const spoken = () => (heat.columns.length ? columnText(heat, heat.columns.length - 1, isGate) : "no values");
  const readout = h("output.readout", {}, spoken());
  canvas.addEventListener("mousemove", (event) => {
    readout.textContent = under(canvas, heat, region, event, height) ?? spoken();
  });
  canvas.addEventListener("mouseleave", () => {
    readout.textContent = spoken();
  });
  keyboard(canvas, heat, isGate, readout);
  return h("figure.curve.heat", { "data-key": title }, h("figcaption", {}, h("h3", {}, title), readout), canvas);
}

function keyboard(canvas, heat, isGate, readout) {
  let column = heat.columns.length;
  canvas.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    column = Math.min(heat.columns.length - 1, Math.max(0, column + (event.key === "ArrowLeft" ? -1 : 1)));
    if (column >= 0) readout.textContent = columnText(heat, column, isGate);
  });
}

function stepsOf([first, last]) {
  return first === last ? `step ${first}` : `steps ${first} to ${last}`;
}

function columnText(heat, column, isGate) {
  const [low, middle, high] = heat.quantiles[column];
  const [below, above] = heat.outside[column];
  if (isGate) return `${stepsOf(heat.columns[column])}: cut ${percent(heat.counts[column][0])}, free ${percent(heat.counts[column].at(-1))}, median ${number(middle)}`;
  const outside = below + above > 0 ? `; ${percent(below + above)} beyond the scale` : "";
  return `${stepsOf(heat.columns[column])}: 5% ${number(low)}, median ${number(middle)}, 95% ${number(high)}${outside}`;
}

function under(canvas, heat, region, event, height) {
  if (!heat.columns.length) return null;
  const { left, width } = layout(canvas, heat, region, height);
  const column = Math.floor(((event.offsetX - left) / width) * heat.columns.length);
  const row = Math.floor((1 - event.offsetY / (height - BOTTOM)) * (heat.edges.length - 1));
  if (!heat.counts[column] || heat.counts[column][row] === undefined) return null;
  const between = `${number(heat.edges[row])} to ${number(heat.edges[row + 1])}`;
  return `${stepsOf(heat.columns[column])}, ${between}: ${percent(heat.counts[column][row])} of the values`;
}
