// What stands around every page of a run: its name and state, the pages' tabs, and the live connection.

import { append, h, replace, visible } from "./dom.js";
import { whenClosed } from "./lifetime.js";
import { linkTo } from "./links.js";
import { source } from "./source.js";
import { overviewPage } from "./page-overview.js";
import { curvesPage } from "./page-curves.js";
import { distributionsPage } from "./page-distributions.js";
import { rolloutsPage } from "./page-rollouts.js";
import { tokensPage } from "./page-tokens.js";
import { promptsPage } from "./page-prompts.js";
import { doctorPage } from "./page-doctor.js";
import { configPage } from "./page-config.js";
import { eventsPage } from "./page-events.js";

const PAGES = {
  overview: ["Overview", overviewPage],
  curves: ["Curves", curvesPage],
  distributions: ["Distributions", distributionsPage],
  rollouts: ["Rollouts", rolloutsPage],
  tokens: ["Tokens", tokensPage],
  prompts: ["Prompts", promptsPage],
  doctor: ["Doctor", doctorPage],
  config: ["Config", configPage],
  events: ["Events", eventsPage],
};

const STATES = {
  running: ["●", "running"],
  finished: ["✓", "finished"],
  stopped: ["■", "stopped"],
  killed: ["✕", "killed"],
  unknown: ["?", "unknown"],
  gone: ["✕", "gone"],
};

/** States whose reason is told beside them. */
const LOUD = new Set(["killed", "stopped", "unknown", "gone"]);

/** A run's pages share this: its description, and what to do when the run has moved. */
export class RunPage {
  constructor(run, query) {
    this.run = run;
    this.query = query;
    this.updates = [];
    this.growing = [];
    this.empty = false;
  }

  get id() {
    return this.run.id;
  }

  /** Calls update(standing) when the run has moved: one at a time, and not more often than every so many milliseconds. */
  onMove(update, every = 1000) {
    this.updates.push(new Update(update, every));
  }

  /** Calls update() when the run has metrics that it did not have, with its description read anew. */
  onGrow(update) {
    this.growing.push(update);
  }

  /** What a page shows that has nothing yet; it is built again when the run has moved. */
  none(text) {
    this.empty = true;
    return h("p.quiet", {}, text);
  }

  moved(standing) {
    for (const update of this.updates) update.due(standing);
  }

  async grow() {
    Object.assign(this.run, await source.of("run", this.id));
    for (const update of this.growing) await update();
  }
}

class Update {
  constructor(run, every) {
    Object.assign(this, { run, every, waiting: null, busy: false, closed: false, timer: 0, ended: -Infinity });
    whenClosed(() => {
      clearTimeout(this.timer);
      this.closed = true;
    });
  }

  due(standing) {
    this.waiting = standing;
    if (this.busy || this.closed) return;
    this.busy = true;
    this.timer = setTimeout(() => this.start(), Math.max(0, this.ended + this.every - performance.now()));
  }

  async start() {
    const standing = this.waiting;
    this.waiting = null;
    try {
      await this.run(standing);
    } catch (problem) {
      console.warn(`trimtab: ${problem.message}`);
    }
    this.ended = performance.now();
    this.busy = false;
    if (this.waiting) this.due(this.waiting);
  }
}

export function stateBadge(state, detail = "") {
  const [mark, word] = STATES[state] ?? STATES.unknown;
  return h(`span.state.${state}`, { title: detail }, h("span", { "aria-hidden": "true" }, mark), ` ${word}`);
}

/** The page `name` of a run, with its head and tabs; `isWanted` says whether it is still asked for. */
export async function runFrame(id, name, query, isWanted) {
  if (!Object.hasOwn(PAGES, name)) throw new Error(`there is no page ${name}`);
  const run = await source.of("run", id);
  const page = new RunPage(run, query);
  const head = new Head(run);
  const tabs = h("nav.tabs", { "aria-label": "Pages of the run" });
  for (const [key, [title]] of Object.entries(PAGES)) {
    append(tabs, [h("a", { href: linkTo(id, key), "aria-current": key === name ? "page" : null }, title)]);
  }
  const build = PAGES[name][1];
  const body = h("div.page", { "data-page": name }, await build(page));
  if (isWanted()) follow(page, head);
  if (page.empty) {
    page.onMove(async () => {
      if (!page.empty) return;
      page.empty = false;
      await page.grow();
      replace(body, await build(page));
    });
  }
  return [head.box, tabs, body];
}

/** The run's name, its state and how far it is. */
class Head {
  constructor(run) {
    this.run = run;
    this.badge = h("span", { "aria-live": "polite" });
    this.progress = h("span.quiet");
    this.detail = h("span.quiet");
    this.box = h("div.runhead", {}, h("h1", {}, visible(run.name)), this.badge, this.progress, run.region ? h("span.quiet", {}, `${run.region.algorithm}, ${run.region.told}`) : null, this.detail);
    this.tell(run);
  }

  tell({ state, detail, step, whole }) {
    if (this.badge.textContent.trim() !== stateBadge(state, detail).textContent.trim()) replace(this.badge, stateBadge(state, detail));
    const glimpse = whole === false ? ", a first look at some of them" : "";
    replace(this.progress, `${progressText(step, this.run.steps)}${glimpse}`);
    replace(this.detail, LOUD.has(state) ? visible(detail ?? "") : "");
  }
}

function progressText(step, steps) {
  if (step === null || step === undefined) return "no step yet";
  const done = (step + 1).toLocaleString("en");
  return steps ? `step ${done} of ${steps.toLocaleString("en")}` : `${done} steps`;
}

function follow(page, head) {
  let before = null;
  let grown = page.run.keys.length + page.run.evaluation_keys.length;
  const end = source.follow(page.id, (now) => {
    const standing = { step: page.run.step, ...now };
    head.tell(standing);
    const moved = before !== null && JSON.stringify(now) !== JSON.stringify(before);
    before = now;
    if (!moved && (now.keys ?? grown) === grown) return;
    Object.assign(page.run, { step: standing.step, state: now.state, detail: now.detail });
    page.moved(standing);
    if (now.keys !== grown) {
      grown = now.keys;
      page.grow().catch((problem) => console.warn(`trimtab: ${problem.message}`));
    }
  });
  whenClosed(end);
}
