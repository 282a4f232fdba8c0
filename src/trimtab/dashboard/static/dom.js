// Elements from plain values. Text always enters as text, with what is invisible made visible: no string of a model
// becomes markup, hides, or turns the direction of a page.

const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e007f}\p{Cs}]/gu;
const FLOOD = /(\p{M}{8})(\p{M}+)/gu;

const READ_OUT = new Set(["title", "aria-label", "placeholder"]);

/** An element: h("p.quiet", {title: "…"}, "text", child, …). Attributes with a function are listeners. */
export function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : READ_OUT.has(key) ? visible(value) : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(visible(child)));
  }
  return element;
}

export function replace(element, ...children) {
  element.replaceChildren();
  return append(element, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return append(element, children);
}

/**
 * Text with every invisible or steering character made visible, so that it can neither hide nor reorder anything,
 * and with floods of combining marks cut. A joiner between two emoji stays.
 */
export function visible(text) {
  return String(text)
    .replace(HIDDEN, (character, at, whole) => (character === "\u200d" && joins(whole, at) ? character : sign(character)))
    .replace(FLOOD, (found, first, rest) => `${first}⟨+${[...rest].length} marks⟩`);
}

function sign(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

function joins(text, at) {
  const before = /\p{Extended_Pictographic}\p{Emoji_Modifier}?\ufe0f?$/u;
  return before.test(text.slice(Math.max(0, at - 8), at)) && /^\p{Extended_Pictographic}/u.test(text.slice(at + 1, at + 3));
}

/** Shown text of a model or a data set: isolated from the direction of what surrounds it. */
export function foreign(tag, text, attributes = {}) {
  return h(tag, { dir: "auto", ...attributes }, visible(text));
}

export function debounce(run, milliseconds) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => run(...values), milliseconds);
  };
}
