// The router: a hash names a page and its parameters, so that every view has an address and works from a file.

import { h, replace } from "./dom.js";
import { linkTo } from "./links.js";
import { source } from "./source.js";
import { closeAll } from "./lifetime.js";
import { restoreTheme, themeSwitch } from "./theme.js";
import { runsPage } from "./page-runs.js";
import { comparePage } from "./page-compare.js";
import { runFrame } from "./frame.js";

const content = document.getElementById("content");
const top = document.getElementById("top");
let turn = 0;

/** {path: ["run", "id", "overview"], query: URLSearchParams} of the address. */
export function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { path: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query) };
}

async function show() {
  const mine = ++turn;
  closeAll();
  try {
    const { path, query } = address();
    replace(top, masthead(path));
    const page = await pageOf(path, query, () => mine === turn);
    if (mine !== turn) return;
    replace(content, page);
    content.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  } catch (problem) {
    if (mine !== turn) return;
    replace(content, h("p.problem", { role: "alert" }, problem.message));
  }
  document.body.setAttribute("data-ready", String(mine));
}

async function pageOf(path, query, isWanted) {
  if (path[0] === "run") return runFrame(path[1], path[2] ?? "overview", query, isWanted);
  if (path[0] === "compare") return comparePage(query);
  const { runs } = await source.ask("runs");
  if (path.length === 0 && runs.length === 1) {
    location.replace(linkTo(runs[0].id, "overview"));
    return h("p.quiet", {}, "Opening the only run…");
  }
  return runsPage();
}

function masthead(path) {
  const isList = path[0] !== "run" && path[0] !== "compare";
  const { label, mark, toggle } = themeSwitch;
  return h(
    "nav.masthead",
    { "aria-label": "trimtab" },
    h("a.brand", { href: "#/runs" }, "trimtab"),
    source.live ? h("a", { href: "#/runs", "aria-current": isList ? "page" : null }, "Runs") : null,
    h("span.version", {}, document.body.dataset.version),
    h("button.plain", { type: "button", "aria-label": label, title: label, click: toggle }, mark),
  );
}

restoreTheme();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address is the router's
  content.focus();
});
addEventListener("hashchange", show);
show();
