// One rollout, every token coloured by one of its values; the same tokens under another algorithm on demand.

import { foreign, h, replace, visible } from "./dom.js";
import { number } from "./format.js";
import { linkTo } from "./links.js";
import { whenClosed } from "./lifetime.js";
import { gradeOf } from "./page-rollouts.js";
import { source } from "./source.js";
import { cutLine, isCut, readoutOf } from "./token-readout.js";
import { MEASURES, scaleOf } from "./token-scale.js";
import { TokenText } from "./token-text.js";

export async function tokensPage(page) {
  const { step, rollout } = await chosen(page);
  if (rollout === null) return page.none("No rollout with recorded tokens. record.tokens decides for how many groups they are kept.");
  const others = await neighbours(page, step, rollout);
  let held;
  try {
    held = await source.tokens(page.id, step, rollout);
  } catch (problem) {
    return [others, await withoutTokens(page, step, rollout, problem.message)];
  }
  const { algorithms } = await source.ask("algorithms");
  const state = { held, other: null };
  const readout = h("div.token-readout", { id: "token-readout", "aria-live": "polite" });
  const text = new TokenText(held.pieces, range(page), (index) => replace(readout, readoutOf(state, index)));
  const parts = controls(state, algorithms, page.query);
  const legend = h("div.legend-line");
  const colour = () => {
    const measure = parts.measure.value;
    const column = columnOf(state, measure);
    if (!column) return;
    const scale = scaleOf(measure, column);
    const columns = { ...held.columns, ...state.other?.columns };
    text.colour({ measure, column, scale, isCut: (start, stop) => cutBetween(held, columns, start, stop) });
    replace(legend, legendOf(state, measure, scale));
    replace(readout, readoutOf(state, text.at ?? 0));
  };
  const switchTo = async (name) => {
    parts.problem.textContent = "";
    state.other = null;
    try {
      if (name) state.other = (await source.tokens(page.id, step, rollout, name)).other;
    } catch (problem) {
      parts.problem.textContent = visible(problem.message);
      parts.as.value = "";
    }
    offer(parts.measure, state);
    colour();
  };
  parts.measure.addEventListener("change", colour);
  parts.as.addEventListener("change", () => switchTo(parts.as.value));
  addEventListener("themechange", colour);
  whenClosed(() => removeEventListener("themechange", colour));
  if (parts.as.value) await switchTo(parts.as.value);
  else colour();
  if (page.query.get("from")) requestAnimationFrame(() => text.box.querySelector(".marked")?.scrollIntoView({ block: "center" }));
  return [head(step, held), others, prompt(held), parts.form, legend, h("div.token-page", {}, text.box, readout)];
}

/** The rollout of the address, or a telling one: flagged and trained on, of the newest step that has one. */
async function chosen(page) {
  const rollout = page.query.get("rollout");
  if (rollout) return { step: Number(page.query.get("step")), rollout };
  for (const step of page.run.rollout_steps.slice(-5).reverse()) {
    const { groups } = await source.rollouts(page.id, step);
    const rows = groups.flatMap((group) => group.rollouts.map((one) => ({ ...one, flag: group.flag }))).filter((one) => one.has_tokens);
    const trained = rows.filter((one) => one.update !== null);
    const best = trained.find((one) => one.clipped) ?? trained.find((one) => one.flag) ?? trained[0] ?? rows[0];
    if (best) return { step, rollout: best.key };
  }
  return { step: null, rollout: null };
}

/** What the record has of a rollout whose tokens were not kept: its text and its grade, and why there is no more. */
async function withoutTokens(page, step, rollout, why) {
  const { groups } = await source.rollouts(page.id, step);
  const group = groups.find((one) => one.rollouts.some((other) => other.key === rollout));
  if (!group) throw new Error(why);
  const held = { ...group, ...group.rollouts.find((one) => one.key === rollout) };
  return [head(step, held), prompt(held), foreign("pre.tokens", held.text), held.detail ? h("p.quiet", {}, visible(held.detail)) : null, h("p.problem", { role: "alert" }, why)];
}

function range(page) {
  const from = page.query.get("from");
  return from === null ? null : [Number(from), Number(page.query.get("to") ?? Number(from) + 1)];
}

async function neighbours(page, step, rollout) {
  const { groups } = await source.rollouts(page.id, step).catch(() => ({ groups: [] }));
  const group = groups.find((one) => one.rollouts.some((other) => other.key === rollout));
  if (!group) return null;
  const link = (one) =>
    one.has_tokens
      ? h("a", { href: linkTo(page.id, "tokens", { step, rollout: one.key }), "aria-current": one.key === rollout ? "page" : null, "aria-label": `answer ${one.index}, ${gradeOf(one)}` }, `${one.index} ${MARKS[one.grade] ?? "?"}`)
      : h("a.quiet", { href: linkTo(page.id, "tokens", { step, rollout: one.key }), title: "tokens not recorded", "aria-current": one.key === rollout ? "page" : null }, `${one.index} ${MARKS[one.grade] ?? "?"}`);
  const side = h("a", { href: linkTo(page.id, "rollouts", { step, group: group.key }) }, "side by side");
  return h("nav.neighbours", { "aria-label": "Answers of the same group" }, h("span.quiet", {}, "Answers of the group"), group.rollouts.map(link), side);
}

const MARKS = { right: "✓", wrong: "✕", partial: "◐" };

function head(step, held) {
  const facts = [
    h(`span.grade.${held.grade ?? "unknown"}`, {}, gradeOf(held)), `step ${step}`, held.update === null ? "not trained on" : `update ${held.update}`,
    `${held.length} tokens`, held.finish === "length" ? "truncated" : `finish: ${held.finish ?? "not known"}`,
    held.reward === null ? null : `reward ${number(held.reward)}`, held.advantage === null ? null : `advantage ${number(held.advantage)}`,
    `gold answer ${visible(JSON.stringify(held.answer))}`, held.flag ? `flagged: ${visible(held.flag)}` : null,
  ];
  const shown = facts.filter(Boolean).flatMap((fact, index) => (index ? [" · ", fact] : [fact]));
  return h("header.rollout", {}, h("h2", {}, visible(held.key)), h("p.quiet", {}, shown));
}

function prompt(held) {
  return h("details.prompt", { open: held.prompt.length < 400 }, h("summary", {}, "Prompt: never in the loss, so its tokens have no values"), foreign("pre.prompt", held.prompt));
}

function controls(state, algorithms, query) {
  const measure = h("select", { id: "measure" });
  offer(measure, state, query.get("by"));
  const as = h("select", { id: "as" }, h("option", { value: "" }, "the run's own"), algorithms.map((name) => h("option", { value: name }, name)));
  as.value = algorithms.includes(query.get("as")) ? query.get("as") : "";
  const problem = h("span.problem", { role: "alert" });
  const form = h("form.controls", { submit: (event) => event.preventDefault() }, h("label", { for: "measure" }, "Colour by "), measure, h("label", { for: "as" }, "As if trained by "), as, problem);
  return { form, measure, as, problem };
}

function offer(select, state, wanted = null) {
  const before = wanted ?? select.value;
  const there = Object.keys(MEASURES).filter((name) => columnOf(state, name));
  select.replaceChildren(...there.map((name) => h("option", { value: name }, MEASURES[name].title)));
  select.value = there.includes(before) ? before : there[0];
}

function cutBetween(held, columns, start, stop) {
  for (let index = start; index < stop; index += 1) if (isCut(held, columns, index)) return true;
  return false;
}

function columnOf(state, name) {
  return state.other?.columns[name] ?? state.held.columns[name];
}

function legendOf(state, measure, scale) {
  const swatch = (value) => {
    const box = h("span.swatch", {}, number(value, 2));
    box.style.backgroundColor = scale.colour(value);
    return box;
  };
  const lines = [["the run", state.held.columns], ...(state.other ? [[`as ${state.other.algorithm}`, state.other.columns]] : [])];
  const told = lines.map(([name, columns]) => [name, cutLine(state.held, columns)]).filter(([, text]) => text);
  return [
    h("span.quiet", {}, MEASURES[measure].word),
    scale.stops.map(swatch),
    h("span.swatch.without", {}, "no value"),
    h("span.swatch.token.cut", {}, "cut"),
    told.map(([name, text]) => h("span.quiet", {}, told.length > 1 ? `${name}: ${text}` : text)),
  ];
}
