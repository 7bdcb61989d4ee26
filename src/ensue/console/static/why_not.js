// Why not?: how far events got in a subscription, and the place in its text that stopped them.

import { get } from "./api.js";
import { icon, make, one } from "./elements.js";
import { coloured, unitsOf } from "./opsl.js";
import { tellProblem } from "./page.js";
import { isNumber, shown, span } from "./times.js";
import { reach } from "./reach.js";

const FIRST = 3; // candidates that are shown at once

const number = (value) => value.toLocaleString("en");
const several = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

export class WhyNot {
  constructor(element, id, stream) {
    this._element = element;
    this._id = id;
    this._stream = stream;
  }

  async ask() {
    this._element.replaceChildren(
      make("p", { class: "empty", role: "status" }, "Checking recent events…"),
    );
    try {
      this._show(await get(`/subscriptions/${this._id}/why-not`));
    } catch (problem) {
      this._element.replaceChildren();
      tellProblem(problem);
    }
  }

  _show(found) {
    this._text = found.text;
    this._shown = make(
      "pre",
      {
        class: "text asked",
        tabindex: 0,
        role: "region",
        "aria-label": "Text of the subscription",
      },
      coloured(found.text),
    );
    const ways = found.ways.map((way, at) =>
      this._way(way, found.ways.length > 1 ? at + 1 : null),
    );
    const cut = found.cut
      ? make(
          "p",
          { class: "notice" },
          "The check reached its limit; this is the result so far.",
        )
      : "";
    this._element.replaceChildren(
      make(
        "div",
        { class: "trial-numbers" },
        this._figure(found.events, "recent events checked"),
        this._figure(found.matched, found.matched === 1 ? "match" : "matches"),
        this._figure(found.waiting, "still waiting"),
      ),
      cut,
      this._shown,
      ...ways,
    );
    one("h3", this._element)?.focus();
  }

  _figure(value, words) {
    return make(
      "div",
      { class: "figure" },
      make("strong", {}, number(value)),
      make("span", {}, words),
    );
  }

  _way(way, at) {
    return make(
      "section",
      { class: "space-above" },
      at ? make("h3", {}, `Alternative ${at}: ${several(way.matched, "match")}`) : null,
      ...way.atoms.map((atom) => this._atom(atom)),
      way.demands.length ? this._demands(way.demands) : null,
      this._candidates("Nearest candidates", way.stuck),
      this._candidates("Still waiting", way.waiting),
      this._candidates("Matches replaced by preferred ones", way.undelivered),
    );
  }

  _atom(atom) {
    const rows = [
      make(
        "tr",
        {},
        make("th", { scope: "row" }, "all events"),
        make("td", { class: "bar" }, reach(atom.events, atom.events)),
        make("td", { class: "number" }, number(atom.events)),
        make("td", {}, ""),
      ),
    ];
    for (const test of atom.tests) {
      rows.push(
        make(
          "tr",
          {},
          make("th", { scope: "row" }, this._place(test.said, test.span)),
          make("td", { class: "bar" }, reach(test.passed, atom.events)),
          make("td", { class: "number" }, number(test.passed)),
          make("td", { class: "about" }, test.stopped ? this._stopped(test) : ""),
        ),
      );
    }
    return make(
      "div",
      { class: "table" },
      make(
        "table",
        { class: "funnel" },
        make(
          "caption",
          {},
          make("strong", {}, atom.name),
          ` · ${several(atom.passed, "event")} left`,
        ),
        make(
          "thead",
          { class: "unseen" },
          make(
            "tr",
            {},
            make("th", {}, "test"),
            make("th", {}, "share"),
            make("th", {}, "passed"),
            make("th", {}, "stopped"),
          ),
        ),
        make("tbody", {}, ...rows),
      ),
    );
  }

  _stopped(test) {
    const words = `stopped ${number(test.stopped)}`;
    const [near] = test.near;
    return near ? `${words}; nearest: ${this._event(near.event)}: ${near.why}` : words;
  }

  _demands(demands) {
    const rows = demands.map((demand) =>
      make(
        "tr",
        {},
        make("th", { scope: "row" }, this._place(demand.said, demand.span)),
        make("td", { class: "number" }, number(demand.stopped)),
      ),
    );
    return make(
      "div",
      { class: "table space-above" },
      make(
        "table",
        { class: "funnel" },
        make("caption", {}, make("strong", {}, "Conditions between events")),
        make(
          "thead",
          {},
          make(
            "tr",
            {},
            make("th", {}, "condition"),
            make("th", { class: "number" }, "rejected combinations"),
          ),
        ),
        make("tbody", {}, ...rows),
      ),
    );
  }

  _candidates(title, { count, shown: some }) {
    if (!count) return null;
    const items = some.map((candidate) =>
      make(
        "li",
        {},
        make(
          "p",
          { class: "stopped-by" },
          icon(candidate.until !== null ? "wait" : "warning"),
          make("span", {}, this._place(candidate.why, candidate.span)),
        ),
        make(
          "ul",
          { class: "plain-list" },
          ...candidate.events.map((event) => make("li", {}, this._event(event))),
        ),
      ),
    );
    const rest = items.splice(FIRST);
    return make(
      "div",
      { class: "space-above" },
      make(
        "h3",
        { tabindex: -1 },
        `${title} (${some.length < count ? `${some.length} of ` : ""}${number(count)})`,
      ),
      make("ol", { class: "candidates" }, ...items),
      rest.length
        ? make(
            "details",
            { class: "more" },
            make("summary", {}, `${rest.length} more`),
            make("ol", { class: "candidates" }, ...rest),
          )
        : null,
    );
  }

  _event(event) {
    const { key, type, time, location } = this._stream;
    const known = new Set([key, type, time, location].flat());
    const title = [type && event.values[type], key && event.values[key]]
      .filter((value) => value !== null && value !== undefined && value !== "")
      .join(" ");
    const rest = Object.entries(event.values)
      .filter(([name, value]) => !known.has(name) && value !== null)
      .map(([name, value]) => `${name} ${isNumber(value) ? Number(value.toFixed(3)) : value}`);
    const name = event.name ? `${event.name.replace(/;$/, "")}: ` : "";
    return [
      `${name}${title || "event"}`,
      event.start === event.end ? shown(event.end) : span(event.start, event.end),
      ...rest,
    ].join(" · ");
  }

  // Words that belong to a place in the text: pointing at them, or a click, underlines it.
  _place(words, place) {
    if (!place) return words;
    const mark = () => this._mark(place);
    return make(
      "button",
      {
        type: "button",
        class: "link",
        onclick: mark,
        onmouseenter: mark,
        onfocus: mark,
        title: "Show in the text",
      },
      words,
    );
  }

  _mark({ start, end }) {
    const marks = [
      { start: unitsOf(this._text, start), end: unitsOf(this._text, end), class: "stopped" },
    ];
    this._shown.replaceChildren(coloured(this._text, marks));
    // Only within the text, which stays in sight: the page must not move under the pointer.
    const place = one(".stopped", this._shown);
    if (place) this._shown.scrollTop = place.offsetTop - this._shown.clientHeight / 2;
  }
}
