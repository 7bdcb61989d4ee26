// What every page does: buttons that ask the service for something, and parts that stay fresh.

import { Problem, patch, post, put, remove } from "./api.js";
import { all, announce, icon, make, one } from "./elements.js";
import { ago } from "./times.js";
import { colourTexts } from "./editor.js";

const written = new WeakMap(); // part -> its last content from the server
const METHODS = { POST: post, DELETE: (path) => remove(path), PUT: put, PATCH: patch };

// Shows an error or a success at the top of the page.
export function tell(words, kind = "good", hint = null) {
  const message = make(
    "div",
    { class: `message ${kind}`, role: kind === "bad" ? "alert" : "status" },
    icon(kind),
    make("div", {}, make("p", {}, words), hint ? make("p", { class: "hint" }, hint) : null),
    make(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-label": "Close this message",
        onclick: () => message.remove(),
      },
      icon("close"),
    ),
  );
  const box = one("#messages");
  box.replaceChildren(message);
  if (kind === "good") setTimeout(() => message.remove(), 8000);
}

export function tellProblem(problem) {
  if (!(problem instanceof Problem)) throw problem;
  tell(problem.message, "bad", problem.hint);
}

// <button data-do="POST /targets/7/on" data-sure="...?" data-then="/subscriptions">
async function act(button) {
  const [method, path] = button.dataset.do.split(" ");
  if (button.dataset.sure && !(await sure(button.dataset.sure, button.textContent.trim()))) return;
  button.disabled = true;
  button.setAttribute("aria-busy", "true");
  try {
    await METHODS[method](path);
    if (button.dataset.then) location.assign(button.dataset.then);
    else {
      announce(button.dataset.done ?? "Done");
      await refresh("[data-live], [data-renewed]");
    }
  } catch (problem) {
    tellProblem(problem);
  } finally {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  }
}

// A question in the page itself; the browser's own would stop everything else.
export function sure(question, yes) {
  return new Promise((answer) => {
    const dialog = make(
      "dialog",
      { class: "sure", "aria-labelledby": "sure-question" },
      make(
        "form",
        { method: "dialog" },
        make("p", { id: "sure-question" }, question),
        make(
          "div",
          { class: "buttons" },
          make("button", { class: "button", value: "no", autofocus: true }, "Cancel"),
          make("button", { class: "button danger", value: "yes" }, yes),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Parts with an id are refreshed from the server: those with data-live periodically, those with
// data-renewed after an action.
export async function refresh(which) {
  const parts = all(which);
  if (!parts.length) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(
    () => null,
  );
  const stale = !answer?.ok || answer.redirected;
  document.documentElement.classList.toggle("stale", stale);
  if (answer?.redirected) location.reload();
  if (stale) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of parts) {
    const newer = fresh.getElementById(part.id);
    if (!newer || newer.innerHTML === written.get(part)) continue;
    written.set(part, newer.innerHTML);
    renew(part, newer);
  }
}

// The element with the focus stays the focused one, though it is another one now.
function renew(part, newer) {
  const focused = document.activeElement;
  const path = [];
  if (part.contains(focused)) {
    for (let element = focused; element !== part; element = element.parentElement) {
      path.unshift([...element.parentElement.children].indexOf(element));
    }
  }
  part.replaceChildren(...newer.childNodes);
  tidy(part);
  if (!path.length) return;
  let found = part;
  for (const at of path) found = found?.children[at];
  found?.focus();
}

function tidy(inside = document) {
  // The server writes them disabled: before there is a script they could do nothing.
  for (const button of all("[data-do]", inside)) button.disabled = false;
  for (const time of all("time[data-ago]", inside))
    time.textContent = ago(time.getAttribute("datetime"));
  colourTexts(inside);
}

function keepFresh(milliseconds) {
  const again = async () => {
    if (!document.hidden) await refresh("[data-live]");
    setTimeout(again, milliseconds);
  };
  setTimeout(again, milliseconds);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-do]");
  if (button) act(button);
});
one("#menu-button")?.addEventListener("click", (event) => {
  const open = event.currentTarget.getAttribute("aria-expanded") === "true";
  event.currentTarget.setAttribute("aria-expanded", String(!open));
});
tidy();
const every = Number(document.body.dataset.fresh);
if (every) keepFresh(every);
