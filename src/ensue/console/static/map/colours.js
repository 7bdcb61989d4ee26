// Canvas colours, from the light or dark style sheet.

const dark = matchMedia("(prefers-color-scheme: dark)");
let known = null;

export function colour(name) {
  known ??= getComputedStyle(document.documentElement);
  return known.getPropertyValue(`--${name}`).trim();
}

export function whenColoursChange(action) {
  dark.addEventListener("change", () => {
    known = null;
    action();
  });
}
