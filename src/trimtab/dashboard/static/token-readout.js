// The numbers of one token, and of the whole answer, of the run and of the algorithm beside it.

import { h } from "./dom.js";
import { DASH, number, percent } from "./format.js";
import { MEASURES } from "./token-scale.js";
import { shown } from "./token-text.js";

const CUT = 1e-6;

const ROWS = {
  sampler_logprobs: "log-prob, sampled",
  old_logprobs: "log-prob, old",
  new_logprobs: "log-prob, update",
  change: "new − old",
  ratios: "ratio",
  gates: "gate",
  advantages: "advantage",
  weights: "weight",
  entropies: "entropy (nats)",
  ref_logprobs: "log-prob, reference",
  values: "critic's value",
  returns: "return",
};

export function readoutOf({ held, other }, index) {
  const piece = held.pieces[index];
  if (!piece) return null;
  const [text, start, stop] = piece;
  const row = (name, own, theirs) => h("tr", {}, h("th", { scope: "row" }, name), cell(own), other ? cell(theirs) : null);
  const rows = Object.entries(ROWS)
    .filter(([name]) => held.columns[name] || other?.columns[name])
    .map(([name, word]) => row(word, list(held.columns[name], start, stop), list(other?.columns[name], start, stop)));
  if (other) rows.push(row(MEASURES.shares.word, "", list(other.columns.shares, start, stop)));
  const ids = held.ids.slice(start, stop).join(", ");
  const many = stop - start > 1;
  const head = other ? h("thead", {}, h("tr", {}, h("td"), h("th.number", { scope: "col" }, "the run"), h("th.number", { scope: "col" }, `as ${other.algorithm}`))) : null;
  return [
    h("h3", {}, many ? `tokens ${start} to ${stop - 1}` : `token ${start}`, " ", h("code", {}, shown(text))),
    h("p.quiet", {}, `${many ? "ids" : "id"} ${ids}, ${fate(held, start)}`),
    h("table.pairs", {}, head, h("tbody", {}, rows)),
  ];
}

/** Values of several tokens may break over lines, one value never. */
function cell(text) {
  return h(text.includes(",") ? "td.number.many" : "td.number", {}, text);
}

function fate(held, start) {
  if (held.columns.mask && !held.columns.mask[start]) return "not the policy's own";
  return held.columns.trained?.[start] ? "trained on" : "not trained on";
}

function list(values, start, stop) {
  if (!values) return "";
  return values.slice(start, stop).map((value) => number(value, 4)).join(", ") || DASH;
}

/** A token that has an advantage and loses its whole gradient. */
export function isCut(held, columns, index) {
  const gate = columns.gates?.[index];
  return Boolean(held.columns.trained?.[index]) && gate !== null && gate !== undefined && gate <= CUT && columns.advantages?.[index] !== 0;
}

/** In one line: how many tokens are cut, and the mean gate. Tokens without an advantage have no gradient to lose. */
export function cutLine(held, columns) {
  const { trained } = held.columns;
  if (!columns.gates || !trained) return "";
  const seen = columns.gates.filter((value, index) => trained[index] && value !== null && columns.advantages?.[index] !== 0);
  if (!seen.length) return "";
  const cut = seen.filter((value) => value <= CUT).length;
  const mean = seen.reduce((sum, value) => sum + value, 0) / seen.length;
  return `${cut} of ${seen.length} trained tokens cut (${percent(cut / seen.length)}), mean gate ${number(mean)}`;
}
