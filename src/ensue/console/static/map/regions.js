// Regions on the map: saved ones, and those defined only in subscriptions.

import { circleOf, geometryOf } from "../wkt.js";
import { colour, whenColoursChange } from "./colours.js";
import { make } from "../elements.js";

const L = window.L;
const SMALL = 9; // pixels

// A circle has its radius in units of the plane, or in metres on the earth.
export function circleLayer({ x, y, radius }, options) {
  return L.circle([y, x], { ...options, radius });
}

// What stands for a region on the map, or null if its text is of another kind.
export function layerOf(text, options = {}) {
  const circle = circleOf(text);
  if (circle) return circleLayer(circle, options);
  const geometry = geometryOf(text);
  return geometry && L.geoJSON(geometry, { style: () => options, interactive: false });
}

// The same in parts, where there are several.
function layersOf(text, options) {
  const geometry = circleOf(text) ? null : geometryOf(text);
  if (geometry?.type !== "MultiPolygon") return [layerOf(text, options)].filter(Boolean);
  return geometry.coordinates.map((coordinates) =>
    L.geoJSON({ type: "Polygon", coordinates }, { style: () => options, interactive: false }),
  );
}

export class Regions {
  constructor(map) {
    this._map = map;
    map.createPane("regions").style.zIndex = 350;
    this._renderer = L.canvas({ pane: "regions", padding: 0.3 });
    this._groups = { saved: L.featureGroup().addTo(map), watched: L.featureGroup().addTo(map) };
    this._shown = { saved: [], watched: [] };
    this._small = { saved: [], watched: [] };
    map.on("zoomend", () => this._dots());
    whenColoursChange(() => {
      for (const kind of Object.keys(this._shown)) this.show(kind, this._shown[kind]);
    });
  }

  // Shows regions of a kind, "saved" or "watched" (by subscriptions): [{name, text, says}].
  show(kind, regions) {
    this._shown[kind] = regions;
    const group = this._groups[kind];
    group.clearLayers();
    this._small[kind] = [];
    const style = {
      renderer: this._renderer,
      pane: "regions",
      interactive: false,
      color: colour(kind === "saved" ? "region" : "watched"),
      weight: kind === "saved" ? 1.75 : 2,
      dashArray: kind === "saved" ? null : "6 5",
      fillOpacity: kind === "saved" ? 0.1 : 0.04,
    };
    const labels = new Map(); // place -> regions; several of one place share a label
    for (const region of regions) {
      const parts = layersOf(region.text, style);
      for (const layer of parts) {
        layer.addTo(group);
        const dot = L.circleMarker(layer.getBounds().getCenter(), {
          ...style,
          radius: 4,
          dashArray: null,
          fillOpacity: 0.35,
        });
        this._small[kind].push({ dot, bounds: layer.getBounds() });
      }
      if (!parts.length) continue;
      const bounds = parts[0].getBounds();
      const place = [bounds.getNorth(), bounds.getCenter().lng];
      const named = labels.get(String(place)) ?? { place, regions: [] };
      named.regions.push(region);
      labels.set(String(place), named);
    }
    for (const named of labels.values()) this._label(group, kind, named);
    this._dots();
  }

  _label(group, kind, { place, regions }) {
    const icon = L.divIcon({
      className: `region-label ${kind}`,
      iconSize: null,
      html: make(
        "span",
        { title: regions.map(({ says }) => says ?? "").join(", ") },
        regions.map(({ name }) => name).join(", "),
      ),
    });
    L.marker(place, { icon, pane: "regions", interactive: false, keyboard: false }).addTo(group);
  }

  // A region that is too small to be seen from so far away is a dot.
  _dots() {
    for (const [kind, small] of Object.entries(this._small)) {
      for (const { dot, bounds } of small) {
        const size = this._map
          .latLngToLayerPoint(bounds.getSouthEast())
          .subtract(this._map.latLngToLayerPoint(bounds.getNorthWest()));
        if (Math.max(size.x, size.y) < SMALL) dot.addTo(this._groups[kind]);
        else this._groups[kind].removeLayer(dot);
      }
    }
  }

  toggle(kind, visible) {
    const group = this._groups[kind];
    if (visible) group.addTo(this._map);
    else group.remove();
  }

  bounds() {
    const bounds = L.latLngBounds([]);
    for (const group of Object.values(this._groups)) {
      if (group.getLayers().length) bounds.extend(group.getBounds());
    }
    return bounds;
  }

  boundsOf(text) {
    // A circle on the earth knows its bounds only on a map.
    const layer = layerOf(text, {
      renderer: this._renderer,
      pane: "regions",
      opacity: 0,
      fillOpacity: 0,
    });
    if (!layer) return null;
    layer.addTo(this._map);
    const bounds = layer.getBounds();
    layer.remove();
    return bounds;
  }
}
