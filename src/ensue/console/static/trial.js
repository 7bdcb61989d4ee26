// The result of a trial run: the matches by object, over time, and on the map.

import { draw, make } from "./elements.js";
import { about } from "./feed.js";
import { colour } from "./map/colours.js";
import { makeMap } from "./map/world.js";
import { Regions } from "./map/regions.js";
import { reach } from "./reach.js";
import { isNumber, position, shown, span, ticks } from "./times.js";
import { centreOf, geometryOf, placeOf } from "./wkt.js";

const L = window.L;
const OBJECTS = 8;
const HEIGHT = 92;
const AXIS = 20;

// Matches over time as bars of equal steps.
function bars(counts, from, to, numbers) {
  const width = 560;
  const most = Math.max(...counts, 1);
  const step = width / counts.length;
  const svg = draw("svg", {
    class: "bars",
    viewBox: `0 0 ${width} ${HEIGHT + AXIS}`,
    role: "img",
    "aria-label": `Matches over time, at most ${most} in one of ${counts.length} equal steps`,
  });
  svg.append(draw("line", { x1: 0, x2: width, y1: HEIGHT + 0.5, y2: HEIGHT + 0.5 }));
  counts.forEach((count, at) => {
    if (!count) return;
    const high = Math.max(3, (count / most) * (HEIGHT - 14));
    const bar = draw("rect", {
      x: at * step + 0.75,
      y: HEIGHT - high,
      width: Math.max(1, step - 1.5),
      height: high,
    });
    bar.append(draw("title", {}, `${count} matches`));
    svg.append(bar);
  });
  svg.append(draw("text", { x: 0, y: 10 }, `at most ${most}`));
  for (const { at, text } of ticks(from, to, 6, numbers)) {
    const x = ((at - from) / (to - from || 1)) * width;
    if (x > 14 && x < width - 14)
      svg.append(draw("text", { x, y: HEIGHT + 15, "text-anchor": "middle" }, text));
  }
  return svg;
}

function figure(number, words) {
  return make("div", { class: "figure" }, make("strong", {}, number), make("span", {}, words));
}

function byObject(found, key) {
  const counts = Object.entries(found).sort((a, b) => b[1] - a[1]);
  const most = counts[0]?.[1] ?? 1;
  const rows = counts
    .slice(0, OBJECTS)
    .map(([id, count]) =>
      make(
        "li",
        {},
        make("span", {}, id),
        reach(count, most),
        make("span", { class: "number" }, String(count)),
      ),
    );
  if (counts.length > OBJECTS)
    rows.push(
      make("li", {}, make("span", { class: "quiet" }, `and ${counts.length - OBJECTS} more`)),
    );
  return make("div", {}, make("h3", {}, `By ${key}`), make("ol", { class: "by-object" }, ...rows));
}

export class TrialView {
  constructor(element, stream, background) {
    this._element = element;
    this._stream = stream;
    this._background = background;
  }

  show(trial, regions) {
    const { _stream: stream } = this;
    const numbers = isNumber(trial.from);
    const objects = Object.keys(trial.by_object ?? {}).length;
    this._element.replaceChildren(
      make(
        "div",
        { class: "trial-numbers" },
        figure(
          trial.count.toLocaleString("en"),
          trial.count === 1 ? "time it would have fired" : "times it would have fired",
        ),
        objects
          ? figure(objects.toLocaleString("en"), objects === 1 ? "object" : "objects")
          : null,
        figure(
          trial.events.toLocaleString("en"),
          trial.from === null ? "stored events" : `stored events, ${span(trial.from, trial.to)}`,
        ),
      ),
    );
    if (trial.cut)
      this._element.append(make("p", { class: "notice" }, `Incomplete: ${trial.cut}`));
    if (!trial.count) {
      this._element.append(
        make(
          "p",
          { class: "empty" },
          trial.events
            ? "It would not have fired. After saving, “Why not?” on its page shows how far events matched."
            : "No events are stored yet.",
        ),
      );
      return;
    }
    const when = trial.bars?.length
      ? make(
          "div",
          {},
          make("h3", {}, "Over time"),
          bars(trial.bars, position(trial.from), position(trial.to), numbers),
        )
      : null;
    this._element.append(
      make("div", { class: "two" }, when, objects ? byObject(trial.by_object, stream.key) : null),
    );
    if (stream.location) this._map(trial, regions);
    this._list(trial);
  }

  _map(trial, regions) {
    const box = make("div", { class: "trial-map", "aria-label": "Map of the matches" });
    this._element.append(make("h3", { class: "space-above" }, "On the map"), box);
    const map = makeMap(box, this._stream, this._background);
    new Regions(map).show("saved", regions);
    const bounds = L.latLngBounds([]);
    trial.matches.forEach((match, at) => {
      const hull = geometryOf(match.location);
      if (hull && hull.type !== "Point")
        L.geoJSON(hull, {
          interactive: false,
          style: () => ({ color: colour("match"), weight: 2, fillOpacity: 0.1 }),
        }).addTo(map);
      const last = match.members[match.members.length - 1];
      const place = last && centreOf(placeOf(last, this._stream));
      if (!place) return;
      const mark = L.circleMarker([place[1], place[0]], {
        radius: 5,
        color: colour("object-edge"),
        weight: 1.5,
        fillColor: colour("match"),
        fillOpacity: 1,
      });
      // Leaflet would read a text as HTML.
      mark.bindTooltip(make("span", {}, `${at + 1}: ${about(match, this._stream)}`)).addTo(map);
      bounds.extend([place[1], place[0]]);
    });
    if (bounds.isValid())
      map.fitBounds(bounds.pad(0.2), {
        animate: false,
        maxZoom: this._stream.space === "earth" ? 15 : 4,
      });
  }

  _list(trial) {
    const rows = trial.matches
      .slice(0, 20)
      .map((match) =>
        make(
          "tr",
          {},
          make("td", { class: "number" }, shown(match.end)),
          make("td", {}, about(match, this._stream)),
          make("td", { class: "number" }, String(match.members.length)),
        ),
      );
    this._element.append(
      make(
        "details",
        { class: "space-above" },
        make("summary", {}, `The newest ${rows.length}`),
        make(
          "div",
          { class: "table" },
          make(
            "table",
            {},
            make(
              "thead",
              {},
              make(
                "tr",
                {},
                make("th", { class: "number" }, "End"),
                make("th", {}, "Object"),
                make("th", { class: "number" }, "Events"),
              ),
            ),
            make("tbody", {}, ...rows),
          ),
        ),
      ),
    );
  }
}
