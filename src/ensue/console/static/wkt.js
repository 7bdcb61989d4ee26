// Places as text (WKT, and CIRCLE (x y, radius)), as GeoJSON, and as corners.

const NUMBER = "[-+]?(?:\\d+\\.?\\d*|\\.\\d+)(?:[eE][-+]?\\d+)?";
const CIRCLE = new RegExp(
  `^\\s*CIRCLE\\s*\\(\\s*(${NUMBER})\\s+(${NUMBER})\\s*,\\s*(${NUMBER})\\s*\\)\\s*$`,
  "i",
);
const WORD =
  /^\s*(POINT|LINESTRING|POLYGON|MULTIPOINT|MULTILINESTRING|MULTIPOLYGON)\s*(\(.*\))\s*$/is;
const TYPES = {
  POINT: "Point",
  LINESTRING: "LineString",
  POLYGON: "Polygon",
  MULTIPOINT: "MultiPoint",
  MULTILINESTRING: "MultiLineString",
  MULTIPOLYGON: "MultiPolygon",
};

export function circleOf(text) {
  const found = CIRCLE.exec(text);
  return found && { x: Number(found[1]), y: Number(found[2]), radius: Number(found[3]) };
}

// The geometry that a text stands for, or null.
export function geometryOf(text) {
  const found = WORD.exec(text ?? "");
  if (!found) return null;
  const type = TYPES[found[1].toUpperCase()];
  const json = found[2]
    .replace(new RegExp(`(${NUMBER})\\s+(${NUMBER})`, "g"), "[$1,$2]")
    .replaceAll("(", "[")
    .replaceAll(")", "]")
    .replace(/(\[|,)\s*[+]/g, "$1")
    .replace(/(\[|,)\s*(-?)\./g, "$1$20.")
    .replace(/(\d)\.([,\]])/g, "$1$2");
  try {
    const coordinates = JSON.parse(json);
    return { type, coordinates: type === "Point" ? coordinates[0] : coordinates };
  } catch {
    return null;
  }
}

function rounded(value) {
  return String(Number(value.toFixed(6)));
}

export function polygonText(corners) {
  const ring = [...corners, corners[0]].map(([x, y]) => `${rounded(x)} ${rounded(y)}`);
  return `POLYGON ((${ring.join(", ")}))`;
}

export function circleText({ x, y, radius }) {
  return `CIRCLE (${rounded(x)} ${rounded(y)}, ${Number(radius.toPrecision(8))})`;
}

// Parses typed corners: "x y" or "x, y", one per line, "x y, x y, ..." or WKT.
export function cornersOf(text) {
  const polygon = geometryOf(text);
  if (polygon?.type === "Polygon") return polygon.coordinates[0].slice(0, -1);
  const numbers = text.match(new RegExp(NUMBER, "g"))?.map(Number) ?? [];
  const strange = text.replace(new RegExp(NUMBER, "g"), "").replace(/[\s,;()[\]]/g, "");
  if (strange || numbers.length < 6 || numbers.length % 2) return null;
  const corners = [];
  for (let at = 0; at < numbers.length; at += 2) corners.push([numbers[at], numbers[at + 1]]);
  const [first, last] = [corners[0], corners[corners.length - 1]];
  if (corners.length > 3 && first[0] === last[0] && first[1] === last[1]) corners.pop();
  return corners;
}

// The place of an event: two columns, or one that holds WKT.
export function placeOf(event, stream) {
  const at = stream.location;
  if (!at) return null;
  if (Array.isArray(at)) {
    const [x, y] = [event[at[0]], event[at[1]]];
    return typeof x === "number" && typeof y === "number"
      ? { type: "Point", coordinates: [x, y] }
      : null;
  }
  return typeof event[at] === "string" ? geometryOf(event[at]) : null;
}

export function centreOf(geometry) {
  const points = [];
  const walk = (part) => (typeof part[0] === "number" ? points.push(part) : part.forEach(walk));
  if (!geometry) return null;
  walk(geometry.coordinates);
  const middle = (axis) => {
    const values = points.map((point) => point[axis]);
    return (Math.min(...values) + Math.max(...values)) / 2;
  };
  return [middle(0), middle(1)];
}
