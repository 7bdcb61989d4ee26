// The panel of objects: search, details of an object, and its track on the map.

import { get } from "./api.js";
import { make, one } from "./elements.js";
import { tellProblem } from "./page.js";
import { shown } from "./times.js";
import { colour, whenColoursChange } from "./map/colours.js";
import { swatch } from "./map/shapes.js";

const L = window.L;
const OFFERED = 50;
const POINTS = 500;
const OFTEN = 1000; // milliseconds

export class ObjectCard {
  constructor(element, page) {
    this._page = page;
    this._field = one("#object-search", element);
    this._list = one("#object-list", element);
    this._card = one("#object-card", element);
    this._track = L.layerGroup().addTo(page.map);
    this._id = null;
    this._points = [];
    this._field.addEventListener("input", () => this.offer());
    this._field.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this._list.querySelector("button")?.click();
    });
    whenColoursChange(() => this._paint());
  }

  // The objects that the field's text fits, by their names.
  offer() {
    const wanted = this._field.value.trim().toLowerCase();
    const { items } = this._page.objects;
    const found = items.filter(({ id, type }) =>
      `${id} ${type ?? ""}`.toLowerCase().includes(wanted),
    );
    found.sort((a, b) => String(a.id).localeCompare(String(b.id), "en", { numeric: true }));
    this._list.replaceChildren(
      ...found.slice(0, OFFERED).map((item) =>
        make(
          "li",
          {},
          make(
            "button",
            {
              type: "button",
              "aria-pressed": String(item.id === this._id),
              onclick: () => this._page.select(item.id, { look: true }),
            },
            swatch(this._page.objects.kindOf(item.type)),
            make("span", {}, String(item.id)),
            make("span", { class: "about" }, item.type ?? ""),
          ),
        ),
      ),
    );
    one("#object-count").textContent =
      found.length > OFFERED
        ? `The first ${OFFERED} of ${found.length.toLocaleString("en")}`
        : `${found.length} ${found.length === 1 ? "object" : "objects"}`;
  }

  async show(id) {
    this._id = id;
    this._points = [];
    this._paint();
    this._write();
    if (id === null) return;
    try {
      const found = await get(`/objects/${encodeURIComponent(id)}/track?limit=${POINTS}`);
      if (id !== this._id) return;
      this._points = found.points.filter(([, x]) => typeof x === "number");
      this._paint();
      this._write();
    } catch (problem) {
      tellProblem(problem);
    }
  }

  moved(items) {
    const found = this._id !== null && items.find(({ id }) => id === this._id);
    if (found) {
      this._points.push([found.t, found.x, found.y]);
      if (this._points.length > 2 * POINTS) this._points.splice(0, POINTS);
      this._paint();
      this._write();
    }
    this._soon();
  }

  // The list follows the objects, though not at every report, and not under somebody's fingers.
  _soon() {
    this._waiting ??= setTimeout(() => {
      this._waiting = null;
      if (this._list.contains(document.activeElement)) this._soon();
      else this.offer();
    }, OFTEN);
  }

  _paint() {
    this._track.clearLayers();
    const places = this._points.map(([, x, y]) => [y, x]);
    if (places.length < 2) return;
    L.polyline(places, {
      color: colour("track"),
      weight: 3,
      opacity: 0.75,
      interactive: false,
    }).addTo(this._track);
    for (const place of places.slice(-60)) {
      L.circleMarker(place, {
        radius: 2.5,
        color: colour("track"),
        fillColor: colour("surface"),
        fillOpacity: 1,
        weight: 1.5,
        interactive: false,
      }).addTo(this._track);
    }
  }

  _write() {
    const item =
      this._id === null ? null : this._page.objects.items[this._page.objects.rows.get(this._id)];
    this._card.hidden = !item;
    if (!item) return;
    const rows = Object.entries(item.fields ?? {}).map(([name, value]) =>
      make("div", {}, make("dt", {}, name), make("dd", {}, this._value(name, value))),
    );
    this._card.replaceChildren(
      make(
        "header",
        {},
        make("h2", {}, swatch(this._page.objects.kindOf(item.type)), String(item.id)),
        make(
          "button",
          { type: "button", class: "button small", onclick: () => this._page.select(null) },
          "Close",
        ),
      ),
      make(
        "p",
        { class: "about" },
        `last seen ${shown(item.t)}${this._points.length ? ` · track of ${this._points.length} reports` : ""}`,
      ),
      make("dl", { class: "facts" }, ...rows),
    );
  }

  _value(name, value) {
    if (value === null) return "–";
    const times = [this._page.stream.time].flat();
    if (times.includes(name)) return shown(value);
    return typeof value === "number" ? String(Number(value.toFixed(5))) : String(value);
  }
}
