// The list of runs, newest first, with boxes to choose some for comparison.

import { append, h, visible } from "./dom.js";
import { number, when } from "./format.js";
import { stateBadge } from "./frame.js";
import { linkTo } from "./links.js";
import { source } from "./source.js";
import { whenClosed } from "./lifetime.js";

const REFRESH = 5000;

export async function runsPage() {
  const chosen = new Set();
  const box = h("section", { "aria-label": "Runs" });
  const fill = async () => {
    const { root, runs } = await source.ask("runs");
    box.replaceChildren();
    append(box, [h("h1", {}, `Runs in ${visible(root)}`), runs.length ? table(runs, chosen) : nothing()]);
  };
  await fill();
  if (source.live) {
    const timer = setInterval(() => {
      if (!box.contains(document.activeElement)) fill().catch(() => {});
    }, REFRESH);
    whenClosed(() => clearInterval(timer));
  }
  return box;
}

function nothing() {
  return h("p.quiet", {}, "No run yet. Start one with: trimtab train quickstart");
}

function table(runs, chosen) {
  const compare = h("button", { type: "button", class: "compare", disabled: chosen.size < 2, click: () => open(chosen) }, "Compare chosen");
  const heads = ["", "run", "state", "algorithm", "steps", "pass rate", "reward", "entropy", "length", "begun"];
  const rows = runs.map((run) => {
    const tick = h("input", {
      type: "checkbox",
      "aria-label": `choose ${run.name}`,
      checked: chosen.has(run.id),
      change: (event) => {
        if (event.target.checked) chosen.add(run.id);
        else chosen.delete(run.id);
        compare.disabled = chosen.size < 2;
      },
    });
    const last = run.last;
    return h(
      "tr",
      {},
      h("td", {}, tick),
      h("th", { scope: "row" }, h("a", { href: linkTo(run.id, "overview") }, visible(run.id))),
      h("td", {}, stateBadge(run.state, run.detail)),
      h("td", {}, visible(run.algorithm ?? "–")),
      h("td.number", {}, `${run.step === null ? 0 : run.step + 1}${run.steps ? ` of ${run.steps}` : ""}`),
      ...["reward/outcome", "reward/mean", "policy/entropy", "length/mean"].map((key) => h("td.number", {}, number(last[key]))),
      h("td.quiet.time", {}, when(run.created)),
    );
  });
  const head = h("tr", {}, heads.map((name) => h("th", { scope: "col" }, name)));
  return [h("div.scroll", {}, h("table", {}, h("thead", {}, head), h("tbody", {}, rows))), h("p", {}, compare)];
}

function open(chosen) {
  location.hash = `#/compare?${new URLSearchParams([...chosen].map((id) => ["run", id]))}`;
}
