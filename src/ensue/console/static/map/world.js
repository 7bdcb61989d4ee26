// The map itself: the earth with the outlines of its countries, or a plane with a grid or a picture.

import { colour, whenColoursChange } from "./colours.js";
import { icon, make } from "../elements.js";

const L = window.L;
const CITY_ZOOM = 4;
const HUNDREDTHS = 100;

// x, y of the first point, then steps, all in hundredths of a degree.
function unpacked(steps) {
  const points = [];
  let [x, y] = [0, 0];
  for (let at = 0; at < steps.length; at += 2) {
    x += steps[at];
    y += steps[at + 1];
    points.push([y / HUNDREDTHS, x / HUNDREDTHS]);
  }
  return points;
}

async function addEarth(map) {
  const answer = await fetch("/static/earth/earth.json");
  const earth = await answer.json();
  map.createPane("earth").style.zIndex = 150;
  const renderer = L.canvas({ pane: "earth", padding: 0.3 });
  const basic = { renderer, pane: "earth", interactive: false, smoothFactor: 0.6 };
  const land = L.polygon(
    earth.land.map((rings) => rings.map(unpacked)),
    { ...basic, weight: 0.8 },
  );
  const borders = L.polyline(earth.borders.map(unpacked), { ...basic, weight: 0.9 });
  const paint = () => {
    land.setStyle({ color: colour("map-coast"), fillColor: colour("map-land"), fillOpacity: 1 });
    borders.setStyle({ color: colour("map-border") });
  };
  paint();
  land.addTo(map);
  borders.addTo(map);
  whenColoursChange(paint);
  addCities(map, earth.cities);
}

// Names of cities that are in sight, once the map is near enough for them not to crowd.
function addCities(map, cities) {
  map.createPane("cities").style.zIndex = 160;
  const layer = L.layerGroup().addTo(map);
  const show = () => {
    layer.clearLayers();
    if (map.getZoom() < CITY_ZOOM) return;
    const seen = map.getBounds().pad(0.1);
    for (const [name, x, y] of cities) {
      if (!seen.contains([y, x])) continue;
      const label = L.divIcon({ className: "city", html: make("span", {}, name), iconSize: null });
      L.marker([y, x], { icon: label, pane: "cities", interactive: false, keyboard: false }).addTo(
        layer,
      );
    }
  };
  map.on("moveend", show);
  show();
}

// Lines of a grid at round numbers, with the numbers at the border of the map.
const Grid = L.Layer.extend({
  onAdd(map) {
    this._canvas = L.DomUtil.create("canvas", "grid");
    map.createPane("grid").style.zIndex = 150;
    map.getPane("grid").append(this._canvas);
    map.on("move zoomend resize", this._draw, this);
    whenColoursChange(() => this._draw());
    this._draw();
  },
  _draw() {
    const map = this._map;
    const size = map.getSize();
    const ratio = window.devicePixelRatio || 1;
    const canvas = this._canvas;
    L.DomUtil.setPosition(canvas, map.containerPointToLayerPoint([0, 0]));
    canvas.width = size.x * ratio;
    canvas.height = size.y * ratio;
    canvas.style.width = `${size.x}px`;
    canvas.style.height = `${size.y}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const bounds = map.getBounds();
    const units = (bounds.getEast() - bounds.getWest()) / size.x;
    const power = 10 ** Math.floor(Math.log10(80 * units));
    const step = [1, 2, 5, 10]
      .map((times) => times * power)
      .find((length) => length >= 80 * units);
    context.strokeStyle = colour("map-border");
    context.fillStyle = colour("quiet");
    context.font = "11px system-ui, sans-serif";
    context.lineWidth = 0.6;
    context.beginPath();
    const number = (value) => String(Number(value.toPrecision(8)));
    for (let x = Math.ceil(bounds.getWest() / step) * step; x <= bounds.getEast(); x += step) {
      const at = Math.round(map.latLngToContainerPoint([0, x]).x) + 0.5;
      context.moveTo(at, 0);
      context.lineTo(at, size.y);
      context.fillText(number(x), at + 4, size.y - 6);
    }
    for (let y = Math.ceil(bounds.getSouth() / step) * step; y <= bounds.getNorth(); y += step) {
      const at = Math.round(map.latLngToContainerPoint([y, 0]).y) + 0.5;
      context.moveTo(0, at);
      context.lineTo(size.x, at);
      if (at < size.y - 20) context.fillText(number(y), 4, at - 4);
    }
    context.stroke();
  },
});

// `stream` says whether it is the earth; `background` is a picture of the plane and its bounds.
export function makeMap(element, stream, background = null) {
  const earth = stream.space === "earth";
  const map = L.map(element, {
    crs: earth ? L.CRS.EPSG3857 : L.CRS.Simple,
    zoomSnap: 0.25,
    zoomDelta: 0.5,
    minZoom: earth ? 2 : -12,
    maxZoom: earth ? 18 : 12,
    worldCopyJump: earth,
    zoomControl: false,
    attributionControl: false,
    preferCanvas: true,
    fadeAnimation: false,
    zoomAnimation: !matchMedia("(prefers-reduced-motion: reduce)").matches,
  });
  L.control.zoom({ position: "topleft" }).addTo(map);
  if (earth) {
    map.setView([30, 10], 2);
    L.control.scale({ position: "bottomleft", imperial: false }).addTo(map);
    addEarth(map);
  } else {
    map.setView([0, 0], 0);
    if (background) {
      const [west, south, east, north] = background.bounds;
      const bounds = [
        [south, west],
        [north, east],
      ];
      map.createPane("picture").style.zIndex = 140;
      L.imageOverlay(background.url, bounds, { pane: "picture", alt: "" }).addTo(map);
      map.fitBounds(bounds);
    } else {
      new Grid().addTo(map);
    }
  }
  return map;
}

// A button on the map, beside Leaflet's own.
export function addButton(map, { name, label, position = "topleft", action }) {
  const Control = L.Control.extend({
    onAdd() {
      const button = make(
        "button",
        { type: "button", class: "map-button", title: label, "aria-label": label },
        icon(name),
      );
      L.DomEvent.disableClickPropagation(button);
      button.addEventListener("click", action);
      return button;
    },
  });
  return new Control({ position }).addTo(map);
}
