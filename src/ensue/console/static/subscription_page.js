// The page of a subscription: targets, newest notifications, and why not.

import { get, post } from "./api.js";
import { given, icon, make, one } from "./elements.js";
import { about } from "./feed.js";
import { refresh, tell, tellProblem } from "./page.js";
import { WhyNot } from "./why_not.js";
import { Notifications } from "./notifications.js";
import { ago } from "./times.js";

const SHOWN = 12;

const FIELDS = {
  webhook: [["url", "Address", "url", "https://example.com/hook", true]],
  kafka: [
    ["servers", "Servers", "text", "host:9092", true],
    ["topic", "Topic", "text", "alerts", true],
    ["username", "User name", "text", "", false],
    ["password", "Password", "password", "", false],
  ],
  mqtt: [
    ["server", "Server", "text", "host:1883", true],
    ["topic", "Topic", "text", "ensue/{user}/{subscription}", true],
    ["username", "User name", "text", "", false],
    ["password", "Password", "password", "", false],
  ],
  nats: [
    ["servers", "Servers", "text", "host:4222", true],
    ["subject", "Subject", "text", "ensue.{user}.{subscription}", true],
    ["username", "User name", "text", "", false],
    ["password", "Password", "password", "", false],
  ],
};

class Targets {
  constructor(id) {
    this._id = id;
    this._form = one("#target-form");
    this._kind = one("#target-kind");
    this._fields = one("#target-fields");
    this._kind.addEventListener("change", () => this._ask());
    this._form.addEventListener("submit", (event) => this._add(event));
    document.addEventListener("click", (event) => {
      const rotate = event.target.closest("[data-rotate]");
      if (rotate) this._rotate(rotate.dataset.rotate);
      const dead = event.target.closest("[data-dead]");
      if (dead) this._dead(dead);
    });
    this._ask();
  }

  _ask() {
    this._fields.replaceChildren(
      ...FIELDS[this._kind.value].map(([name, title, type, hint, required]) =>
        make(
          "div",
          { class: "field" },
          make(
            "label",
            { for: `target-${name}` },
            title,
            required ? make("span", { class: "required", "aria-hidden": "true" }, " *") : null,
          ),
          make("input", {
            id: `target-${name}`,
            name,
            type,
            placeholder: hint,
            required,
            autocomplete: "off",
          }),
        ),
      ),
    );
  }

  async _add(event) {
    event.preventDefault();
    const config = Object.fromEntries(
      [...new FormData(this._form)].filter(([name, value]) => name !== "kind" && value),
    );
    try {
      const made = await post(`/subscriptions/${this._id}/targets`, {
        kind: this._kind.value,
        config,
      });
      this._form.reset();
      this._ask();
      one("#target-more").open = false;
      if (made.secret)
        this._secret(
          "The secret of this webhook, shown only once. The receiver needs it to verify signatures.",
          made.secret,
        );
      else tell("The target was added. It receives all new notifications.");
      await refresh("#targets");
    } catch (problem) {
      one("#target-says").textContent = [problem.message, problem.hint].filter(Boolean).join(" ");
    }
  }

  async _rotate(id) {
    try {
      const made = await post(`/targets/${id}/rotate`);
      this._secret(
        "The new secret, shown only once. For a while requests are also signed with the old one.",
        made.secret,
      );
      await refresh("#targets");
    } catch (problem) {
      tellProblem(problem);
    }
  }

  _secret(words, secret) {
    one("#target-secret").replaceChildren(
      make(
        "div",
        { class: "secret", role: "status" },
        icon("key"),
        make("div", {}, make("p", {}, words), make("code", {}, secret)),
        make(
          "button",
          {
            type: "button",
            class: "button small",
            onclick: () => one("#target-secret").replaceChildren(),
          },
          "I have kept it",
        ),
      ),
    );
  }

  async _dead(button) {
    const list = document.getElementById(`dead-${button.dataset.dead}`);
    try {
      const found = await get(`/targets/${button.dataset.dead}/dead`);
      const rows = found.items.map((letter) =>
        make(
          "tr",
          {},
          make("td", { class: "number" }, String(letter.number)),
          make("td", {}, letter.kind),
          make("td", { class: "number" }, String(letter.attempts)),
          make("td", {}, letter.error),
          make("td", {}, ago(letter.at)),
        ),
      );
      list.replaceChildren(
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
                ...["Number", "Kind", "Attempts", "Last error", "When"].map((name) =>
                  make("th", {}, name),
                ),
              ),
            ),
            make("tbody", {}, ...rows),
          ),
        ),
      );
    } catch (problem) {
      tellProblem(problem);
    }
  }
}

function notes(subscription, stream) {
  const list = one("#notes");
  const entry = (note) =>
    make(
      "tr",
      {},
      make(
        "td",
        {},
        make("span", { class: `kind ${note.kind}` }, icon(note.kind)),
        ` ${note.kind}`,
      ),
      make("td", { class: "number", "data-name": "Received" }, note.at ? ago(note.at) : "now"),
      make("td", { "data-name": "Object" }, about(note, stream)),
      make(
        "td",
        { class: "actions" },
        note.kind === "match"
          ? make(
              "a",
              { class: "button small", href: `/?note=${note.number}` },
              icon("play"),
              "Replay",
            )
          : "",
      ),
    );
  const feed = new Notifications({
    subscription,
    came: (some) => {
      one("#no-notes").hidden = true;
      one("#notes-table").hidden = false;
      for (const note of some) list.prepend(entry(note));
      while (list.childElementCount > SHOWN) list.lastElementChild.remove();
    },
  });
  feed.start(given("recent"));
}

const known = given("subscription");
const stream = given("stream");
if (one("#target-form")) new Targets(known.id);
notes(known.id, stream);
const why = new WhyNot(one("#why-not"), known.id, stream);
one("#ask-why-not")?.addEventListener("click", () => why.ask());
if (new URLSearchParams(location.search).has("made")) tell("Saved. It receives all new events.");
