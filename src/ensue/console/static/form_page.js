// New subscription, or another text for one: a form beside the OPSL that it stands for.

import { get, patch, post } from "./api.js";
import { announce, given, later, one } from "./elements.js";
import { Editor } from "./editor.js";
import { choices, TemplateForm } from "./template_form.js";
import { TrialView } from "./trial.js";
import { sure, tellProblem } from "./page.js";

const PAUSE = 250;

class FormPage {
  constructor() {
    this._stream = given("stream");
    this._known = given("subscription"); // the one that is changed, or nothing
    this._key = [...crypto.getRandomValues(new Uint8Array(16))]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    this._editor = new Editor(one("#text"), {
      regions: () => this._known?.regions ?? {},
      changed: () => this._edited(),
    });
    this._trial = new TrialView(one("#trial"), this._stream, given("background"));
    this._fill = later(PAUSE, () => this._filled());
    this._template = null; // none: the text is the user's own
    one("#open-text").addEventListener("click", () => this._open());
    one("#try").addEventListener("click", () => this._try());
    one("#form").addEventListener("submit", (event) => this._save(event));
    one("#name").addEventListener("input", () => {
      this._named = true;
    });
  }

  async start() {
    this._templates = given("templates");
    this._regions = (await get("/regions")).items;
    this._form = new TemplateForm(one("#parameters"), this._stream, this._regions, {
      changed: () => this._fill(),
    });
    const asked = new URLSearchParams(location.search);
    const first = this._known
      ? (this._known.template ?? "")
      : (asked.get("template") ?? this._templates[0]?.name ?? "");
    choices(one("#templates"), this._templates, first, { changed: (name) => this._choose(name) });
    const region = asked.get("region");
    const values = this._known?.values ?? (region ? this._withRegion(first, region) : {});
    this._named = Boolean(this._known);
    if (this._known && !this._known.template) this._editor.text = this._known.text;
    this._choose(first, values);
  }

  _withRegion(name, region) {
    const template = this._templates.find((one) => one.name === name);
    const parameter = template?.parameters.find(({ kind }) => kind === "region");
    return parameter ? { [parameter.name]: region } : {};
  }

  async _choose(name, values = {}) {
    const template = this._templates.find((one) => one.name === name) ?? null;
    if (!Object.keys(values).length && this._template) values = this._carried(template);
    this._template = template;
    one("#parameters-part").hidden = !template;
    one("#text-from").textContent = template
      ? "This text is generated from the parameters. You can edit it as text."
      : "Your own text, in OPSL. Errors are underlined as you type.";
    one("#open-text").hidden = !template;
    this._editor.readOnly = Boolean(template);
    // A template asks for the quiet time itself.
    one("#quiet-part").hidden = Boolean(
      template?.parameters.some(({ name: parameter }) => parameter === "quiet"),
    );
    if (!template) {
      this._editor.check();
      return;
    }
    one("#template-says").textContent = template.says;
    this._form.show(template, values);
    await this._filled();
  }

  // What the fields of one template hold the next one keeps where it asks for the same.
  _carried(template) {
    const names = new Set(template?.parameters.map(({ name }) => name));
    return Object.fromEntries(
      Object.entries(this._form.values()).filter(([name]) => names.has(name)),
    );
  }

  async _filled() {
    if (!this._template) return;
    const template = this._template;
    const missing = this._form.missing();
    if (missing.length) {
      this._form.wrong(null);
      this._editor.text = "";
      this._say(`Still needed: ${missing.join(", ")}.`);
      return;
    }
    try {
      const filled = await post(`/templates/${template.name}`, { values: this._form.values() });
      if (template !== this._template) return;
      this._form.wrong(null);
      this._say("");
      this._editor.text = filled.text;
      if (!this._named) one("#name").value = filled.title;
    } catch (problem) {
      this._form.wrong(problem);
      this._editor.text = "";
      this._say([problem.message, problem.hint].filter(Boolean).join(" "));
    }
  }

  async _open() {
    this._template = null;
    one("#templates input[value='']").checked = true;
    await this._choose("");
    one("#text").focus();
    announce("You can edit the text now. The form no longer changes it.");
  }

  _edited() {
    one("#trial").replaceChildren();
    one("#trial-part").hidden = true;
  }

  _say(words) {
    one("#form-says").textContent = words;
  }

  _asked() {
    const wanted = this._template
      ? { template: this._template.name, values: this._form.values() }
      : { text: this._editor.text };
    if (this._known && !this._template) wanted.regions = this._known.regions;
    return wanted;
  }

  async _try() {
    const button = one("#try");
    button.disabled = true;
    this._say("Running over stored events…");
    try {
      const since = one("#since").value;
      const trial = await post("/trial", { ...this._asked(), ...(since ? { since } : {}) });
      this._say("");
      one("#trial-part").hidden = false;
      this._trial.show(trial, this._regions);
      announce(`It would have fired ${trial.count} times`);
      one("#trial-part").scrollIntoView({ block: "nearest", behavior: "smooth" });
      one("#trial-part h2").focus({ preventScroll: true });
    } catch (problem) {
      this._refused(problem);
    } finally {
      button.disabled = false;
    }
  }

  async _save(event) {
    event.preventDefault();
    if (this._template && this._form.missing().length) return;
    const quiet = one("#quiet").value;
    const expires = one("#expires").value;
    const wanted = this._asked();
    const name = one("#name").value.trim();
    if (name) wanted.name = name;
    if (quiet && !one("#quiet-part").hidden) wanted.quiet = Number(quiet);
    if (expires) wanted.expires = expires === "never" ? null : Number(expires);
    try {
      if (this._known) {
        const anew = await sure(
          "A changed query restarts the subscription and discards its partial matches.",
          "Save changes",
        );
        if (!anew) return;
        await patch(`/subscriptions/${this._known.id}`, wanted);
        location.assign(`/subscriptions/${this._known.id}`);
      } else {
        const made = await post("/subscriptions", wanted, {
          headers: { "Idempotency-Key": this._key },
        });
        location.assign(`/subscriptions/${made.id}?made=1`);
      }
    } catch (problem) {
      this._refused(problem);
    }
  }

  _refused(problem) {
    if (problem.start !== null && problem.start !== undefined) this._editor.check();
    this._say([problem.message, problem.hint].filter(Boolean).join(" "));
  }
}

new FormPage().start().catch(tellProblem);
