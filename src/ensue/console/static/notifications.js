// Notifications as they come: recent ones, then live ones, whatever happens to the connection.

import { signIn } from "./api.js";

const KINDS = ["match", "started", "ended"];
const WAITS = [1000, 2000, 5000, 10000]; // milliseconds before a closed stream is reopened
const KEPT = 500;
const UNSEEN = 60000;

export class Notifications {
  // Calls `came(notes, {live})` and `state(name)`: connecting, live, reconnecting.
  constructor({ subscription = null, came, state = () => {}, resync = () => {} }) {
    this._subscription = subscription;
    this._came = came;
    this._state = state;
    this._resync = resync;
    this._last = null; // the number of the newest note
    this._failures = 0;
    this.notes = new Map(); // number -> note, oldest first
    this._queue = [];
    addEventListener("pagehide", () => this._source?.close());
    addEventListener("pageshow", (event) => event.persisted && this._connect());
    document.addEventListener("visibilitychange", () => this._look());
  }

  // `recent` is part of the page: notifications, oldest first, and the number after the last.
  start(recent) {
    this._state("connecting");
    this._last = recent.next;
    this._keep(recent.items, false);
    this._connect();
  }

  _connect() {
    const query = new URLSearchParams();
    if (this._last !== null) query.set("after", this._last);
    if (this._subscription) query.set("subscription", this._subscription);
    this._source?.close();
    const source = new EventSource(`/api/v1/notifications/stream?${query}`);
    this._source = source;
    source.addEventListener("open", () => {
      this._failures = 0;
      this._state("live");
    });
    source.addEventListener("error", () => this._failed(source));
    for (const kind of KINDS) source.addEventListener(kind, (event) => this._take(event));
    source.addEventListener("resync", (event) => {
      this._last = event.lastEventId || this._last;
      this._resync();
    });
  }

  // Browsers limit the connections to a host, so a hidden page closes its own, and catches up when
  // it is visible again.
  _look() {
    clearTimeout(this._rest);
    if (document.hidden) this._rest = setTimeout(() => this._source?.close(), UNSEEN);
    else if (this._source?.readyState === EventSource.CLOSED) this._connect();
  }

  // A broken connection the browser mends itself; one that was refused it gives up.
  _failed(source) {
    this._state("reconnecting");
    if (source.readyState !== EventSource.CLOSED) return;
    const wait = WAITS[Math.min(this._failures, WAITS.length - 1)];
    this._failures += 1;
    setTimeout(async () => {
      const answer = await fetch("/api/v1/me").catch(() => null);
      if (answer?.status === 401) location.assign(signIn());
      else this._connect();
    }, wait);
  }

  _take(event) {
    const note = { number: Number(event.lastEventId), ...JSON.parse(event.data) };
    this._last = note.number;
    this._queue.push(note);
    // A burst is shown as one change of the page.
    this._timer ??= setTimeout(() => {
      this._timer = null;
      this._keep(this._queue.splice(0), true);
    }, 100);
  }

  _keep(notes, live) {
    const fresh = notes.filter((note) => !this.notes.has(note.number));
    for (const note of fresh) this.notes.set(note.number, note);
    for (const number of this.notes.keys()) {
      if (this.notes.size <= KEPT) break;
      this.notes.delete(number);
    }
    if (fresh.length) this._came(fresh, { live });
  }
}

// The objects that a match is about.
export function objectsOf(note, stream) {
  if (!note.members || !stream.key) return [];
  return [
    ...new Set(
      note.members
        .map((member) => member[stream.key])
        .filter((id) => id !== null && id !== undefined),
    ),
  ];
}

// When it happened, in the stream's time.
export function momentOf(note) {
  return note.end ?? note.moment ?? null;
}
