// The vertical axis of a heat map: rows are equally high, so marks stand where their values lie among the edges.

import { number } from "./format.js";

const ROOM = 15;
const NEAR_ONE = [0.1, 0.01, 0.001, 1e-4, 1e-5, 1e-6];

/** Where a value stands, from 0 at the bottom to 1 at the top; rows are equally high whatever their edges. */
export function placeOf(value, edges) {
  const last = edges.length - 1;
  if (value <= edges[0]) return 0;
  if (value >= edges[last]) return 1;
  let low = 0;
  let high = last;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (edges[middle] <= value) low = middle;
    else high = middle;
  }
  return (low + (value - edges[low]) / (edges[high] - edges[low] || 1)) / last;
}

/** Marks of the axis: [{value, text}], the more important first; those without room are left out. */
export function marksOf(heat, height, isGate) {
  const placed = [];
  for (const [value, text] of candidates(heat, isGate)) {
    const place = placeOf(value, heat.edges);
    if (place <= 0 || place >= 1) continue;
    const y = height * (1 - place);
    if (placed.some((other) => Math.abs(other.y - y) < ROOM)) continue;
    placed.push({ y, text });
  }
  return placed;
}

function candidates(heat, isGate) {
  if (isGate) return [[0, "cut 0"], [1, "free 1"], [0.5, "0.5"], [0.25, "0.25"], [0.75, "0.75"]];
  if (heat.scale === "ratio") return aroundOne();
  const low = heat.edges[0];
  const high = heat.edges.at(-1);
  return heat.scale === "log" ? decades(low, high) : evenly(low, high);
}

function aroundOne() {
  const found = [[1, "1"], [0.5, "0.5"], [2, "2"], [5, "5"], [0.2, "0.2"], [0.1, "0.1"], [0.01, "0.01"]];
  for (const far of NEAR_ONE) {
    const told = far < 1e-3 ? (sign) => `1 ${sign} 1e−${Math.round(-Math.log10(far))}` : (sign) => number(sign === "+" ? 1 + far : 1 - far, 4);
    found.push([1 + far, told("+")], [1 - far, told("−")]);
  }
  return found;
}

function decades(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += 1) found.push([10 ** power, number(10 ** power, 2)]);
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) found.push([3 * 10 ** power, number(3 * 10 ** power, 2)]);
  return found;
}

function evenly(low, high) {
  const raw = (high - low) / 5;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((by) => by * size).find((one) => one >= raw);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) found.push([at * step, number(at * step, 3)]);
  return found;
}
