// The form of a template: a field for each parameter, as the service describes it.

import { make } from "./elements.js";

const UNITS = ["seconds", "minutes", "hours", "days"];
const SIZES = { seconds: 1, minutes: 60, hours: 3600, days: 86400 };

// 120 or "2 minutes" as [2, "minutes"].
function amount(value) {
  if (value === null || value === undefined || value === "") return ["", "minutes"];
  const found = /^\s*([\d.]+)\s*(\w+)\s*$/.exec(String(value));
  const unit = found && UNITS.find((name) => name.startsWith(found[2].replace(/s$/, "")));
  if (unit) return [Number(found[1]), unit];
  const seconds = Number(value);
  if (!seconds) return [0, "minutes"];
  const best = [...UNITS].reverse().find((name) => seconds % SIZES[name] === 0) ?? "seconds";
  return [seconds / SIZES[best], best];
}

export class TemplateForm {
  constructor(element, stream, regions, { changed }) {
    this._element = element;
    this._stream = stream;
    this._regions = regions;
    this._changed = changed;
    this._fields = [];
    this._calendar = /^(timestamp|date)/.test(stream.columns[[stream.time].flat()[0]] ?? "");
    this._numberKeys = /^(u?int|float|double|halffloat|decimal)/.test(
      stream.columns[stream.key] ?? "",
    );
  }

  show(template, values = {}) {
    this._fields = template.parameters.map((parameter) =>
      this._field(parameter, values[parameter.name] ?? parameter.default),
    );
    this._element.replaceChildren(...this._fields.map(({ element }) => element));
  }

  values() {
    const found = {};
    for (const { parameter, read } of this._fields) {
      const value = read();
      if (value !== null) found[parameter.name] = value;
    }
    return found;
  }

  // Whether something that must be there is missing; then there is nothing to ask the service.
  missing() {
    return this._fields
      .filter(({ parameter, read }) => parameter.required && read() === null)
      .map(({ parameter }) => parameter.title);
  }

  // Shows an error of the service next to the field that it names.
  wrong(problem) {
    for (const { parameter, input, says } of this._fields) {
      const named =
        problem !== null &&
        (problem.body.parameter === parameter.name ||
          problem.message.includes(`'${parameter.name}'`) ||
          problem.message.startsWith(`${parameter.name}`));
      input.setAttribute("aria-invalid", String(named));
      says.textContent = named ? [problem.message, problem.hint].filter(Boolean).join(" ") : "";
    }
  }

  _field(parameter, value) {
    const id = `parameter-${parameter.name}`;
    const made = this._input(parameter, id, value);
    const says = make("p", { class: "wrong-value", role: "status" });
    const hint = make("p", { class: "hint", id: `${id}-hint` }, parameter.says);
    made.input.setAttribute("aria-describedby", hint.id);
    made.element.addEventListener("input", () => this._changed());
    const star = parameter.required
      ? make("span", { class: "required", "aria-hidden": "true" }, " *")
      : null;
    const element = make(
      "div",
      { class: "field" },
      make("label", { for: id }, parameter.title, star),
      made.element,
      hint,
      says,
    );
    return { parameter, element, says, input: made.input, read: made.read };
  }

  _input(parameter, id, value) {
    if (parameter.kind === "region") return this._region(parameter, id, value);
    if (parameter.kind === "length of time" && this._calendar)
      return this._length(parameter, id, value);
    if (parameter.kind === "object") return this._objects(parameter, id, value);
    const input = make("input", {
      id,
      type: "number",
      step: "any",
      min: parameter.least,
      max: parameter.most,
      required: parameter.required,
      value: value ?? "",
    });
    const element = make(
      "div",
      { class: "with-unit" },
      input,
      make("span", {}, parameter.unit ?? ""),
    );
    return { input, element, read: () => (input.value === "" ? null : input.valueAsNumber) };
  }

  _region(parameter, id, value) {
    const names = this._regions.map(({ name }) => name);
    const odd = value && !names.includes(value) ? [value] : [];
    const input = make(
      "select",
      { id, required: parameter.required },
      make(
        "option",
        { value: "" },
        names.length ? "Choose a region" : "No regions yet: draw one on the map",
      ),
      ...[...names, ...odd].map((name) => make("option", { value: name }, name)),
    );
    input.value = value ?? "";
    return { input, element: input, read: () => input.value || null };
  }

  _length(parameter, id, value) {
    const [number, unit] = amount(value);
    const input = make("input", {
      id,
      type: "number",
      step: "any",
      min: 0,
      required: parameter.required,
      value: number,
    });
    const units = make(
      "select",
      { "aria-label": `Unit of ${parameter.title}` },
      ...UNITS.map((name) => make("option", {}, name)),
    );
    units.value = unit;
    const element = make("div", { class: "with-unit" }, input, units);
    return {
      input,
      element,
      read: () => (input.value === "" ? null : `${input.value} ${units.value}`),
    };
  }

  _objects(parameter, id, value) {
    const text = Array.isArray(value) ? value.join(", ") : (value ?? "");
    const input = make("input", {
      id,
      type: "text",
      required: parameter.required,
      value: text,
      placeholder: parameter.required ? "" : "all",
      autocomplete: "off",
    });
    const read = () => {
      const parts = input.value
        .split(",")
        .map((part) => part.trim())
        .filter(Boolean);
      if (!parts.length) return null;
      const values = parts.map((part) =>
        this._numberKeys && !Number.isNaN(Number(part)) ? Number(part) : part,
      );
      return values.length === 1 ? values[0] : values;
    };
    return { input, element: input, read };
  }
}

export function choices(element, templates, chosen, { changed }) {
  const option = (value, title, says) =>
    make(
      "label",
      { title: says },
      make("input", {
        type: "radio",
        name: "template",
        value,
        checked: value === chosen,
        onchange: () => changed(value),
      }),
      title,
    );
  element.replaceChildren(
    ...templates.map(({ name, title, says }) => option(name, title, says)),
    option("", "Custom query", "Write the query text yourself."),
  );
}
