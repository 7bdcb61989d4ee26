// Notifications along the time of the stream, a row for each of the busiest subscriptions.

import { draw, make } from "./elements.js";
import { about } from "./feed.js";
import { momentOf } from "./notifications.js";
import { isNumber, position, ticks } from "./times.js";

const ROWS = 4;
const LABELS = 132; // pixels for names
const ROW = 15;
const AXIS = 18;

export class Timeline {
  // The strip is one stop for the keyboard: arrows go from note to note, enter opens.
  constructor(element, stream, { open }) {
    this._stream = stream;
    this._open = open;
    this._notes = [];
    this._chosen = null;
    this._svg = draw("svg", {
      class: "timeline",
      tabindex: 0,
      role: "slider",
      "aria-label": "Timeline of notifications",
      "aria-valuetext": "No notifications",
      "aria-valuenow": 0,
      "aria-valuemin": 0,
      "aria-valuemax": 0,
    });
    element.append(this._svg);
    this._tip = make("div", { class: "tip", hidden: true });
    element.append(this._tip);
    new ResizeObserver(() => this._draw()).observe(element);
    this._svg.addEventListener("keydown", (event) => this._key(event));
    this._svg.addEventListener("click", (event) => this._clicked(event));
    this._svg.addEventListener("mousemove", (event) => this._hover(event));
    this._svg.addEventListener("mouseleave", () => {
      this._tip.hidden = true;
    });
  }

  show(notes) {
    this._notes = notes
      .filter((note) => note.kind === "match" && momentOf(note) !== null)
      .map((note) => ({ note, at: position(momentOf(note)) }))
      .sort((a, b) => a.at - b.at || a.note.number - b.note.number);
    this._draw();
  }

  choose(number) {
    this._chosen = number;
    this._draw();
  }

  _rows() {
    const counts = new Map();
    for (const { note } of this._notes) counts.set(note.name, (counts.get(note.name) ?? 0) + 1);
    const names = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
    if (names.length <= ROWS) return names.sort();
    return [...names.slice(0, ROWS - 1).sort(), `${names.length - ROWS + 1} others`];
  }

  _draw() {
    const width = this._svg.clientWidth;
    if (!width) return;
    const rows = this._rows();
    const height = Math.max(1, rows.length) * ROW + AXIS;
    this._svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this._svg.setAttribute("height", height);
    this._svg.replaceChildren();
    this._svg.setAttribute("aria-valuemax", Math.max(0, this._notes.length - 1));
    this._describe();
    if (!this._notes.length) {
      this._svg.append(
        draw(
          "text",
          { x: 8, y: ROW, class: "name" },
          "Notifications appear here by event time.",
        ),
      );
      return;
    }
    const numbers = isNumber(momentOf(this._notes[0].note));
    let [from, to] = [this._notes[0].at, this._notes[this._notes.length - 1].at];
    const margin = Math.max((to - from) * 0.03, numbers ? 1 : 30);
    [from, to] = [from - margin, to + margin];
    const left = width > 480 ? LABELS : 8;
    const across = (at) => left + ((at - from) / (to - from)) * (width - left - 12);
    for (const { at, text } of ticks(from, to, (width - left) / 90, numbers)) {
      const x = Math.round(across(at)) + 0.5;
      this._svg.append(
        draw("line", { x1: x, x2: x, y1: 0, y2: height - AXIS + 3, class: "tick" }),
      );
      if (x > left && x < width - 22)
        this._svg.append(draw("text", { x, y: height - 4, class: "moment" }, text));
    }
    rows.forEach((name, at) => {
      const y = at * ROW + ROW / 2;
      this._svg.append(draw("line", { x1: left, x2: width - 8, y1: y, y2: y, class: "lane" }));
      if (left === LABELS)
        this._svg.append(
          draw(
            "text",
            { x: 8, y: y + 4, class: "name" },
            name.length > 19 ? `${name.slice(0, 18)}…` : name,
          ),
        );
    });
    this._places = [];
    let chosen = null;
    for (const item of this._notes) {
      const found = rows.indexOf(item.note.name);
      const [x, y] = [across(item.at), (found < 0 ? rows.length - 1 : found) * ROW + ROW / 2];
      this._places.push({ x, y, item });
      const mark = draw("path", { d: `M${x} ${y - 5}l5 5l-5 5l-5 -5Z`, class: "note" });
      if (item.note.number === this._chosen) chosen = mark;
      else this._svg.append(mark);
    }
    if (chosen) {
      chosen.setAttribute("class", "note chosen");
      this._svg.append(chosen);
    }
  }

  _describe() {
    const at = this._notes.findIndex(({ note }) => note.number === this._chosen);
    this._svg.setAttribute("aria-valuenow", Math.max(0, at));
    const words =
      at >= 0
        ? `${this._notes[at].note.name}, ${about(this._notes[at].note, this._stream)}`
        : `${this._notes.length} notifications`;
    this._svg.setAttribute("aria-valuetext", words);
  }

  _key(event) {
    if (!this._notes.length) return;
    const at = this._notes.findIndex(({ note }) => note.number === this._chosen);
    const last = this._notes.length - 1;
    const next = {
      ArrowRight: Math.min(last, at + 1),
      ArrowLeft: at < 0 ? last : Math.max(0, at - 1),
      Home: 0,
      End: last,
    }[event.key];
    if (next !== undefined) {
      event.preventDefault();
      this._chosen = this._notes[next].note.number;
      this._draw();
    } else if (event.key === "Enter" && at >= 0) {
      event.preventDefault();
      this._open(this._notes[at].note);
    }
  }

  _near(event) {
    const box = this._svg.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let [found, best] = [null, 100];
    for (const place of this._places ?? []) {
      const square = (place.x - x) ** 2 + (place.y - y) ** 2;
      if (square <= best) [found, best] = [place, square];
    }
    return found;
  }

  _clicked(event) {
    const found = this._near(event);
    if (found) this._open(found.item.note);
  }

  _hover(event) {
    const found = this._near(event);
    this._tip.hidden = !found;
    this._svg.classList.toggle("pointing", Boolean(found));
    if (!found) return;
    this._tip.textContent = `${found.item.note.name}: ${about(found.item.note, this._stream)}`;
    const room = this._svg.clientWidth - 240;
    this._tip.style.left = `${Math.max(8, Math.min(found.x - 20, room))}px`;
  }
}
