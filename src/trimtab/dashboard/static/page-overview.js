// A run at a glance: the doctor's verdict first, then the eight curves that matter, and before and after.

import { append, h, replace, visible } from "./dom.js";
import { bytes, duration, number, percent } from "./format.js";
import { figure } from "./charts.js";
import { linkTo } from "./links.js";
import { withInterval } from "./series.js";
import { own } from "./own.js";
import { source } from "./source.js";

const HELD_OUT = "evaluation/pass@1";
const POINTS = 500;

/** [title, key, curves of other keys beside it]. */
function eightOf(run) {
  const soft = run.region && !run.region.cuts;
  return [
    ["Pass rate", "reward/outcome", [[HELD_OUT, "held-out"]]],
    ["Reward that is optimised", "reward/mean", []],
    ["Entropy", "policy/entropy", []],
    ["Response tokens", "length/mean", []],
    ["Truncated answers", "length/truncated", []],
    soft ? ["Gradient let through", "gate/mass", []] : ["Gradient removed", "clip/removed", []],
    ["KL from the old policy", "kl/old_k3", []],
    ["Groups that can teach", "groups/mixed", []],
  ];
}

export async function overviewPage(page) {
  const verdict = h("section.verdict", { "aria-label": "Verdict" }, h("h2", {}, "The doctor is looking …"), h("p.quiet", {}, "at the record as it stands"));
  const held = h("section", { "aria-label": "Before and after" });
  const tell = async () => fillVerdict(verdict, page, await source.of("findings", page.id));
  const grid = h("section.curves.eight", { "aria-label": "Curves" });
  const shown = { curves: null };
  const build = async () => {
    shown.curves = await curves(page);
    replace(grid, shown.curves.figures);
  };
  await build();
  tell().catch((problem) => replace(verdict, h("p.problem", { role: "alert" }, problem.message)));
  page.onGrow(build);
  page.onMove(() => shown.curves.update());
  fillEvaluations(held, page.run);
  page.onMove(tell, 4000);
  page.onMove(async () => fillEvaluations(held, await source.of("run", page.id)), 8000);
  return h("div", {}, verdict, grid, held);
}

function fillVerdict(box, page, found) {
  box.className = `verdict ${found.worst ?? "healthy"}`;
  const seen = found.findings.filter((finding) => finding.outcome === "found");
  const list = seen.slice(0, 4).map((finding) =>
    h(
      "li",
      {},
      h(`span.severity.${finding.severity}`, {}, finding.severity),
      " ",
      visible(finding.title),
    ),
  );
  const more = seen.length > list.length ? `${seen.length - list.length} more. ` : "";
  box.replaceChildren();
  append(box, [
    h("h2", {}, seen.length ? `The doctor found ${seen.length === 1 ? "one thing" : `${seen.length} things`}` : "The doctor found nothing wrong"),
    seen.length ? h("p", {}, found.verdict) : null,
    seen.length > 1 ? h("ul.findings", {}, list) : null,
    h("p.quiet", {}, `${more}${found.looked} rules looked, ${found.skipped} could not. `, h("a", { href: linkTo(page.id, "doctor") }, "All findings, with their evidence")),
  ]);
}

function fillEvaluations(box, run) {
  box.replaceChildren();
  const last = run.evaluations.at(-1);
  if (last) {
    const names = Object.keys(last).filter((name) => `${name}_interval` in last);
    const head = ["evaluation", ...names, "mean length", "truncated", "against start"];
    const title = (name, index) => h("th", { scope: "col", class: index && index < head.length - 1 ? "number" : null }, name);
    append(box, [
      h("h2", {}, "Held-out prompts, before and after"),
      h("div.scroll", {}, h("table", {}, h("thead", {}, h("tr", {}, head.map(title))), h("tbody", {}, run.evaluations.map((one) => evaluation(one, names))))),
      h("p.quiet", {}, "In brackets: 95% interval over prompts."),
    ]);
  }
  append(box, [stages(run)]);
}

function evaluation(one, names) {
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, visible(one.label)),
    names.map((name) => h("td.number", {}, estimate(one, name))),
    h("td.number", {}, number(one.mean_length)),
    h("td.number", {}, percent(one.truncated)),
    h("td", {}, change(one.against_start)),
  );
}

function estimate(one, name) {
  const interval = one[`${name}_interval`];
  if (!interval) return number(one[name]);
  return [fixed(one[name]), h("span.quiet", {}, ` [${fixed(interval[0])}, ${fixed(interval[1])}]`)];
}

function fixed(value) {
  return value.toFixed(3).replace("-", "−");
}

function change(against) {
  if (!against) return "–";
  const sign = against.difference > 0 ? "+" : "";
  const interval = ` [${against.interval.map(fixed).join(", ")}]`;
  return [h("strong", {}, `${sign}${fixed(against.difference)}`), h("span.quiet", {}, interval), ` ${against.verdict}`];
}

async function curves(page) {
  const known = new Set([...page.run.keys, ...page.run.evaluation_keys]);
  const shown = eightOf(page.run).filter(([, key]) => known.has(key));
  const keys = shown.flatMap(([, key, others]) => [key, ...others.flatMap(([other]) => [other, `${other}_low`, `${other}_high`])]);
  const wanted = keys.filter((key) => known.has(key));
  const [held, catalogue] = await Promise.all([source.curves(page.id, wanted, POINTS), source.of("catalogue", page.id)]);
  const curvesOf = (found, [title, key, others]) => {
    const more = others.filter(([other]) => found[other]);
    const own = { label: more.length ? "training" : title, ...(found[key] ?? { steps: [], values: [] }) };
    return [own, ...more.map(([other, label]) => ({ label, points: true, dash: [4, 3], ...withInterval(other, found) }))];
  };
  const figures = shown.map((one) => {
    const [title, key] = one;
    return figure({ title, key, meaning: `${key}: ${own(catalogue, key)?.meaning}`, link: linkTo(page.id, "curves", { show: key }), curves: curvesOf(held.curves, one), sync: page.id });
  });
  const update = async () => {
    const now = await source.curves(page.id, wanted, POINTS);
    shown.forEach((one, index) => figures[index].update(curvesOf(now.curves, one)));
  };
  return { figures, update };
}

function stages(run) {
  const summary = run.summary;
  if (!summary?.seconds?.stages) return null;
  const total = summary.seconds.train || 1;
  const parts = Object.entries(summary.seconds.stages).sort((a, b) => b[1] - a[1]);
  const told = parts.filter(([, seconds]) => seconds / total >= 0.005).map(([name, seconds]) => `${name.replaceAll("_", " ")} ${percent(seconds / total)}`);
  return h("p.quiet", {}, `${summary.steps} steps in ${duration(total)}: ${told.join(", ")}; at most ${bytes(summary.peak_memory_bytes)} of memory.`);
}
