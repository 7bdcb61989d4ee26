// How much of a whole something is.

import { draw } from "./elements.js";

// A part of a whole, as a bar; the number stands beside it.
export function reach(part, whole) {
  return draw(
    "svg",
    { class: "reach", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("rect", { class: "all", width: 100, height: 10, rx: 2 }),
    draw("rect", {
      class: "part",
      width: whole ? Math.max(part ? 1 : 0, (100 * part) / whole) : 0,
      height: 10,
      rx: 2,
    }),
  );
}
