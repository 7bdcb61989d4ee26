// Moments of the stream, which are timestamps or plain numbers, and lengths of time in words.

const DAY = new Intl.DateTimeFormat("en-GB", { timeZone: "UTC", day: "numeric", month: "short" });
const CLOCK = new Intl.DateTimeFormat("en-GB", {
  timeZone: "UTC",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hourCycle: "h23",
});

// Converts a timestamp to seconds since 1970; numbers are returned unchanged.
export function position(moment) {
  if (typeof moment === "number") return moment;
  if (moment === null || moment === undefined) return NaN;
  const zoned = /(Z|[+-]\d\d:?\d\d)$/.test(moment);
  return Date.parse(zoned ? moment : `${moment.replace(" ", "T")}Z`) / 1000;
}

export function isNumber(moment) {
  return typeof moment === "number";
}

export function clock(seconds) {
  return CLOCK.format(new Date(seconds * 1000));
}

export function day(seconds) {
  return DAY.format(new Date(seconds * 1000));
}

// Formats an event time, in UTC.
export function shown(moment, { withDay = true } = {}) {
  if (isNumber(moment)) return String(Math.round(moment * 1000) / 1000);
  const seconds = position(moment);
  if (Number.isNaN(seconds)) return "–";
  return withDay ? `${day(seconds)} ${clock(seconds)}` : clock(seconds);
}

const UNITS = [
  [86400, "d"],
  [3600, "h"],
  [60, "min"],
  [1, "s"],
];

export function length(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const at = UNITS.findIndex(([size]) => seconds >= size);
  const [size, unit] = UNITS[at];
  const whole = Math.floor(seconds / size);
  const rest = UNITS[at + 1] && Math.round((seconds - whole * size) / UNITS[at + 1][0]);
  return rest && whole < 10 ? `${whole} ${unit} ${rest} ${UNITS[at + 1][1]}` : `${whole} ${unit}`;
}

export function ago(moment) {
  const passed = Date.now() / 1000 - position(moment);
  return passed < 1 ? "now" : `${length(passed)} ago`;
}

// From start to end, a day said once, or not at all if it is the known one.
export function span(start, end, known = null) {
  if (isNumber(start)) return start === end ? shown(start) : `${shown(start)} – ${shown(end)}`;
  const [first, last] = [day(position(start)), day(position(end))];
  const from = shown(start, { withDay: first !== known });
  return start === end ? from : `${from} – ${shown(end, { withDay: last !== first })}`;
}

// Ticks of an axis at round times, with their labels.
const STEPS = [
  1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
  172800, 604800,
];

export function ticks(from, to, most, numbers) {
  const rough = (to - from) / Math.max(1, most);
  let step = STEPS.find((size) => size >= rough) ?? 86400 * Math.ceil(rough / 86400);
  if (numbers) {
    const power = 10 ** Math.floor(Math.log10(rough || 1));
    step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  }
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
    const text = numbers
      ? String(Number(at.toPrecision(6)))
      : step >= 86400
        ? day(at)
        : clock(at).slice(0, step < 60 ? 8 : 5);
    found.push({ at, text });
  }
  return found;
}
