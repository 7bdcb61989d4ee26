// All objects on one canvas: an object is a row of arrays, drawing it is writing its pixels.

import { colour, whenColoursChange } from "./colours.js";
import { Atlas, HEADINGS, SHAPES } from "./shapes.js";

const L = window.L;
const GLIDE = 1000; // milliseconds from one place to the next
const NEAR = 14; // pixels around a pointer
const CROWD = 2500; // objects in sight from which on they are drawn smaller
const STILL = 1e-9;

// A soft pixel over another one.
function mixed(above, below) {
  const part = above >>> 24;
  const rest = 255 - part;
  const red = ((above & 255) * part + (below & 255) * rest) / 255;
  const green = (((above >>> 8) & 255) * part + ((below >>> 8) & 255) * rest) / 255;
  const blue = (((above >>> 16) & 255) * part + ((below >>> 16) & 255) * rest) / 255;
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

export const ObjectsLayer = L.Layer.extend({
  initialize() {
    this.rows = new Map(); // id -> row
    this.items = [];
    this._room = 0;
    this._types = new Map();
    this._grow(256);
    this._selected = null;
    this._marked = new Map(); // id -> until when
    this._frame = null;
    this._atlases = {};
    this._calm = matchMedia("(prefers-reduced-motion: reduce)");
  },

  onAdd(map) {
    if (!map.getPane("objects")) map.createPane("objects").style.zIndex = 450;
    const animated = map.options.zoomAnimation && L.Browser.any3d;
    this._canvas = L.DomUtil.create(
      "canvas",
      `objects ${animated ? "leaflet-zoom-animated" : "leaflet-zoom-hide"}`,
    );
    map.getPane("objects").append(this._canvas);
    this._context = this._canvas.getContext("2d");
    map.on("move viewreset zoomend resize", this.redraw, this);
    map.on("zoomanim", this._zoom, this);
    whenColoursChange(() => {
      this._atlases = {};
      this.redraw();
    });
    this.redraw();
  },

  onRemove(map) {
    cancelAnimationFrame(this._frame);
    this._frame = null;
    this._canvas.remove();
    map.off("move viewreset zoomend resize", this.redraw, this);
    map.off("zoomanim", this._zoom, this);
  },

  // Takes places as the service tells them: {id, x, y, type, ...}. Known objects glide there.
  take(items) {
    const now = performance.now();
    // New types get their shapes by name, so that the same ones look the same next time.
    for (const type of [...new Set(items.map((item) => item.type ?? ""))].sort())
      this.kindOf(type);
    for (const item of items) {
      if (typeof item.x !== "number" || typeof item.y !== "number") continue;
      const at = this._map.project([item.y, item.x], 0);
      let row = this.rows.get(item.id);
      if (row === undefined) {
        row = this.items.length;
        if (row === this._room) this._grow(2 * this._room);
        this.rows.set(item.id, row);
        this._fromX[row] = this._toX[row] = at.x;
        this._fromY[row] = this._toY[row] = at.y;
        this._heading[row] = HEADINGS;
      } else {
        this._glide(row, at, now);
      }
      this._began[row] = now;
      this._kind[row] = this.kindOf(item.type);
      this.items[row] = item;
    }
    this.redraw();
  },

  kindOf(type) {
    const name = type ?? "";
    if (!this._types.has(name)) this._types.set(name, this._types.size % SHAPES.length);
    return this._types.get(name);
  },

  types() {
    return [...this._types];
  },

  clear() {
    this.rows.clear();
    this.items = [];
    this.redraw();
  },

  select(id) {
    this._selected = id;
    this.redraw();
  },

  // Draws attention to objects for a while: a ring that closes in on each.
  mark(ids, milliseconds = 6000) {
    const until = performance.now() + milliseconds;
    for (const id of ids) this._marked.set(id, until);
    this.redraw();
  },

  placeOf(id) {
    const item = this.items[this.rows.get(id)];
    return item ? L.latLng(item.y, item.x) : null;
  },

  nearest(point) {
    const view = this._view();
    let [found, best] = [null, NEAR * NEAR];
    for (let row = 0; row < this.items.length; row += 1) {
      const dx = this._toX[row] * view.scale - view.left - point.x;
      const dy = this._toY[row] * view.scale - view.top - point.y;
      const square = dx * dx + dy * dy;
      if (square < best) [found, best] = [this.items[row], square];
    }
    return found;
  },

  redraw() {
    if (this._map) this._frame ??= requestAnimationFrame((now) => this._draw(now));
  },

  // Draws everything now, and gives how many objects are in sight.
  draw(now) {
    const { _canvas: canvas, _context: context } = this;
    const size = this._map.getSize();
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [Math.round(size.x * ratio), Math.round(size.y * ratio)];
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${size.x}px`;
      canvas.style.height = `${size.y}px`;
    }
    L.DomUtil.setPosition(canvas, this._map.containerPointToLayerPoint([0, 0]));
    this._topLeft = this._map.containerPointToLatLng([0, 0]);
    this._zoomDrawn = this._map.getZoom();
    const view = this._view();
    const atlas = this._atlas(ratio, this.items.length > CROWD);
    const seen = this._stamp(now, atlas, view, ratio, width, height);
    context.putImageData(this._image, -atlas.cell, -atlas.cell);
    this._moving = this._rings(context, view, ratio, now) || this._moving;
    return seen;
  },

  // Writes the pixels of all objects. Around the picture there is room for one more cell, so that
  // objects at its border need no test for each pixel.
  _stamp(now, atlas, view, ratio, width, height) {
    const { cell } = atlas;
    const stride = width + 2 * cell;
    if (this._image?.width !== stride || this._image.height !== height + 2 * cell) {
      this._image = new ImageData(stride, height + 2 * cell);
      this._pixels = new Uint32Array(this._image.data.buffer);
    }
    const pixels = this._pixels;
    pixels.fill(0);
    const stamps = atlas.stamps(stride);
    const {
      _fromX: fromX,
      _fromY: fromY,
      _toX: toX,
      _toY: toY,
      _began: began,
      _kind: kinds,
      _heading: headings,
    } = this;
    const half = cell / 2;
    const scale = view.scale * ratio;
    const [left, top] = [view.left * ratio, view.top * ratio];
    const rows = this.items.length;
    let [seen, moving] = [0, false];
    for (let row = 0; row < rows; row += 1) {
      const gone = Math.min(1, (now - began[row]) / GLIDE);
      const [dx, dy] = [toX[row] - fromX[row], toY[row] - fromY[row]];
      if (gone < 1 && (dx !== 0 || dy !== 0)) moving = true;
      const x = Math.round((fromX[row] + dx * gone) * scale - left + half);
      const y = Math.round((fromY[row] + dy * gone) * scale - top + half);
      if (x < 0 || y < 0 || x > width + cell || y > height + cell) continue;
      seen += 1;
      const stamp = stamps[kinds[row] * (HEADINGS + 1) + headings[row]];
      const at = y * stride + x;
      const { whole, wholeColours, soft, softColours } = stamp;
      for (let k = 0; k < soft.length; k += 1) {
        const place = at + soft[k];
        pixels[place] =
          pixels[place] === 0 ? softColours[k] : mixed(softColours[k], pixels[place]);
      }
      for (let k = 0; k < whole.length; k += 1) pixels[at + whole[k]] = wholeColours[k];
    }
    this._moving = moving;
    return seen;
  },

  _draw(now) {
    this._frame = null;
    this.draw(now);
    if (this._moving) this.redraw();
  },

  _rings(context, view, ratio, now) {
    const ring = (id, radius, name, dashed) => {
      const row = this.rows.get(id);
      if (row === undefined) return;
      const gone = Math.min(1, (now - this._began[row]) / GLIDE);
      const x =
        (this._fromX[row] + (this._toX[row] - this._fromX[row]) * gone) * view.scale - view.left;
      const y =
        (this._fromY[row] + (this._toY[row] - this._fromY[row]) * gone) * view.scale - view.top;
      context.save();
      context.scale(ratio, ratio);
      context.beginPath();
      context.arc(x, y, radius, 0, 2 * Math.PI);
      context.lineWidth = 4.5;
      context.strokeStyle = colour("object-edge");
      context.stroke();
      context.setLineDash(dashed ? [4, 3] : []);
      context.lineWidth = 2.25;
      context.strokeStyle = colour(name);
      context.stroke();
      context.restore();
    };
    let left = false;
    for (const [id, until] of this._marked) {
      if (until < now) {
        this._marked.delete(id);
        continue;
      }
      left = true;
      const passed = this._calm.matches ? 0 : (now % 1200) / 1200;
      ring(id, 24 - 10 * passed, "match", true);
    }
    if (this._selected !== null) ring(this._selected, 14, "accent", false);
    return left;
  },

  _glide(row, at, now) {
    const gone = Math.min(1, (now - this._began[row]) / GLIDE);
    const [dx, dy] = [at.x - this._toX[row], at.y - this._toY[row]];
    if (Math.abs(dx) > STILL || Math.abs(dy) > STILL) {
      const turn = Math.atan2(dx, -dy) / (2 * Math.PI);
      this._heading[row] = Math.round((turn + 1) * HEADINGS) % HEADINGS;
    }
    if (this._calm.matches) {
      this._fromX[row] = at.x;
      this._fromY[row] = at.y;
    } else {
      this._fromX[row] += (this._toX[row] - this._fromX[row]) * gone;
      this._fromY[row] += (this._toY[row] - this._fromY[row]) * gone;
    }
    this._toX[row] = at.x;
    this._toY[row] = at.y;
  },

  _view() {
    const map = this._map;
    const origin = map.getPixelOrigin().add(map.containerPointToLayerPoint([0, 0]));
    return { scale: map.getZoomScale(map.getZoom(), 0), left: origin.x, top: origin.y };
  },

  _atlas(ratio, small) {
    const name = `${ratio} ${small}`;
    this._atlases[name] ??= new Atlas(ratio, small);
    return this._atlases[name];
  },

  // While Leaflet zooms, the last picture is stretched along.
  _zoom(event) {
    if (!this._topLeft) return; // nothing is drawn yet
    const scale = this._map.getZoomScale(event.zoom, this._zoomDrawn);
    const offset = this._map._latLngToNewLayerPoint(this._topLeft, event.zoom, event.center);
    L.DomUtil.setTransform(this._canvas, offset, scale);
  },

  _grow(room) {
    const larger = (Kind, old) => {
      const array = new Kind(room);
      if (old) array.set(old);
      return array;
    };
    for (const name of ["_fromX", "_fromY", "_toX", "_toY", "_began"])
      this[name] = larger(Float64Array, this[name]);
    for (const name of ["_kind", "_heading"]) this[name] = larger(Uint8Array, this[name]);
    this._room = room;
  },
});
