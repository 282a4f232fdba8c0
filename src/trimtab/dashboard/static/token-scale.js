// How values of tokens become colours under text: two-sided about a middle, or one-sided from it.

import { between, channels, token } from "./theme.js";

/** name -> title, how it is coloured, middle, what one value is called. */
export const MEASURES = {
  ratios: { title: "ratio", kind: "two-sided", middle: 1, word: "ratio" },
  advantages: { title: "advantage", kind: "two-sided", middle: 0, word: "advantage" },
  gates: { title: "gate weight: share of the gradient let through", kind: "gate", middle: 1, word: "gate" },
  change: { title: "change of log-probability, new − old", kind: "two-sided", middle: 0, word: "new − old" },
  new_logprobs: { title: "log-probability at the update", kind: "falling", middle: 0, word: "log-prob, update" },
  sampler_logprobs: { title: "log-probability as sampled", kind: "falling", middle: 0, word: "log-prob, sampled" },
  entropies: { title: "entropy", kind: "rising", middle: 0, word: "entropy (nats)" },
  weights: { title: "weight: share of the loss", kind: "rising", middle: 0, word: "weight" },
  shares: { title: "share of the update's gradient", kind: "rising", middle: 0, word: "gradient share" },
  values: { title: "critic's value", kind: "two-sided", middle: 0, word: "critic's value" },
};

/** {colour(value), stops: values for the legend}: strongest at the 98% quantile of the distance from the middle. */
export function scaleOf(measure, column) {
  const { kind, middle } = MEASURES[measure];
  const away = column.filter((value) => value !== null).map((value) => Math.abs(value - middle));
  const reach = kind === "gate" ? Math.max(1, ...away) : quantile(away, 0.98) || Math.max(...away, 0) || 1;
  const ground = channels(token("--ground"));
  const ends = { above: channels(token("--above")), below: channels(token("--below")), one: channels(token("--one")) };
  const colour = (value) => {
    if (value === null || value === undefined) return "transparent";
    const side = kind === "rising" || kind === "falling" ? "one" : value > middle ? "above" : "below";
    return between([ground, ends[side]], Math.abs(value - middle) / reach);
  };
  return { middle, colour, stops: STOPS[kind].map((stop) => middle + stop * reach) };
}

const STOPS = {
  "two-sided": [-1, -0.5, 0, 0.5, 1],
  gate: [-1, -0.75, -0.5, -0.25, 0],
  rising: [0, 0.5, 1],
  falling: [0, -0.5, -1],
};

function quantile(values, share) {
  const sorted = Float64Array.from(values).sort();
  return sorted.length ? sorted[Math.floor(share * (sorted.length - 1))] : 0;
}

/** Of the tokens of one piece the value that stands out most. */
export function worst(column, start, stop, middle) {
  let found = null;
  for (let index = start; index < stop; index += 1) {
    const value = column[index];
    if (value === null || value === undefined) continue;
    if (found === null || Math.abs(value - middle) > Math.abs(found - middle)) found = value;
  }
  return found;
}
