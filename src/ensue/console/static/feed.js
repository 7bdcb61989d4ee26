// The feed: notifications as a list, newest first; one can be opened to be replayed.

import { announce, icon, make } from "./elements.js";
import { objectsOf } from "./notifications.js";
import { ago, day, isNumber, position, shown, span } from "./times.js";

const SHOWN = 200;
const TITLES = { match: "Match", started: "Started", ended: "Ended" };

// What a note is about; `day` is one that need not be said.
export function about(note, stream, day = null) {
  if (note.kind === "started")
    return note.moment === null ? "from the first event on" : `from ${shown(note.moment)} on`;
  if (note.kind === "ended") return note.reason ?? "";
  const objects = objectsOf(note, stream);
  const some =
    objects.slice(0, 3).join(", ") + (objects.length > 3 ? ` and ${objects.length - 3} more` : "");
  const when =
    note.start === null || note.start === undefined ? "" : span(note.start, note.end, day);
  return [objects.length ? `${stream.key} ${some}` : "", when].filter(Boolean).join(" · ");
}

export class Feed {
  constructor(element, stream, { open }) {
    this._stream = stream;
    this._open = open;
    this._list = make("ol", { class: "feed", "aria-label": "Notifications, newest first" });
    this._empty = make(
      "p",
      { class: "empty" },
      "No notifications yet. They appear here as soon as a subscription matches.",
    );
    this._notice = make("p", { class: "notice", hidden: true });
    this._held = [];
    this.paused = false;
    element.append(this._notice, this._empty, this._list);
    setInterval(() => this._age(), 10000);
  }

  add(notes, { live }) {
    if (this.paused) {
      this._held.push(...notes);
      return this._held.length;
    }
    this._empty.hidden = true;
    const newest = notes[notes.length - 1];
    if (newest?.end && !isNumber(newest.end)) this._day = day(position(newest.end));
    for (const note of notes) this._list.prepend(this._entry(note, live));
    while (this._list.childElementCount > SHOWN) this._list.lastElementChild.remove();
    if (live)
      for (const note of notes)
        announce(`${TITLES[note.kind]}: ${note.name}, ${about(note, this._stream)}`);
    return 0;
  }

  pause(paused) {
    this.paused = paused;
    if (!paused) this.add(this._held.splice(0), { live: false });
  }

  // Notifications are gone that nobody will bring back: that is said, not passed over.
  missed() {
    this._notice.hidden = false;
    this._notice.replaceChildren(
      icon("resync"),
      " Some notifications were removed before they could be shown here, because they were older than the service keeps them.",
    );
  }

  choose(number) {
    for (const button of this._list.querySelectorAll("[aria-current]"))
      button.removeAttribute("aria-current");
    const button = this._list.querySelector(`[data-number="${number}"]`);
    button?.setAttribute("aria-current", "true");
  }

  _entry(note, live) {
    const time = make(
      "time",
      { "data-at": note.at ?? new Date().toISOString(), title: note.at ?? "" },
      "now",
    );
    if (note.at) time.textContent = ago(note.at);
    const content = [
      make("span", { class: `kind ${note.kind}` }, icon(note.kind, TITLES[note.kind])),
      make(
        "span",
        { class: "what" },
        make("strong", {}, note.name),
        make("span", { class: "about" }, about(note, this._stream, this._day)),
      ),
      time,
    ];
    const body =
      note.kind === "match"
        ? make(
            "button",
            {
              type: "button",
              "data-number": note.number,
              title: "Replay on the map",
              onclick: () => this._open(note),
            },
            ...content,
          )
        : make("div", { class: "row" }, ...content);
    return make("li", { class: live ? "fresh" : null }, body);
  }

  _age() {
    for (const time of this._list.querySelectorAll("time"))
      time.textContent = ago(time.dataset.at);
  }
}
