// Every finding: what is seen, the rollouts that show it, likely causes in order, what to change.

import { append, h, visible } from "./dom.js";
import { percent } from "./format.js";
import { linkTo } from "./links.js";
import { source } from "./source.js";

export async function doctorPage(page) {
  const box = h("div");
  const fill = async () => {
    const found = await source.of("findings", page.id);
    const by = (outcome) => found.findings.filter((finding) => finding.outcome === outcome);
    box.replaceChildren();
    append(box, [
      h("h2", {}, heading(by("found"))),
      h("p.quiet", {}, `${found.looked} rules looked at the record up to step ${found.step ?? "–"}; ${found.skipped} could not, because the run lacks what they need.`),
      by("found").map((finding) => card(finding, page)),
      short("Could not look", by("skipped"), (finding) => `needs ${finding.missing.join(", ") || "values that this run lacks"}`),
      short("Looked, and all is well", by("clear"), (finding) => finding.title),
    ]);
  };
  await fill();
  page.onMove(fill, 4000);
  return box;
}

function heading(found) {
  if (!found.length) return "Nothing wrong was found";
  const many = (severity) => found.filter((finding) => finding.severity === severity).length;
  const parts = ["critical", "warning", "note"].filter(many).map((severity) => `${many(severity)} ${severity}${severity === "critical" || many(severity) === 1 ? "" : "s"}`);
  return `Found: ${parts.join(", ")}`;
}

function card(finding, page) {
  return h(
    `article.finding.${finding.severity}`,
    { "data-rule": finding.rule },
    h("h3", {}, h(`span.severity.${finding.severity}`, {}, finding.severity), " ", visible(finding.title)),
    h("p.quiet", {}, `${finding.rule}, seen up to step ${finding.step}`, finding.confidence === null ? null : `, ${percent(finding.confidence)} sure`),
    finding.evidence.length ? h("ul", {}, finding.evidence.map((one) => evidence(one, page))) : null,
    finding.causes.length ? h("h4", {}, "Likely causes, the likeliest first") : null,
    h("ol.causes", {}, finding.causes.map(cause)),
    finding.exhibits.length ? h("h4", {}, "Rollouts that show it") : null,
    h("ul", {}, finding.exhibits.map((one) => exhibit(one, page))),
    finding.source ? h("p.quiet", {}, `Source: ${visible(finding.source)}`) : null,
  );
}

function evidence(one, page) {
  const steps = one.steps ? ` (steps ${one.steps[0]} to ${one.steps[1]})` : "";
  const link = one.key ? h("a", { href: linkTo(page.id, "curves", { show: one.key }) }, one.key) : null;
  return h("li", {}, visible(one.text), steps, link ? " · " : null, link);
}

function cause(one) {
  return h("li", {}, h("strong", {}, visible(one.what)), h("br"), "Test: ", visible(one.test), h("br"), "Change: ", h("code", {}, visible(one.change)));
}

function exhibit(one, page) {
  const parameters = { step: one.step, rollout: one.rollout };
  if (one.tokens) parameters.from = one.tokens[0];
  if (one.tokens) parameters.to = one.tokens[1];
  return h("li", {}, h("a", { href: linkTo(page.id, "tokens", parameters) }, `step ${one.step}, ${visible(one.rollout)}`), `: ${visible(one.why)}`);
}

function short(title, findings, tell) {
  if (!findings.length) return null;
  return h("details.rest", {}, h("summary", {}, `${title} (${findings.length})`), h("ul", {}, findings.map((finding) => h("li", {}, h("strong", {}, finding.rule), ": ", visible(tell(finding))))));
}
