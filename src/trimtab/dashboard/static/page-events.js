// What happened, newest first, with a choice of kinds.

import { append, h, visible } from "./dom.js";
import { number, when } from "./format.js";
import { source } from "./source.js";

const PAGE = 400;

export async function eventsPage(page) {
  const list = h("tbody");
  const kinds = new Map();
  const chosen = h("select", { id: "kind" }, h("option", { value: "" }, "all events"));
  const found = await source.of("events", page.id, { limit: PAGE });
  let next = found.first + found.events.length;
  const add = (events) => {
    for (const event of events) {
      list.prepend(row(event));
      if (!kinds.has(event.event)) append(chosen, [h("option", { value: event.event }, event.event)]);
      kinds.set(event.event, true);
    }
    filter();
  };
  const filter = () => {
    for (const line of list.children) line.hidden = chosen.value !== "" && line.dataset.event !== chosen.value;
  };
  add(found.events);
  chosen.addEventListener("change", filter);
  page.onMove(async () => {
    const more = await source.of("events", page.id, { after: next });
    next = more.first + more.events.length;
    add(more.events);
  });
  const earlier = found.first ? h("p.quiet", {}, `${found.first} earlier events are in events.jsonl.`) : null;
  const head = h("tr", {}, ["time", "step", "event", "what"].map((name) => h("th", { scope: "col", class: name === "step" ? "number" : null }, name)));
  return [h("p.controls", {}, h("label", { for: "kind" }, "Kind of event "), chosen), h("div.scroll", {}, h("table.events", {}, h("thead", {}, head), list)), earlier];
}

function row(event) {
  const { time, step, event: kind, ...rest } = event;
  return h(
    "tr",
    { "data-event": kind },
    h("td.quiet.time", {}, when(time)),
    h("td.number", {}, step ?? "–"),
    h("td", {}, visible(kind)),
    h("td.value", {}, visible(Object.entries(rest).flatMap(([name, value]) => told(name, value)).join(" · "))),
  );
}

/** "name value" for every field, those of nested objects under both names. */
function told(name, value) {
  if (value !== null && typeof value === "object" && !Array.isArray(value)) {
    return Object.entries(value).flatMap(([inner, one]) => told(`${name}.${inner}`, one));
  }
  const text = (one) => (typeof one === "number" ? number(one, 4) : typeof one === "string" ? one : JSON.stringify(one));
  return [`${name} ${Array.isArray(value) ? `[${value.map(text).join(", ")}]` : text(value)}`];
}
