// Runs that differ in their seed only, joined to a mean with an interval.

import { visible } from "./dom.js";
import { aligned } from "./series.js";

const OF_A_SEED = new Set(["run.seed", "run.name", "data.seed"]);

/** 97.5% quantile of Student's t for n - 1 degrees of freedom, n = 2, 3, …; the normal's from 31 on. */
const T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045];

/** [[index of a run, …], …]: runs whose settings agree in all but seed and name stand together. */
export function groupsOf(runs) {
  const groups = new Map();
  runs.forEach((run, index) => {
    const same = Object.entries(run.settings).filter(([name]) => !OF_A_SEED.has(name)).sort(([a], [b]) => (a < b ? -1 : 1));
    const key = same.length ? JSON.stringify(same) : run.id;
    groups.set(key, [...(groups.get(key) ?? []), index]);
  });
  return [...groups.values()];
}

/** One curve a run: {label, index, steps, values}. */
export function apart(runs, curves) {
  return runs.map((run, index) => ({ label: visible(run.id), index, ...curves[index] }));
}

/** One curve a group of seeds. */
export function together(runs, groups, curves) {
  return groups.map((members, index) => {
    if (members.length === 1) return { label: visible(runs[members[0]].id), index, ...curves[members[0]] };
    return { ...labels(runs, members), index, ...joined(members.map((member) => curves[member])) };
  });
}

function labels(runs, members) {
  const name = visible(runs[members[0]].region?.algorithm ?? runs[members[0]].name);
  const band = members.length === 2 ? "both" : "95% t interval of the mean";
  return { short: name, label: `${name}: mean of ${members.length} seeds, band ${band}` };
}

/** The mean where every seed has a value. Band: of three seeds or more mean ± t s / sqrt(n), of two their values. */
export function joined(curves) {
  const there = curves.filter((curve) => curve.steps.length);
  const { steps, columns } = aligned(there);
  const found = { steps: [], values: [], low: [], high: [] };
  steps.forEach((step, place) => {
    const values = columns.map((column) => column[place]).filter((value) => value !== null);
    if (values.length < there.length || !values.length) return;
    const mean = values.reduce((a, b) => a + b, 0) / values.length;
    const [low, high] = interval(values, mean);
    found.steps.push(step);
    found.values.push(mean);
    found.low.push(low);
    found.high.push(high);
  });
  return found;
}

export function interval(values, mean) {
  if (values.length < 3) return [Math.min(...values), Math.max(...values)];
  const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
  const half = ((T[values.length - 2] ?? 1.96) * spread) / Math.sqrt(values.length);
  return [mean - half, mean + half];
}
