// Drawing a region: corners by clicks, by keys at a cross in the middle of the map, or typed.

import { announce, make } from "../elements.js";
import { circleOf, circleText, cornersOf, geometryOf, polygonText } from "../wkt.js";
import { circleLayer } from "./regions.js";
import { colour } from "./colours.js";

const L = window.L;
const PAN = 40; // pixels that an arrow key moves the map while drawing
const NUDGE = 4; // pixels that it moves a corner

// A shape that is being drawn. `changed` is called with its text, or null while there is none.
export class Drawing {
  constructor(map, changed) {
    this._map = map;
    this._changed = changed;
    this._group = L.layerGroup().addTo(map);
    this._done = []; // earlier states, for undo
    this._cross = make("div", { class: "cross", "aria-hidden": "true" });
    this.kind = null;
    this.open = false;
    this._onClick = (event) => this.add(event.latlng);
    this._onMove = (event) => this._preview(event.latlng);
    this._onKey = (event) => this._key(event);
  }

  start(kind) {
    this.stop();
    this.kind = kind;
    this.open = true;
    this.corners = [];
    this.circle = null;
    this._done = [];
    this._listen();
    this._show();
    this._map.getContainer().focus();
    announce(
      kind === "polygon"
        ? "Drawing. Arrow keys move the map, space sets a corner, enter finishes, escape cancels."
        : "Drawing. Arrow keys move the map, space sets the centre and then the border, escape cancels.",
    );
  }

  // Takes a text (WKT, corners or a circle) to go on with. Gives false if it says no region.
  take(text) {
    const circle = circleOf(text);
    const corners = circle ? null : cornersOf(text);
    const several = geometryOf(text);
    if (several && (several.type !== "Polygon" || several.coordinates.length > 1)) return "fixed";
    if (!circle && !corners) return false;
    this._remember();
    this.kind = circle ? "circle" : "polygon";
    this.circle = circle;
    this.corners = corners ?? [];
    this.open = false;
    this._listen();
    this._show();
    return true;
  }

  stop() {
    this.kind = null;
    this.open = false;
    this.corners = [];
    this.circle = null;
    this._group.clearLayers();
    this._cross.remove();
    const element = this._map.getContainer();
    element.classList.remove("drawing");
    this._map.off("click", this._onClick).off("mousemove", this._onMove);
    element.removeEventListener("keydown", this._onKey, true);
    this._map.doubleClickZoom.enable();
  }

  add(place) {
    if (!this.open) return;
    this._remember();
    const at = [place.lng, place.lat];
    if (this.kind === "circle" && !this.circle) {
      this.circle = { x: at[0], y: at[1], radius: 0 };
      announce("Centre set");
    } else if (this.kind === "circle") {
      this.circle.radius = this._map.distance(place, [this.circle.y, this.circle.x]);
      this.open = false;
      announce("Circle finished");
    } else {
      this.corners.push(at);
      announce(`Corner ${this.corners.length} set`);
    }
    this._show();
    this._tell();
  }

  finish() {
    if (!this.open || this.kind !== "polygon" || this.corners.length < 3) return false;
    this.open = false;
    announce(`Polygon with ${this.corners.length} corners finished`);
    this._show();
    this._tell();
    return true;
  }

  undo() {
    const before = this._done.pop();
    if (!before) return;
    Object.assign(this, { ...before, corners: [...before.corners] });
    this._show();
    this._tell();
    announce("Undone");
  }

  canUndo() {
    return this._done.length > 0;
  }

  text() {
    if (this.kind === "circle") return this.circle?.radius > 0 ? circleText(this.circle) : null;
    return this.corners.length >= 3 ? polygonText(this.corners) : null;
  }

  _remember() {
    const circle = this.circle && { ...this.circle };
    this._done.push({
      kind: this.kind,
      open: this.open,
      corners: [...(this.corners ?? [])],
      circle,
    });
  }

  _listen() {
    const element = this._map.getContainer();
    element.classList.add("drawing");
    this._map.off("click", this._onClick).off("mousemove", this._onMove);
    this._map.on("click", this._onClick).on("mousemove", this._onMove);
    element.removeEventListener("keydown", this._onKey, true);
    element.addEventListener("keydown", this._onKey, true);
    this._map.doubleClickZoom.disable();
  }

  _key(event) {
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const onMap = event.target === this._map.getContainer();
    const taken = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    if (event.key === "Escape") {
      taken();
      this.stop();
      this._changed(null, { cancelled: true });
    } else if (
      event.key === "Backspace" ||
      (event.key.toLowerCase() === "z" && (event.ctrlKey || event.metaKey))
    ) {
      taken();
      this.undo();
    } else if (this.open && onMap && steps[event.key]) {
      taken();
      this._map.panBy(L.point(steps[event.key]).multiplyBy(PAN), { animate: false });
      this._cross.hidden = false;
      this._preview(this._map.getCenter());
    } else if (this.open && onMap && event.key === " ") {
      taken();
      this.add(this._map.getCenter());
    } else if (this.open && event.key === "Enter") {
      taken();
      if (this.finish()) this._changed(this.text(), { finished: true });
      else announce("A polygon needs three corners");
    }
  }

  _tell() {
    this._changed(this.text(), { finished: !this.open });
  }

  _style(extra = {}) {
    return { color: colour("accent"), weight: 2, fillOpacity: 0.12, interactive: false, ...extra };
  }

  _show() {
    this._group.clearLayers();
    this._ghost = null;
    const element = this._map.getContainer();
    if (this.open) element.append(this._cross);
    else this._cross.remove();
    element.classList.toggle("open", this.open);
    if (this.kind === "circle") this._showCircle();
    else this._showPolygon();
  }

  _showPolygon() {
    const places = this.corners.map(([x, y]) => [y, x]);
    if (places.length > 1) {
      const shape = this.open
        ? L.polyline(places, this._style({ fill: false }))
        : L.polygon(places, this._style());
      shape.addTo(this._group);
    }
    this.corners.forEach((corner, at) =>
      this._handle(places[at], `Corner ${at + 1} of ${places.length}`, {
        moved: (place) => {
          this.corners[at] = [place.lng, place.lat];
        },
        removed: this.corners.length > 3 || this.open ? () => this.corners.splice(at, 1) : null,
        clicked: at === 0 && this.open ? () => this.finish() : null,
      }),
    );
    if (!this.open) this._middles(places);
  }

  // Handles between corners: dragging one makes a new corner of it.
  _middles(places) {
    places.forEach((place, at) => {
      const next = places[(at + 1) % places.length];
      const middle = [(place[0] + next[0]) / 2, (place[1] + next[1]) / 2];
      const marker = L.marker(middle, {
        icon: L.divIcon({ className: "handle middle", iconSize: [12, 12] }),
        draggable: true,
        keyboard: false,
        title: "Drag to add a corner",
      }).addTo(this._group);
      marker.on("dragstart", () => this._remember());
      marker.on("dragend", () => {
        const { lat, lng } = marker.getLatLng();
        this.corners.splice(at + 1, 0, [lng, lat]);
        this._show();
        this._tell();
      });
    });
  }

  _showCircle() {
    if (!this.circle) return;
    const { x, y, radius } = this.circle;
    if (radius > 0) circleLayer(this.circle, this._style()).addTo(this._group);
    this._handle([y, x], "Centre", {
      moved: (place) => {
        this.circle.x = place.lng;
        this.circle.y = place.lat;
      },
    });
    if (radius > 0) {
      const border = this._border();
      this._handle(border, "Border", {
        moved: (place) => {
          this.circle.radius = this._map.distance(place, [this.circle.y, this.circle.x]);
        },
      });
    }
  }

  // A place on the border of the circle, to the right of its centre.
  _border() {
    const { x, y, radius } = this.circle;
    const unit = this._map.distance([y, x], [y, x + 1]);
    return [y, x + radius / unit];
  }

  _handle(place, label, { moved, removed = null, clicked = null }) {
    const marker = L.marker(place, {
      icon: L.divIcon({ className: "handle", iconSize: [16, 16] }),
      draggable: true,
      alt: label,
      title: label,
    }).addTo(this._group);
    const element = marker.getElement();
    element.setAttribute("role", "button");
    element.setAttribute(
      "aria-label",
      `${label}. Arrow keys move it${removed ? ", delete removes it" : ""}.`,
    );
    marker.on("dragstart", () => this._remember());
    marker.on("drag", () => {
      moved(marker.getLatLng());
      this._shape();
    });
    const settled = () => {
      this._show();
      this._tell();
    };
    marker.on("dragend", settled);
    marker.on("click", (event) => {
      L.DomEvent.stop(event);
      if (clicked) clicked();
    });
    element.addEventListener("keydown", (event) => {
      const steps = {
        ArrowLeft: [-1, 0],
        ArrowRight: [1, 0],
        ArrowUp: [0, -1],
        ArrowDown: [0, 1],
      };
      const step = steps[event.key];
      if (!step && !(removed && event.key === "Delete")) return;
      event.preventDefault();
      event.stopPropagation();
      this._remember();
      if (step) {
        const by = L.point(step).multiplyBy(event.shiftKey ? 10 * NUDGE : NUDGE);
        const at = this._map.latLngToContainerPoint(marker.getLatLng()).add(by);
        moved(this._map.containerPointToLatLng(at));
      } else {
        removed();
      }
      settled();
      const again = [...this._map.getContainer().querySelectorAll(".handle:not(.middle)")];
      (again.find((other) => other.title === label) ?? again[0])?.focus();
    });
  }

  // While a handle is dragged only the shape is redrawn, the handles stay.
  _shape() {
    this._group.eachLayer((layer) => {
      if (!(layer instanceof L.Marker)) this._group.removeLayer(layer);
    });
    if (this.kind === "circle") {
      if (this.circle.radius > 0) circleLayer(this.circle, this._style()).addTo(this._group);
    } else {
      const places = this.corners.map(([x, y]) => [y, x]);
      (this.open
        ? L.polyline(places, this._style({ fill: false }))
        : L.polygon(places, this._style())
      ).addTo(this._group);
    }
  }

  // The line or circle that a click here would make.
  _preview(place) {
    if (!this.open) return;
    this._ghost?.remove();
    this._ghost = null;
    const style = this._style({ dashArray: "4 4", fillOpacity: 0.06 });
    if (this.kind === "circle" && this.circle) {
      const radius = this._map.distance(place, [this.circle.y, this.circle.x]);
      if (radius > 0)
        this._ghost = circleLayer({ ...this.circle, radius }, style).addTo(this._group);
    } else if (this.kind === "polygon" && this.corners.length) {
      const [x, y] = this.corners[this.corners.length - 1];
      const [firstX, firstY] = this.corners[0];
      const line = [[y, x], place];
      if (this.corners.length > 1) line.push([firstY, firstX]);
      this._ghost = L.polyline(line, { ...style, fill: false }).addTo(this._group);
    }
  }
}
