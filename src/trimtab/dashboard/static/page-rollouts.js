// Step, group, rollout: filters, text search, answers of a group side by side, and the mark for the better one.

import { append, debounce, foreign, h, visible } from "./dom.js";
import { number, percent } from "./format.js";
import { linkTo } from "./links.js";
import { source } from "./source.js";

const FILTERS = {
  all: ["all", () => true],
  right: ["right", (rollout) => rollout.grade === "right"],
  wrong: ["wrong", (rollout) => rollout.grade === "wrong"],
  partial: ["partial", (rollout) => rollout.grade === "partial"],
  ungraded: ["not graded", (rollout) => rollout.value === null],
  truncated: ["truncated", (rollout) => rollout.finish === "length"],
  clipped: ["clipped", (rollout) => (rollout.clipped ?? 0) > 0],
  flagged: ["in flagged groups", (rollout, group) => group.flag !== null],
  kept: ["in kept groups", (rollout, group) => group.kept],
  dropped: ["in dropped groups", (rollout, group) => !group.kept],
};

/** Groups shown at first; more on demand. */
const GROUPS = 40;

export async function rolloutsPage(page) {
  const steps = page.run.rollout_steps;
  if (!steps.length) return page.none("No rollouts were recorded yet.");
  const browser = new Browser(page, steps);
  await browser.load();
  page.onMove(() => browser.refresh(), 3000);
  return [browser.form, browser.count, browser.list, browser.more];
}

class Browser {
  constructor(page, steps) {
    Object.assign(this, { page, steps: [...steps], held: null, most: GROUPS });
    const wanted = Number(page.query.get("step") ?? steps.at(-1));
    const option = (one) => h("option", { value: one }, String(one));
    this.step = h("select", { id: "step", change: () => this.load() }, this.steps.map(option));
    this.step.value = String(steps.includes(wanted) ? wanted : steps.at(-1));
    this.filter = h("select", { id: "filter", change: () => this.fill() });
    this.search = h("input", { type: "search", id: "search", placeholder: "text, prompt id, reason", input: debounce(() => this.fill(), 80) });
    this.list = h("div.groups");
    this.count = h("p.quiet", { role: "status" });
    this.more = h("button", { type: "button", click: () => this.show(Infinity) }, "Show all groups");
    this.form = h(
      "form.controls",
      { submit: (event) => event.preventDefault() },
      h("button", { type: "button", "aria-label": "Step before", click: () => this.go(-1) }, "‹"),
      h("label", { for: "step" }, "Step "), this.step,
      h("button", { type: "button", "aria-label": "Step after", click: () => this.go(1) }, "›"),
      h("label", { for: "filter" }, "Show "), this.filter,
      h("label", { for: "search" }, "Search "), this.search,
    );
  }

  go(by) {
    const place = this.steps.indexOf(Number(this.step.value)) + by;
    if (place < 0 || place >= this.steps.length) return;
    this.step.value = String(this.steps[place]);
    this.load();
  }

  async load() {
    const step = Number(this.step.value);
    try {
      const held = await source.rollouts(this.page.id, step);
      if (Number(this.step.value) !== step) return;
      this.held = held;
    } catch (problem) {
      this.list.replaceChildren(h("p.problem", { role: "alert" }, problem.message));
      return;
    }
    this.offer();
    this.fill();
    const wanted = this.page.query.get("group");
    if (wanted) requestAnimationFrame(() => document.getElementById(`group-${wanted}`)?.scrollIntoView());
  }

  /** The filters with how many rollouts of this step each has, and the reasons for which groups were dropped. */
  offer() {
    const wanted = this.filter.value || this.page.query.get("filter") || "all";
    const reasons = [...new Set(this.held.groups.filter((group) => !group.kept).map((group) => group.reason))].sort();
    const tests = Object.entries(FILTERS).map(([value, [text, test]]) => [value, text, test]);
    for (const reason of reasons) tests.push([`dropped:${reason}`, `dropped: ${reason}`, (rollout, group) => !group.kept && group.reason === reason]);
    this.tests = new Map(tests.map(([value, , test]) => [value, test]));
    const many = (test) => this.held.groups.reduce((sum, group) => sum + group.rollouts.filter((one) => test(one, group)).length, 0);
    this.filter.replaceChildren(...tests.map(([value, text, test]) => h("option", { value }, `${visible(text)} (${many(test)})`)));
    this.filter.value = this.tests.has(wanted) ? wanted : "all";
  }

  fill() {
    this.show(this.page.query.get("group") ? Infinity : GROUPS);
  }

  show(most) {
    const test = this.tests.get(this.filter.value);
    const words = this.search.value.trim().toLowerCase();
    const step = this.held.step;
    const inGroup = (group) => [group.prompt, group.key, group.reason].some((text) => text.toLowerCase().includes(words));
    const hits = this.held.groups
      .map((group) => ({ group, rollouts: group.rollouts.filter((one) => test(one, group) && (!words || inGroup(group) || one.text.toLowerCase().includes(words))) }))
      .filter(({ rollouts }) => rollouts.length);
    this.list.replaceChildren(...hits.slice(0, most).map(({ group, rollouts }) => groupBox(this.page, step, group, rollouts)));
    const shown = hits.reduce((sum, { rollouts }) => sum + rollouts.length, 0);
    const total = this.held.groups.reduce((sum, group) => sum + group.rollouts.length, 0);
    this.count.textContent = `${shown} of ${total} rollouts, ${hits.length} of ${this.held.groups.length} groups of step ${step}`;
    const { left_out: leftOut } = this.held;
    if (leftOut) this.count.textContent += `; ${leftOut} more groups are in the run, not in this report`;
    this.more.hidden = hits.length <= most;
  }

  async refresh() {
    const run = await source.of("run", this.page.id);
    for (const step of run.rollout_steps.filter((one) => !this.steps.includes(one))) {
      this.steps.push(step);
      this.step.append(h("option", { value: step }, String(step)));
    }
  }
}

function groupBox(page, step, group, rollouts) {
  const graded = group.rollouts.filter((one) => one.value !== null);
  const rate = graded.length ? graded.reduce((sum, one) => sum + one.value, 0) / graded.length : null;
  const facts = [
    group.kept ? h("span.tag.kept", {}, "kept") : h("span.tag.dropped", {}, `dropped: ${visible(group.reason)}`),
    group.carried ? h("span.tag", {}, "carried") : null,
    group.flag ? h("span.tag.flag", {}, `flagged: ${visible(group.flag)}`) : null,
    h("span.quiet", {}, `pass rate ${percent(rate)}, gold answer ${visible(JSON.stringify(group.answer))}`),
  ];
  const marking = source.preference ? new Marking(page, step) : null;
  return h(
    "section.group",
    { id: `group-${group.key}`, "data-group": group.key },
    h("h3", {}, visible(group.key), " ", facts),
    foreign("pre.prompt", group.prompt),
    h("div.answers", {}, rollouts.map((one) => answer(page, step, one, marking))),
    marking?.status,
  );
}

function answer(page, step, one, marking) {
  const facts = [
    one.finish === "length" ? h("span.tag.cut", {}, "truncated") : null,
    h("span", {}, `${one.length} tokens`),
    one.reward === null ? null : h("span", {}, `reward ${number(one.reward)}`),
    one.advantage === null ? null : h("span", {}, `advantage ${number(one.advantage)}`),
    one.gate === undefined ? null : h("span", {}, `gate ${number(one.gate)}`),
    one.clipped ? h("span.tag.cut", {}, `${percent(one.clipped)} clipped`) : null,
  ];
  return h(
    `article.answer.${one.grade ?? "unknown"}`,
    { "data-rollout": one.key },
    h("header", {}, h(`span.grade.${one.grade ?? "unknown"}`, {}, gradeOf(one)), facts),
    foreign("pre", one.text),
    one.characters > one.text.length ? h("p.quiet", {}, `… ${(one.characters - one.text.length).toLocaleString("en")} more characters`) : null,
    one.detail ? h("p.quiet", {}, visible(one.detail)) : null,
    h(
      "footer",
      {},
      one.has_tokens ? h("a", { href: linkTo(page.id, "tokens", { step, rollout: one.key }) }, "every token") : h("span.quiet", {}, "tokens not recorded"),
      marking ? marking.button(one.key) : null,
    ),
  );
}

export function gradeOf({ grade, value }) {
  if (grade === null) return "a reward alone";
  return grade === "partial" ? `partial ${number(value)}` : grade.replaceAll("_", " ");
}

/** First click: the better answer; second click, on another one: the worse. Then the pair is written. */
class Marking {
  constructor(page, step) {
    this.page = page;
    this.step = step;
    this.better = null;
    this.buttons = new Map();
    this.status = h("p.quiet", { role: "status" });
  }

  button(key) {
    const button = h("button", { type: "button", click: () => this.mark(key) }, "better");
    this.buttons.set(key, button);
    return button;
  }

  async mark(key) {
    if (this.better === null || this.better === key) {
      this.better = this.better === key ? null : key;
      this.label();
      return;
    }
    const marked = { run: this.page.id, step: this.step, better: this.better, worse: key };
    let told;
    try {
      told = `written to ${(await source.prefer(marked)).written}: ${marked.better} is better than ${marked.worse}`;
    } catch (problem) {
      told = visible(problem.message);
    }
    this.better = null;
    this.label();
    this.status.textContent = told;
  }

  label() {
    for (const [key, button] of this.buttons) {
      button.textContent = this.better === null ? "better" : key === this.better ? "better ✓ (undo)" : "… than this one";
      button.setAttribute("aria-pressed", String(key === this.better));
    }
    this.status.textContent = this.better === null ? "" : "Now choose the answer that it is better than.";
  }
}
