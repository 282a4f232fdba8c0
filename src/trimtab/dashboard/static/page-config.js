// The resolved run, what it ran on, and what it said before it began.

import { h, visible } from "./dom.js";
import { bytes, when } from "./format.js";

export async function configPage(page) {
  const run = page.run;
  const tables = sections(run.settings).map(([name, entries]) => table(name, entries));
  const hardware = Object.entries(run.hardware).map(([name, value]) => [name, name.endsWith("_bytes") ? bytes(value) : value]);
  const commits = Object.entries(run.commits).map(([name, commit]) => [name, `${commit.commit}${commit.changed ? ", with changes" : ""}`]);
  const imported = run.imported ? Object.entries(run.imported) : [];
  const damage = run.damage.map((one) => [`${one.file}, byte ${one.offset}`, one.why]);
  const torn = Object.entries(run.torn).map(([file, size]) => [file, `${size} bytes of an unfinished last line`]);
  return [
    run.opening.length ? h("section", {}, h("h2", {}, "Said at the start"), h("pre.said", {}, run.opening.map((line) => `${visible(line)}\n`))) : null,
    h("h2", {}, "Settings"),
    h("div.columns", {}, tables),
    h("h2", {}, "Where it ran"),
    h("div.columns", {}, table("begun", [["time", when(run.created)]]), table("seeds", Object.entries(run.seeds)), table("versions", Object.entries(run.versions)), table("commits", commits), table("hardware", hardware), table("imported", imported)),
    damage.length + torn.length ? [h("h2", {}, "Lines that could not be read"), table("damage", [...damage, ...torn])] : null,
  ];
}

/** "trainer.learning_rate" stands under trainer. */
function sections(settings) {
  const found = new Map();
  for (const [name, value] of Object.entries(settings)) {
    const [section, ...rest] = name.split(".");
    if (!found.has(section)) found.set(section, []);
    found.get(section).push([rest.join(".") || section, value]);
  }
  return [...found];
}

function table(title, entries) {
  if (!entries.length) return null;
  const told = (value) => visible(typeof value === "string" ? value : JSON.stringify(value));
  const rows = entries.map(([name, value]) => h("tr", {}, h("th", { scope: "row" }, visible(name)), h("td.value", {}, told(value))));
  return h("section.block", {}, h("h3", {}, title), h("table.pairs", {}, h("tbody", {}, rows)));
}
