// The start page: the map with everything on it, feed, objects and regions beside, timeline below.

import { get } from "./api.js";
import { all, given, icon, make, one } from "./elements.js";
import { Feed } from "./feed.js";
import { Notifications, objectsOf } from "./notifications.js";
import { tell, tellProblem } from "./page.js";
import { RegionTool } from "./region_tool.js";
import { Tabs } from "./tabs.js";
import { Timeline } from "./timeline.js";
import { ObjectCard } from "./object_card.js";
import { ObjectsLayer } from "./map/objects.js";
import { Regions } from "./map/regions.js";
import { Replay } from "./map/replay.js";
import { swatch } from "./map/shapes.js";
import { addButton, makeMap } from "./map/world.js";

const OBJECTS = 100000;
const POLL = 1000; // milliseconds between two looks at the objects

class MapPage {
  constructor() {
    this.stream = given("stream");
    this.map = makeMap(one("#map"), this.stream, given("background"));
    this.regions = new Regions(this.map);
    this.objects = new ObjectsLayer().addTo(this.map);
    this.asked = new URLSearchParams(location.search);
    this._moves = 0;
    this._fitted = false;
    this._replay = null;
    this.tabs = new Tabs(one("#tabs"));
    this.card = new ObjectCard(one("#objects-panel"), this);
    this.tool = new RegionTool(one("#regions-panel"), this);
    this.feed = new Feed(one("#feed"), this.stream, { open: (note) => this.replay(note.number) });
    this.timeline = new Timeline(one("#timeline"), this.stream, {
      open: (note) => this.replay(note.number),
    });
    this._notifications();
    this._layers();
    addButton(this.map, { name: "fit", label: "Show everything", action: () => this.fit() });
    this.map.on("click", (event) => this._clicked(event));
  }

  async start() {
    await Promise.all([this._poll(), this.tool.load(), this._watched()]).catch(tellProblem);
    this.fit();
    const note = this.asked.get("note");
    if (note) await this.replay(Number(note));
    if (this.asked.get("object"))
      this.select(this._objectNamed(this.asked.get("object")), { look: true });
    this.tool.begin(this.asked);
    setTimeout(() => this._again(), POLL);
  }

  // Everything that is known to be somewhere in sight.
  fit() {
    const bounds = this.regions.bounds();
    for (const { x, y } of this.objects.items) if (typeof x === "number") bounds.extend([y, x]);
    if (bounds.isValid())
      this.map.fitBounds(bounds, {
        animate: false,
        paddingTopLeft: [64, 44],
        paddingBottomRight: [40, 40],
        maxZoom: this.stream.space === "earth" ? 13 : 4,
      });
    this._fitted = bounds.isValid();
  }

  select(id, { look = false } = {}) {
    this.objects.select(id);
    this.card.show(id);
    if (id === null) return;
    this.tabs.show("objects-tab");
    const place = this.objects.placeOf(id);
    if (look && place)
      this.map.setView(
        place,
        Math.max(this.map.getZoom(), this.stream.space === "earth" ? 9 : this.map.getZoom()),
      );
  }

  async replay(number) {
    try {
      const note = await get(`/notes/${number}`);
      this.stopReplay();
      this._replay = new Replay(this.map, this.stream, note, {
        close: () => this.stopReplay(true),
      });
      one("#tab-panels").hidden = true;
      one("#panel").append(this._replay.element);
      one("h2", this._replay.element).focus({ preventScroll: true });
      one("#panel").scrollTop = 0;
      this.feed.choose(number);
      this.timeline.choose(number);
      this.objects.getPane("objects").classList.add("faded");
    } catch (problem) {
      tellProblem(problem);
    }
  }

  stopReplay(back = false) {
    if (!this._replay) return;
    this._replay.stop();
    this._replay.element.remove();
    this._replay = null;
    one("#tab-panels").hidden = false;
    this.objects.getPane("objects").classList.remove("faded");
    this.timeline.choose(null);
    if (back) one('#feed [aria-current="true"]')?.focus();
  }

  async _poll() {
    if (!this.stream.key || !this.stream.location) return;
    const found = await get(`/objects?after=${this._moves}&limit=${OBJECTS}`);
    // A restarted service counts from the beginning.
    if (found.at < this._moves) this.objects.clear();
    this._moves = found.at;
    const { type } = this.stream;
    for (const item of found.items) item.type ??= type ? item.fields[type] : null;
    if (!found.items.length) return;
    this.objects.take(found.items);
    this.card.moved(found.items);
    this._legend();
    if (!this._fitted) this.fit();
  }

  async _again() {
    try {
      if (!document.hidden) await this._poll();
      this._lost(false);
    } catch (problem) {
      this._moves = 0; // the count may have restarted
      this._lost(true, problem);
    }
    setTimeout(() => this._again(), POLL);
  }

  // One sign for all that is live on the page.
  _lost(lost, problem = null) {
    if (problem && problem.status !== 0 && !this._told) {
      this._told = true;
      tellProblem(problem);
    }
    this._objectsLost = lost;
    this._sign();
  }

  _sign() {
    const state = this._objectsLost ? "reconnecting" : this._streamState;
    const names = { live: "Live", reconnecting: "Reconnecting…", connecting: "Connecting…" };
    const sign = one("#connection");
    if (sign.dataset.state === state) return;
    sign.dataset.state = state;
    sign.replaceChildren(
      icon({ live: "active", reconnecting: "resync" }[state] ?? "wait"),
      names[state] ?? names.connecting,
    );
  }

  _notifications() {
    const filter = one("#feed-filter");
    const wanted = (note) => !filter.value || String(note.subscription) === filter.value;
    this.notifications = new Notifications({
      came: (notes, { live }) => {
        const held = this.feed.add(notes.filter(wanted), { live });
        one("#feed-held").textContent = held ? `${held} new` : "";
        if (live) for (const note of notes) this.objects.mark(objectsOf(note, this.stream));
        this.timeline.show([...this.notifications.notes.values()].filter(wanted));
        if (live && notes.some((note) => note.kind !== "match")) this._watched();
      },
      state: (name) => {
        this._streamState = name;
        this._sign();
      },
      resync: () => this.feed.missed(),
    });
    this.notifications.start(given("recent"));
    filter.addEventListener("change", () => {
      one("#feed").replaceChildren();
      this.feed = new Feed(one("#feed"), this.stream, {
        open: (note) => this.replay(note.number),
      });
      const notes = [...this.notifications.notes.values()].filter(wanted);
      if (notes.length) this.feed.add(notes, { live: false });
      this.timeline.show(notes);
    });
    const pause = one("#feed-pause");
    pause.addEventListener("click", () => {
      const paused = pause.getAttribute("aria-pressed") !== "true";
      pause.setAttribute("aria-pressed", String(paused));
      pause.replaceChildren(icon(paused ? "play" : "paused"), paused ? "Resume" : "Pause");
      this.feed.pause(paused);
      if (!paused) one("#feed-held").textContent = "";
    });
  }

  // Regions that active subscriptions bring along, unless they are among the saved ones.
  async _watched() {
    const page = await get("/subscriptions?state=active&limit=200");
    const filter = one("#feed-filter");
    const chosen = filter.value;
    filter.replaceChildren(
      make("option", { value: "" }, "All subscriptions"),
      ...page.items.map(({ id, name }) => make("option", { value: id }, name)),
    );
    filter.value = chosen;
    const found = new Map();
    for (const { name, regions } of page.items) {
      for (const [region, text] of Object.entries(regions ?? {})) {
        const known = found.get(text) ?? { name: region, text, by: [] };
        known.by.push(name);
        found.set(text, known);
      }
    }
    this.watched = [...found.values()].map((region) => ({
      ...region,
      says: `watched by ${region.by.join(", ")}`,
    }));
    this.showRegions();
  }

  showRegions() {
    const saved = this.tool.regions;
    const texts = new Set(saved.map(({ text }) => text));
    this.regions.show("saved", saved);
    this.regions.show(
      "watched",
      (this.watched ?? []).filter(({ text }) => !texts.has(text)),
    );
  }

  _legend() {
    const types = this.objects.types();
    if (this._known === types.length) return;
    this._known = types.length;
    one("#legend").replaceChildren(
      ...types.map(([name, kind]) => make("li", {}, swatch(kind), name || "object")),
    );
  }

  _layers() {
    if (matchMedia("(max-width: 860px)").matches) one("#legend-part").open = false;
    for (const box of all("#layers input")) {
      box.addEventListener("change", () => {
        if (box.value === "objects") this.objects.getPane("objects").hidden = !box.checked;
        else this.regions.toggle(box.value, box.checked);
      });
    }
  }

  _objectNamed(text) {
    return this.objects.items.find(({ id }) => String(id) === text)?.id ?? null;
  }

  _clicked(event) {
    if (this.tool.busy) return;
    const found = this.objects.nearest(event.containerPoint);
    if (found) this.select(found.id);
    else this.select(null);
  }
}

if (window.L) {
  const page = new MapPage();
  page.start();
  window.ensueMap = page; // for looking at it from the browser's own tools
} else {
  tell("The map could not be loaded.", "bad");
}
