// A match once more: its events appear on the map in the order of time, listed beside.

import { announce, icon, make } from "../elements.js";
import { centreOf, geometryOf, placeOf } from "../wkt.js";
import { isNumber, length, position, shown, span } from "../times.js";
import { colour } from "./colours.js";

const L = window.L;
const SECONDS = 6; // that a replay takes
const STEPS = 1000;

function numbered(at, ghost) {
  return L.divIcon({
    className: `member ${ghost ? "ghost" : ""}`,
    html: make("span", {}, String(at)),
    iconSize: [22, 22],
  });
}

export class Replay {
  // `note` as the service tells it by number: with its members and the tracks around them.
  constructor(map, stream, note, { close }) {
    this._map = map;
    this._stream = stream;
    this._note = note;
    this._group = L.layerGroup().addTo(map);
    this._members = this._ordered();
    this._tracks = Object.entries(note.tracks ?? {}).map(([object, points]) => ({
      object,
      points,
    }));
    const moments = this._members
      .map((member) => member.at)
      .concat(this._tracks.flatMap((track) => track.points.map(([t]) => position(t))));
    const known = moments.filter((at) => !Number.isNaN(at));
    this._from = Math.min(...known, position(note.start));
    this._to = Math.max(...known, position(note.end));
    if (!(this._to > this._from)) this._to = this._from + 1;
    this._now = this._from;
    this.element = this._panel(close);
    this._paint();
    this._fit();
    this._button();
    this.seek(this._from);
    if (!matchMedia("(prefers-reduced-motion: reduce)").matches) this.play();
    else this.seek(this._to);
  }

  stop() {
    this.pause();
    this._group.remove();
  }

  play() {
    if (this._now >= this._to) this._now = this._from;
    let before = performance.now();
    this._playing = true;
    const step = (now) => {
      if (!this._playing) return;
      this.seek(this._now + ((now - before) / 1000 / SECONDS) * (this._to - this._from));
      before = now;
      if (this._now >= this._to) this.pause();
      else this._frame = requestAnimationFrame(step);
    };
    this._frame = requestAnimationFrame(step);
    this._button();
  }

  pause() {
    this._playing = false;
    cancelAnimationFrame(this._frame);
    this._button();
  }

  seek(at) {
    this._now = Math.min(this._to, Math.max(this._from, at));
    this._slider.value = Math.round(((this._now - this._from) / (this._to - this._from)) * STEPS);
    const moment = isNumber(this._note.end)
      ? shown(this._now)
      : shown(new Date(this._now * 1000).toISOString());
    this._slider.setAttribute("aria-valuetext", moment);
    this._clock.textContent = moment;
    this._members.forEach((member) => {
      const come = member.at <= this._now;
      if (member.come === come) return;
      member.come = come;
      member.row.classList.toggle("come", come);
      member.marker?.setIcon(numbered(member.number, !come));
    });
    for (const track of this._tracks) this._follow(track);
  }

  _ordered() {
    const [start, end] = Array.isArray(this._stream.time)
      ? this._stream.time
      : [this._stream.time, this._stream.time];
    return (this._note.members ?? [])
      .map((event) => ({
        event,
        start: event[start],
        end: event[end],
        at: position(event[end]),
        place: placeOf(event, this._stream),
      }))
      .sort((a, b) => a.at - b.at)
      .map((member, at) => ({ ...member, number: at + 1, come: null }));
  }

  _panel(close) {
    const note = this._note;
    this._toggle = make("button", {
      type: "button",
      class: "button round",
      onclick: () => (this._playing ? this.pause() : this.play()),
    });
    this._slider = make("input", {
      type: "range",
      min: 0,
      max: STEPS,
      step: 1,
      "aria-label": "Moment of the replay",
    });
    this._slider.addEventListener("input", () => {
      this.pause();
      this.seek(this._from + (this._slider.valueAsNumber / STEPS) * (this._to - this._from));
    });
    this._clock = make("output", { class: "clock" });
    const rows = this._members.map((member) => {
      member.row = make(
        "li",
        {},
        make(
          "button",
          {
            type: "button",
            onclick: () => {
              this.pause();
              this.seek(member.at);
              this._look(member);
            },
          },
          make("span", { class: "number" }, String(member.number)),
          make(
            "span",
            { class: "what" },
            make("strong", {}, this._title(member.event)),
            make(
              "span",
              { class: "about" },
              [span(member.start, member.end), this._where(member.place)]
                .filter(Boolean)
                .join(" · "),
            ),
            this._fields(member.event),
          ),
        ),
      );
      return member.row;
    });
    const started = note.start !== null && note.start !== undefined;
    const lasted =
      started && !isNumber(note.start)
        ? ` · ${length(Math.max(0, position(note.end) - position(note.start)))}`
        : "";
    return make(
      "section",
      { class: "replay", "aria-label": "Replay of a match" },
      make(
        "header",
        {},
        make("button", { type: "button", class: "button", onclick: close }, icon("back"), "Feed"),
        make(
          "a",
          { class: "button", href: `/subscriptions/${note.subscription}` },
          "Subscription",
        ),
      ),
      make("h2", { tabindex: -1 }, note.name),
      make(
        "p",
        { class: "about" },
        (started ? span(note.start, note.end) : "without events") + lasted,
      ),
      make("div", { class: "player" }, this._toggle, this._slider, this._clock),
      make("h3", {}, `${rows.length} ${rows.length === 1 ? "event" : "events"} of the match`),
      make("ol", { class: "members" }, ...rows),
      note.match_id
        ? make("p", { class: "identity" }, "match ", make("code", {}, note.match_id))
        : null,
    );
  }

  _title(event) {
    const { key, type } = this._stream;
    return (
      [
        type && event[type],
        key && event[key] !== null && event[key] !== undefined ? `${key} ${event[key]}` : null,
      ]
        .filter(Boolean)
        .join(" · ") || "event"
    );
  }

  _where(place) {
    const at = centreOf(place);
    return at && `at ${at.map((value) => Number(value.toFixed(5))).join(", ")}`;
  }

  _fields(event) {
    const { key, type, time, location } = this._stream;
    const known = new Set([key, type, time, location].flat());
    const rest = Object.entries(event).filter(
      ([name, value]) => !known.has(name) && value !== null,
    );
    return rest.length
      ? make(
          "span",
          { class: "fields" },
          rest
            .map(
              ([name, value]) =>
                `${name} ${typeof value === "number" ? Number(value.toFixed(3)) : value}`,
            )
            .join(" · "),
        )
      : null;
  }

  _paint() {
    const hull = geometryOf(this._note.location);
    if (hull && hull.type !== "Point") {
      L.geoJSON(hull, {
        interactive: false,
        style: () => ({
          color: colour("match"),
          weight: 1.5,
          dashArray: "3 5",
          fillOpacity: 0.07,
        }),
      }).addTo(this._group);
    }
    for (const track of this._tracks) {
      track.places = track.points
        .map(([t, x, y]) => ({ at: position(t), x, y }))
        .filter((place) => typeof place.x === "number");
      L.polyline(
        track.places.map(({ x, y }) => [y, x]),
        { color: colour("track"), weight: 1.5, opacity: 0.4, interactive: false },
      ).addTo(this._group);
      track.line = L.polyline([], {
        color: colour("track"),
        weight: 3.5,
        interactive: false,
      }).addTo(this._group);
      const mover = L.divIcon({
        className: "mover",
        html: make("span", {}, String(track.object)),
        iconSize: [14, 14],
      });
      track.mover = L.marker([0, 0], { icon: mover, interactive: false, keyboard: false });
    }
    for (const member of this._members) {
      const at = centreOf(member.place);
      if (!at) continue;
      member.marker = L.marker([at[1], at[0]], {
        icon: numbered(member.number, true),
        title: `Event ${member.number}: ${this._title(member.event)}`,
        keyboard: false,
      }).addTo(this._group);
    }
  }

  // Draws the track up to now, and the object between the two places around now.
  _follow(track) {
    if (!track.places.length) return;
    const past = track.places.filter((place) => place.at <= this._now);
    const next = track.places[past.length];
    const last = past[past.length - 1];
    const line = past.map(({ x, y }) => [y, x]);
    if (last && next) {
      const part = (this._now - last.at) / (next.at - last.at || 1);
      line.push([last.y + part * (next.y - last.y), last.x + part * (next.x - last.x)]);
    }
    track.line.setLatLngs(line);
    if (line.length) track.mover.setLatLng(line[line.length - 1]).addTo(this._group);
    else track.mover.remove();
  }

  _fit() {
    const bounds = L.latLngBounds([]);
    for (const member of this._members) {
      const at = centreOf(member.place);
      if (at) bounds.extend([at[1], at[0]]);
    }
    for (const track of this._tracks) for (const { x, y } of track.places) bounds.extend([y, x]);
    if (bounds.isValid())
      this._map.fitBounds(bounds.pad(0.25), {
        maxZoom: this._stream.space === "earth" ? 14 : 4,
        animate: false,
      });
  }

  _look(member) {
    const at = centreOf(member.place);
    if (at) this._map.panTo([at[1], at[0]]);
    announce(`Event ${member.number}: ${this._title(member.event)}, ${shown(member.end)}`);
  }

  _button() {
    this._toggle.replaceChildren(icon(this._playing ? "paused" : "play"));
    this._toggle.setAttribute("aria-label", this._playing ? "Pause" : "Play");
    this._toggle.title = this._playing ? "Pause" : "Play";
  }
}
