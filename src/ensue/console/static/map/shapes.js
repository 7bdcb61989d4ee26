// What objects look like: a shape and a colour for each type, a line to where one is going.

import { colour } from "./colours.js";

export const SHAPES = [
  "circle",
  "square",
  "diamond",
  "triangle",
  "hexagon",
  "pentagon",
  "cross",
  "bar",
];
const COLOURS = SHAPES.map((_, at) => `object-${at}`);
export const HEADINGS = 32;
const CELL = 26; // of the atlas, in pixels of the style sheet
const SMALL = 16;

function corners(context, count, radius, turned = -Math.PI / 2) {
  for (let at = 0; at < count; at += 1) {
    const angle = turned + (at * 2 * Math.PI) / count;
    context.lineTo(radius * Math.cos(angle), radius * Math.sin(angle));
  }
  context.closePath();
}

function body(context, shape, r) {
  context.beginPath();
  if (shape === "circle") context.arc(0, 0, r, 0, 2 * Math.PI);
  else if (shape === "square") context.rect(-0.88 * r, -0.88 * r, 1.76 * r, 1.76 * r);
  else if (shape === "diamond") corners(context, 4, 1.22 * r);
  else if (shape === "triangle") corners(context, 3, 1.25 * r);
  else if (shape === "hexagon") corners(context, 6, 1.08 * r, 0);
  else if (shape === "pentagon") corners(context, 5, 1.12 * r);
  else if (shape === "bar") context.rect(-1.1 * r, -0.6 * r, 2.2 * r, 1.2 * r);
  else {
    const arm = 0.42 * r;
    for (const [x, y] of [
      [-arm, -r],
      [arm, -r],
      [arm, -arm],
      [r, -arm],
      [r, arm],
      [arm, arm],
      [arm, r],
      [-arm, r],
      [-arm, arm],
      [-r, arm],
      [-r, -arm],
      [-arm, -arm],
    ])
      context.lineTo(x, y);
    context.closePath();
  }
}

// A body, and a line from its middle to where it is going, both with an edge around them.
function drawShape(context, kind, heading, size) {
  const r = 0.2 * size;
  const line = (width, name) => {
    if (heading === null) return;
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(2.2 * r * Math.sin(heading), -2.2 * r * Math.cos(heading));
    context.lineWidth = width * size;
    context.lineCap = "round";
    context.strokeStyle = colour(name);
    context.stroke();
  };
  line(0.17, "object-edge");
  body(context, SHAPES[kind], r);
  context.lineJoin = "round";
  context.lineWidth = 0.1 * size;
  context.strokeStyle = colour("object-edge");
  context.stroke();
  line(0.085, COLOURS[kind]);
  body(context, SHAPES[kind], r);
  context.fillStyle = colour(COLOURS[kind]);
  context.fill();
}

// All shapes in all headings as lists of pixels: a canvas takes longer to copy a picture of them
// than it takes to write the few pixels that are not empty.
export class Atlas {
  constructor(ratio, small) {
    this.size = small ? SMALL : CELL;
    this.cell = Math.ceil(this.size * ratio);
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = this.cell;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    this._pixels = [];
    for (let kind = 0; kind < SHAPES.length; kind += 1) {
      for (let at = 0; at <= HEADINGS; at += 1) {
        context.setTransform(1, 0, 0, 1, 0, 0);
        context.clearRect(0, 0, this.cell, this.cell);
        context.translate(this.cell / 2, this.cell / 2);
        context.scale(ratio, ratio);
        drawShape(
          context,
          kind,
          at === HEADINGS ? null : (at * 2 * Math.PI) / HEADINGS,
          this.size,
        );
        this._pixels.push(
          new Uint32Array(context.getImageData(0, 0, this.cell, this.cell).data.buffer),
        );
      }
    }
    this._stamps = null;
    this._stride = null;
  }

  // For rows of so many pixels: where the pixels of each shape lie, whole ones and soft ones.
  stamps(stride) {
    if (this._stride !== stride) {
      this._stride = stride;
      this._stamps = this._pixels.map((pixels) => this._stamp(pixels, stride));
    }
    return this._stamps;
  }

  _stamp(pixels, stride) {
    const places = { whole: [], soft: [] };
    pixels.forEach((pixel, at) => {
      const opacity = pixel >>> 24;
      if (opacity) places[opacity === 255 ? "whole" : "soft"].push(at);
    });
    const offsets = (list) =>
      Int32Array.from(list, (at) => Math.floor(at / this.cell) * stride + (at % this.cell));
    const colours = (list) => Uint32Array.from(list, (at) => pixels[at]);
    return {
      whole: offsets(places.whole),
      wholeColours: colours(places.whole),
      soft: offsets(places.soft),
      softColours: colours(places.soft),
    };
  }
}

// The shape of a type for a legend.
export function swatch(kind) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = CELL * ratio;
  canvas.className = "swatch";
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  context.translate(CELL / 2, CELL / 2);
  drawShape(context, kind, null, CELL);
  return canvas;
}
