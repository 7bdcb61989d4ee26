// Elements of a page, made without text that would be read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function make(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function icon(name, label = null) {
  const use = draw("use", { href: `#icon-${name}` });
  const attributes = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return draw("svg", { class: "icon", width: 16, height: 16, ...attributes }, use);
}

export function one(selector, inside = document) {
  return inside.querySelector(selector);
}

export function all(selector, inside = document) {
  return [...inside.querySelectorAll(selector)];
}

// Text that is set on a page as JSON, in a block that the browser does not run.
export function given(id) {
  const block = document.getElementById(`given-${id}`);
  return block ? JSON.parse(block.textContent) : null;
}

// Announces a text to screen readers; texts in quick succession are joined.
let waiting = [];
let timer = null;

export function announce(words) {
  waiting.push(words);
  timer ??= setTimeout(() => {
    const told =
      waiting.length > 3 ? [...waiting.slice(0, 2), `and ${waiting.length - 2} more`] : waiting;
    one("#announcements").textContent = told.join(". ");
    waiting = [];
    timer = null;
  }, 1200);
}

export function later(wait, action) {
  let pending = null;
  return (...values) => {
    clearTimeout(pending);
    pending = setTimeout(() => action(...values), wait);
  };
}
