// Colours of what is drawn on canvases: the style sheet has them, light and dark.

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
