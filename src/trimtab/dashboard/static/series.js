// Curves as columns over one axis: alignment, smoothing, bands of extremes.

import { own } from "./own.js";

/** Exponential smoothing in [0, 1); 0 leaves the values as they are. A gap stays a gap. */
export function smoothed(values, amount) {
  if (!amount) return values;
  let last = null;
  return values.map((value) => {
    if (value === null) return null;
    last = last === null ? value : amount * last + (1 - amount) * value;
    return last;
  });
}

/** Several curves over one axis of steps: {steps, columns} with null where a curve has no value. */
export function aligned(curves) {
  const steps = [...new Set(curves.flatMap((curve) => curve.steps))].sort((a, b) => a - b);
  const place = new Map(steps.map((step, index) => [step, index]));
  const spread = (own, values) => {
    const column = new Array(steps.length).fill(null);
    own.forEach((step, index) => {
      column[place.get(step)] = values[index];
    });
    return column;
  };
  return { steps, columns: curves.map((curve) => spread(curve.steps, curve.values)), spread };
}

/** What is drawn, in order: [{curve, role}], role is value, low, high or raw (what smoothing started from). */
export function layers(state) {
  return state.curves.flatMap((curve, index) => {
    const bands = curve.low ? ["high", "low"] : [];
    return [...bands, ...(state.smooth ? ["raw"] : []), "value"].map((role) => ({ curve, index, role }));
  });
}

/** The table that uPlot draws: the axis, then one column for each layer. */
export function table(state) {
  const { steps, columns, spread } = aligned(state.curves);
  const rows = layers(state).map(({ curve, index, role }) => {
    if (role === "value") return smoothed(columns[index], state.smooth ?? 0);
    return role === "raw" ? columns[index] : spread(curve.steps, curve[role]);
  });
  const shown = state.log ? rows.map((row) => row.map((value) => (value > 0 ? value : null))) : rows;
  return [steps, ...shown];
}

/** A curve without a value has no picture; on a log scale only values above 0 count. */
export function isEmpty(state) {
  return !state.curves.some((curve) => curve.values.some((value) => value !== null && (!state.log || value > 0)));
}

/** Held-out estimates come with an interval in keys of their own: as the band of their curve. */
export function withInterval(key, curves) {
  const [curve, low, high] = [key, `${key}_low`, `${key}_high`].map((name) => own(curves, name));
  if (!curve || !low || !high || low.steps.length !== curve.steps.length) return curve;
  return { ...curve, low: low.values, high: high.values };
}
