// What a person would call broken on a page: text over text, text too faint, a page that scrolls sideways.

const STEP = 4;

function shown(element) {
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  return box.width > 0 && box.height > 0 && style.visibility !== "hidden" && !element.closest("[hidden], .skip");
}

/** The visible part of a box: what the scrolling boxes around it leave of it. */
function clipped(element) {
  let { left, right, top, bottom } = element.getBoundingClientRect();
  for (let around = element.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflow === "visible") continue;
    const outer = around.getBoundingClientRect();
    left = Math.max(left, outer.left);
    right = Math.min(right, outer.right);
    top = Math.max(top, outer.top);
    bottom = Math.min(bottom, outer.bottom);
  }
  return { left, right, top, bottom };
}

function overlaps() {
  const all = [...document.querySelectorAll("a, button, select, input, summary, h1, h2, h3, h4, th, td, label, output, canvas")];
  const boxes = all.filter(shown).slice(0, 600).map((element) => [element, clipped(element)]);
  const found = [];
  for (let i = 0; i < boxes.length; i += 1) {
    for (let j = i + 1; j < boxes.length; j += 1) {
      const [one, a] = boxes[i];
      const [other, b] = boxes[j];
      if (one.contains(other) || other.contains(one)) continue;
      if (one.closest("figure") && one.tagName === "CANVAS" && other.closest("figure") === one.closest("figure") && other.tagName === "CANVAS") continue;
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > STEP && high > STEP) found.push(`${name(one)} over ${name(other)}`);
    }
  }
  return found;
}

function name(element) {
  return `${element.tagName.toLowerCase()} "${(element.textContent || element.id || "").trim().slice(0, 40)}"`;
}

function parsed(text) {
  const [red, green, blue, alpha = 1] = text.match(/[\d.]+/g).map(Number);
  return { red, green, blue, alpha };
}

function over(top, below) {
  const mix = (a, b) => a * top.alpha + b * (1 - top.alpha);
  return { red: mix(top.red, below.red), green: mix(top.green, below.green), blue: mix(top.blue, below.blue), alpha: 1 };
}

function ground(element) {
  const layers = [];
  for (let one = element; one; one = one.parentElement) layers.push(parsed(getComputedStyle(one).backgroundColor));
  const base = parsed(getComputedStyle(document.body).backgroundColor);
  return layers.reverse().reduce((below, layer) => over(layer, below), { ...base, alpha: 1 });
}

function luminance({ red, green, blue }) {
  const linear = (part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear(red) + 0.7152 * linear(green) + 0.0722 * linear(blue);
}

/** Texts whose contrast is below that of WCAG AA: 4.5, of large ones 3. */
function faint() {
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const seen = new Map();
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !shown(element) || element.closest("option, script, style, :disabled")) continue;
    const style = getComputedStyle(element);
    const back = ground(element);
    const key = `${style.color}|${back.red}|${back.green}|${back.blue}`;
    if (!seen.has(key)) {
      const fore = over(parsed(style.color), back);
      const [light, dark] = [luminance(fore), luminance(back)].sort((a, b) => b - a);
      seen.set(key, (light + 0.05) / (dark + 0.05));
    }
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    if (seen.get(key) < (large ? 3 : 4.5)) found.add(`${name(element)} ${seen.get(key).toFixed(2)}`);
  }
  return [...found].slice(0, 20);
}

function sideways() {
  return document.documentElement.scrollWidth - document.documentElement.clientWidth;
}

function nameless() {
  const controls = [...document.querySelectorAll("button, a[href], select, input, [tabindex='0'], canvas[role], svg[role]")].filter(shown);
  const named = (one) =>
    one.getAttribute("aria-label") || one.getAttribute("aria-labelledby") || one.textContent.trim() || one.labels?.length || one.title;
  return controls.filter((one) => !named(one)).map(name);
}
