// Curves on a canvas by uPlot: one look for all pages, bands, live additions, colours of the theme.

import uPlot from "./vendor/uPlot.esm.js";
import { h, visible } from "./dom.js";
import { number, ticks } from "./format.js";
import { whenClosed } from "./lifetime.js";
import { isEmpty, layers, table } from "./series.js";
import { colour, dashOf, token } from "./theme.js";
import { whenSeen } from "./seen.js";

const HEIGHT = 168;
const FONT = '11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

/**
 * A chart: {title, curves: [{label, short, steps, values, low, high, dash, index}], height, log, smooth, sync,
 * at: a place on the axis in words, rest: what is read out when nothing is pointed at}.
 * It is drawn when it comes into sight; element.update(curves, changes) shows other values in place.
 */
export function chart(options) {
  const state = { height: HEIGHT, at: (step) => `step ${step.toLocaleString("en")}`, ...options, plot: null, seen: false };
  const box = h("div.chart", { role: "img", tabindex: "0", "aria-label": summary(state) });
  box.style.height = `${state.height}px`;
  const draw = () => {
    if (!state.seen) return;
    state.plot?.destroy();
    state.plot = null;
    box.replaceChildren();
    if (!box.clientWidth) return;
    if (isEmpty(state)) box.append(h("p.quiet.empty", {}, state.log ? "no values above 0" : "no values yet"));
    else state.plot = new uPlot(settings(state, box), table(state), box);
    box.setAttribute("aria-label", visible(summary(state)));
  };
  box.update = (curves, changes = {}) => {
    const before = shape(state);
    Object.assign(state, changes, { curves });
    if (state.plot && before === shape(state) && !isEmpty(state)) state.plot.setData(table(state));
    else draw();
  };
  box.addEventListener("keydown", (event) => moveCursor(event, state.plot));
  const observer = new ResizeObserver(() => {
    if (!state.plot) draw();
    else if (Math.abs(state.plot.width - box.clientWidth) > 1) state.plot.setSize({ width: box.clientWidth, height: state.height });
  });
  whenSeen(box, () => {
    state.seen = true;
    observer.observe(box);
    draw();
  });
  const repaint = () => draw();
  addEventListener("themechange", repaint);
  whenClosed(() => {
    observer.disconnect();
    removeEventListener("themechange", repaint);
    state.plot?.destroy();
  });
  return box;
}

/** Charts of the same shape take new values without being made anew. */
function shape(state) {
  return [state.log, state.smooth > 0, ...layers(state).map(({ role, curve }) => role + curve.label + (curve.steps.length < 3))].join("|");
}

function settings(state, box) {
  const axis = { stroke: token("--quiet"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: FONT };
  return {
    width: box.clientWidth,
    height: state.height,
    padding: [8, 8, 0, 0],
    cursor: { sync: state.sync ? { key: state.sync } : undefined, y: false, points: { size: 6 } },
    legend: { show: false },
    scales: { x: { time: false, range: state.span ? () => state.span : undefined }, y: state.log ? { distr: 3 } : { range: padded } },
    axes: [
      { ...axis, size: 22, gap: 3, values: (plot, found) => ticks(found) },
      { ...axis, size: widthOf, gap: 4, values: (plot, found) => ticks(found) },
    ],
    ...drawnOf(state),
    hooks: { setCursor: [(plot) => tell(plot, state, box)] },
  };
}

function widthOf(plot, values) {
  return 12 + 6.3 * Math.max(3, ...(values ?? []).map((value) => value.length));
}

/** One series for each layer, and the fills between the two edges of a band. */
function drawnOf(state) {
  const found = layers(state);
  const series = found.map(({ curve, index, role }) => {
    const stroke = colour(curve.index ?? index);
    if (role === "high" || role === "low") return { stroke: `${stroke}00`, points: { show: false }, spanGaps: true };
    if (role === "raw") return { stroke: `${stroke}50`, width: 1, points: { show: false }, spanGaps: true };
    const points = curve.points ?? curve.steps.length < 3;
    return { label: curve.label, stroke, width: 1.75, dash: curve.dash ?? dashOf(index), points: { show: points, size: 5, fill: stroke }, spanGaps: true };
  });
  const bands = found.flatMap(({ curve, index, role }, place) =>
    role === "high" ? [{ series: [place + 1, place + 2], fill: `${colour(curve.index ?? index)}2e` }] : [],
  );
  return { series: [{}, ...series], bands };
}

function padded(plot, low, high) {
  if (low === null || high === null) return [0, 1];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  return [low - room, high + room];
}

/** What the cursor is on, in the chart's own line of text. */
function tell(plot, state, box) {
  const place = plot.cursor.idx;
  const output = box.parentElement?.querySelector(".readout");
  if (!output) return;
  if (place === null || place === undefined) {
    output.textContent = visible(state.rest ?? latest(state.curves));
    return;
  }
  const values = layers(state).flatMap(({ curve, role }, row) => (role === "value" ? [[curve, plot.data[row + 1][place]]] : []));
  const known = values.filter(([, value]) => value !== null && value !== undefined);
  output.textContent = visible(`${state.at(plot.data[0][place])}: ${known.map(([curve, value]) => named(curve, value, state.curves)).join(" · ")}`);
}

function named(curve, value, curves) {
  return curves.length === 1 ? number(value) : `${curve.short ?? curve.label} ${number(value)}`;
}

export function latest(curves) {
  return curves.filter((curve) => curve.values.length).map((curve) => named(curve, curve.values.at(-1), curves)).join(" · ");
}

function summary(state) {
  const told = state.curves.map((curve) => {
    if (!curve.steps.length) return `${curve.label}: no values`;
    return `${curve.label}: ${number(curve.values[0])} at ${state.at(curve.steps[0])}, ${number(curve.values.at(-1))} at ${state.at(curve.steps.at(-1))}`;
  });
  return `${state.title ?? "curve"}. ${told.join(". ")}`;
}

function moveCursor(event, plot) {
  if (!plot || (event.key !== "ArrowLeft" && event.key !== "ArrowRight")) return;
  event.preventDefault();
  const count = plot.data[0].length;
  const from = plot.cursor.idx ?? count - 1;
  const to = Math.min(count - 1, Math.max(0, from + (event.key === "ArrowLeft" ? -1 : 1)));
  plot.setCursor({ left: plot.valToPos(plot.data[0][to], "x"), top: 10 });
}

/** A chart with its title, its meaning, the line that reads it out, and a legend where there are several curves. */
export function figure(options) {
  const body = chart(options);
  const readout = h("output.readout", {}, options.rest ?? latest(options.curves));
  const about = options.meaning ? { title: options.meaning } : {};
  const title = h("h3", about, options.link ? h("a", { href: options.link }, options.title) : options.title);
  const told = options.legend ? legend(options.curves) : null;
  const box = h("figure.curve", { "data-key": options.key ?? options.title }, h("figcaption", {}, title, options.below ? null : readout), body, options.below ? readout : null, told);
  box.update = (curves, changes) => {
    body.update(curves, changes);
    readout.textContent = visible(options.rest ?? latest(curves));
  };
  return box;
}

export function legend(curves) {
  const item = (curve, index) => h(`li.series-${(curve.index ?? index) % 8}`, {}, curve.label);
  return h("ul.legend", {}, curves.map(item));
}
