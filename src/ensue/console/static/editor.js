// An editor for OPSL: a text area over the same text in colours, errors underlined while typing.

import { later, make } from "./elements.js";
import { Problem, post } from "./api.js";
import { coloured, unitsOf } from "./opsl.js";

const PAUSE = 300; // milliseconds without a key before the text is checked

export class Editor {
  // `area` is a textarea with a label; `regions` gives those that the text may name.
  constructor(area, { regions = () => ({}), changed = () => {} } = {}) {
    this.area = area;
    this._regions = regions;
    this._changed = changed;
    this._marks = [];
    this._asked = null;
    this._colours = make("pre", { class: "colours", "aria-hidden": "true" });
    this._says = make("div", { class: "editor-says", id: `${area.id}-says`, role: "status" });
    const frame = make("div", { class: "editor" });
    area.replaceWith(frame);
    frame.append(this._colours, area);
    frame.after(this._says);
    area.spellcheck = false;
    area.setAttribute("aria-describedby", this._says.id);
    area.addEventListener("input", () => this._typed());
    area.addEventListener("scroll", () => this._follow());
    this._check = later(PAUSE, () => this.check());
    this._paint();
  }

  get text() {
    return this.area.value;
  }

  set text(value) {
    if (value === this.area.value) return;
    this.area.value = value;
    this._typed();
  }

  set readOnly(value) {
    this.area.readOnly = value;
    this.area.parentElement.classList.toggle("read-only", value);
  }

  _typed() {
    this._marks = [];
    this._paint();
    this._check();
    this._changed(this.text);
  }

  // Asks the service; gives whether the text can be used.
  async check() {
    this._asked?.abort();
    const text = this.text;
    if (!text.trim()) {
      this._show(null, null);
      return false;
    }
    this._asked = new AbortController();
    try {
      const found = await post(
        "/check",
        { text, regions: this._regions() },
        { signal: this._asked.signal },
      );
      if (text === this.text) this._show(null, found);
      return true;
    } catch (problem) {
      if (problem.name === "AbortError") return false;
      if (!(problem instanceof Problem)) throw problem;
      if (text === this.text) this._show(problem, null);
      return false;
    }
  }

  _show(problem, found) {
    const bad = problem !== null;
    this.area.setAttribute("aria-invalid", String(bad));
    this._marks = [];
    if (bad && problem.start !== null) {
      const start = unitsOf(this.text, problem.start);
      const end = Math.max(unitsOf(this.text, problem.end), start + 1);
      const at = Math.min(start, Math.max(0, this.text.length - 1)); // at the end of the text: its last sign
      this._marks = [{ start: at, end: Math.min(end, this.text.length), class: "wrong" }];
    }
    this._paint();
    this._says.className = `editor-says ${bad ? "bad" : found ? "good" : ""}`;
    this._says.replaceChildren();
    if (bad) {
      const place = problem.line ? `Line ${problem.line}, column ${problem.column}: ` : "";
      const words = make("p", {}, make("strong", {}, place), problem.message);
      if (problem.start !== null) {
        words.append(
          " ",
          make(
            "button",
            { type: "button", class: "link", onclick: () => this._select() },
            "Go there",
          ),
        );
      }
      this._says.append(words);
      if (problem.hint) this._says.append(make("p", { class: "hint" }, `Hint: ${problem.hint}`));
    } else if (found) {
      this._says.append(make("p", {}, "The query is valid."));
    }
  }

  _select() {
    const [mark] = this._marks;
    this.area.focus();
    if (mark) this.area.setSelectionRange(mark.start, mark.end);
  }

  _paint() {
    // A last line that is empty has no height without a sign of its own.
    this._colours.replaceChildren(coloured(this.text, this._marks), "\n");
    this._follow();
  }

  _follow() {
    this._colours.scrollTop = this.area.scrollTop;
    this._colours.scrollLeft = this.area.scrollLeft;
  }
}

// Texts on the page that are only to be read.
export function colourTexts(inside = document) {
  for (const element of inside.querySelectorAll("[data-opsl]")) {
    element.replaceChildren(coloured(element.textContent));
    element.removeAttribute("data-opsl");
  }
}
