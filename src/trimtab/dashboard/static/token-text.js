// The answer as coloured pieces: filled in chunks, pointed at by mouse or keyboard.

import { h, visible } from "./dom.js";
import { MEASURES, worst } from "./token-scale.js";

const CHUNK = 1200;
const KEYS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, PageDown: 100, PageUp: -100, Home: -Infinity, End: Infinity };

/** pieces: [text, start, stop]; tell(index of the piece) is called when one is pointed at. */
export class TokenText {
  constructor(pieces, marked, tell) {
    Object.assign(this, { pieces, marked, tell, spans: [], at: null, paint: null });
    this.box = h("div.tokens", {
      role: "group", tabindex: "0", "aria-label": "The answer, token by token; arrow keys move", "aria-describedby": "token-readout",
      mouseover: (event) => this.under(event), click: (event) => this.under(event), keydown: (event) => this.key(event),
    });
    this.add(0);
  }

  /** A chunk a frame, so that the first of thousands of tokens are on the screen at once. */
  add(from) {
    const part = document.createDocumentFragment();
    const to = Math.min(from + CHUNK, this.pieces.length);
    for (let index = from; index < to; index += 1) {
      const [text, start] = this.pieces[index];
      const inside = this.marked && start >= this.marked[0] && start < this.marked[1];
      const span = h(inside ? "span.token.marked" : "span.token", { "data-index": start, "data-piece": index }, shown(text));
      this.spans.push(span);
      part.append(span);
      if (text.includes("\n")) part.append(document.createElement("br"));
    }
    this.box.append(part);
    if (this.paint) this.colour(this.paint, from);
    if (to < this.pieces.length) requestAnimationFrame(() => this.add(to));
  }

  /** paint: {measure, column, scale, isCut: whether tokens from, to lose their whole gradient}. */
  colour(paint, from = 0) {
    this.paint = paint;
    const { middle } = MEASURES[paint.measure];
    for (let index = from; index < this.spans.length; index += 1) {
      const [, start, stop] = this.pieces[index];
      const value = worst(paint.column, start, stop, middle);
      this.spans[index].style.backgroundColor = paint.scale.colour(value);
      this.spans[index].classList.toggle("without", value === null);
      this.spans[index].classList.toggle("cut", paint.isCut(start, stop));
    }
  }

  under(event) {
    const span = event.target.closest?.(".token");
    if (span) this.point(Number(span.dataset.piece));
  }

  key(event) {
    const by = KEYS[event.key];
    if (by === undefined || !this.spans.length) return;
    event.preventDefault();
    this.point(Math.min(this.spans.length - 1, Math.max(0, (this.at ?? (by > 0 ? -1 : 0)) + by)));
    this.spans[this.at].scrollIntoView({ block: "nearest" });
  }

  point(index) {
    if (index === this.at) return;
    this.spans[this.at]?.classList.remove("at");
    this.spans[index]?.classList.add("at");
    this.at = index;
    this.tell(index);
  }
}

/** A token's text with its breaks and tabs as signs; one without text has a sign too, and a mark a circle to stand on. */
export function shown(text) {
  if (text === "") return "∅";
  const own = /^\p{M}/u.test(text) ? `◌${text}` : text;
  return visible(own).replaceAll("\n", "⏎").replaceAll("\t", "⇥");
}
