// The picture of a heat map: cells, quantiles, the bounds of the trust region, and the gate beside them.

import { marksOf, placeOf } from "./heat-axis.js";
import { between, channels, token } from "./theme.js";

export const BOTTOM = 22;
const LEFT = 62;
const GATE = 84;
const GAP = 10;
const FONT = '11px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif';

/** Shares of a column from this on up to 1 have a colour, on a log scale; an empty cell has none. */
export const FAINTEST = 1e-4;

export function layout(canvas, heat, region, height) {
  const gate = region?.gate ? GATE + GAP : 0;
  return { left: LEFT, width: Math.max(40, canvas.clientWidth - LEFT - gate - 2), height: height - BOTTOM, gate: gate ? GATE : 0 };
}

export function paint(canvas, heat, region, height) {
  const scale = devicePixelRatio || 1;
  if (!canvas.clientWidth) return;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  pen.font = FONT;
  if (!heat.columns.length) return;
  const plot = layout(canvas, heat, region, height);
  cells(pen, heat, plot);
  frame(pen, plot);
  if (!region?.isGate) quantiles(pen, heat, plot);
  if (region) bounds(pen, heat, region.bounds, plot);
  axes(pen, heat, plot, region?.isGate ?? false);
  if (plot.gate) gate(pen, heat, region.gate, plot);
}

/** The colour of a share; light to dark on light ground, dark to light on dark. */
export function shade(share) {
  const stops = [0, 1, 2, 3].map((index) => channels(token(`--heat-${index}`)));
  return between(stops, 1 + Math.log10(Math.max(share, FAINTEST)) / -Math.log10(FAINTEST));
}

function cells(pen, heat, plot) {
  const wide = plot.width / heat.columns.length;
  const high = plot.height / (heat.edges.length - 1);
  const known = new Map();
  heat.counts.forEach((column, x) => {
    const from = Math.round(plot.left + x * wide);
    const to = Math.round(plot.left + (x + 1) * wide);
    column.forEach((share, y) => {
      if (!share) return;
      if (!known.has(share)) known.set(share, shade(share));
      pen.fillStyle = known.get(share);
      const top = Math.round(plot.height - (y + 1) * high);
      pen.fillRect(from, top, to - from, Math.round(plot.height - y * high) - top);
    });
  });
}

function frame(pen, plot) {
  pen.strokeStyle = token("--line");
  pen.lineWidth = 1;
  pen.strokeRect(plot.left - 0.5, 0.5, plot.width + 1, plot.height - 1);
}

function quantiles(pen, heat, plot) {
  const wide = plot.width / heat.columns.length;
  for (const which of [0, 2, 1]) {
    const points = heat.quantiles.flatMap((values, x) =>
      values[which] === null ? [] : [[plot.left + (x + 0.5) * wide, plot.height * (1 - placeOf(values[which], heat.edges))]],
    );
    stroke(pen, points, token("--accent"), which === 1 ? 1.75 : 1.25, which === 1 ? [] : [3, 3]);
  }
}

function stroke(pen, points, colour, width, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.beginPath();
  points.forEach(([x, y], index) => (index ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.stroke();
  pen.setLineDash([]);
}

function bounds(pen, heat, found, plot) {
  const right = plot.left + plot.width + (plot.gate ? GAP + plot.gate : 0);
  for (const [at, label] of found) {
    const place = placeOf(at, heat.edges);
    if (place <= 0 || place >= 1) continue;
    const y = Math.round(plot.height * (1 - place)) + 0.5;
    stroke(pen, [[plot.left, y], [right, y]], token("--ink"), 1, [7, 4]);
    pen.textAlign = "left";
    pen.textBaseline = "alphabetic";
    const wide = pen.measureText(label).width;
    const up = y > 18;
    pen.fillStyle = token("--ground");
    pen.fillRect(plot.left + 3, up ? y - 16 : y + 3, wide + 6, 14);
    pen.fillStyle = token("--ink");
    pen.fillText(label, plot.left + 6, up ? y - 5 : y + 14);
  }
}

function axes(pen, heat, plot, isGate) {
  pen.fillStyle = token("--quiet");
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const { y, text } of marksOf(heat, plot.height, isGate)) {
    pen.fillText(text, plot.left - 8, Math.min(plot.height - 6, Math.max(6, y)));
    pen.fillRect(plot.left - 5, Math.round(y), 4, 1);
  }
  pen.textBaseline = "top";
  pen.textAlign = "left";
  pen.fillText(`step ${heat.columns[0][0]}`, plot.left, plot.height + 6);
  pen.textAlign = "right";
  pen.fillText(String(heat.columns.at(-1)[1]), plot.left + plot.width, plot.height + 6);
}

/** The gate on the same vertical axis: from 0 at the left of its strip to 1 (or its largest) at the right. */
function gate(pen, heat, { ratio, positive, negative }, plot) {
  const from = plot.left + plot.width + GAP;
  pen.strokeStyle = token("--line");
  pen.strokeRect(from + 0.5, 0.5, plot.gate - 1, plot.height - 1);
  const inside = ratio.map((value) => value >= heat.edges[0] && value <= heat.edges.at(-1));
  const most = Math.max(1, ...positive.filter((_, index) => inside[index]), ...negative.filter((_, index) => inside[index]));
  const points = (values) =>
    ratio.flatMap((value, index) =>
      inside[index] ? [[from + 4 + (plot.gate - 8) * (values[index] / most), plot.height * (1 - placeOf(value, heat.edges))]] : [],
    );
  stroke(pen, points(positive), token("--series-0"), 2);
  stroke(pen, points(negative), token("--series-1"), 2, [4, 3]);
  pen.fillStyle = token("--quiet");
  pen.textBaseline = "top";
  pen.textAlign = "left";
  pen.fillText("gate 0", from, plot.height + 6);
  pen.textAlign = "right";
  pen.fillText(most === 1 ? "1" : most.toFixed(1), from + plot.gate, plot.height + 6);
}
