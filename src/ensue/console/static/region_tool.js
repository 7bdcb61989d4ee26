// The panel of regions: the list, drawing or typing one, importing some.

import { get, post, put, remove } from "./api.js";
import { announce, icon, make, one } from "./elements.js";
import { Drawing } from "./map/drawing.js";
import { layerOf } from "./map/regions.js";
import { sure, tell, tellProblem } from "./page.js";

const HELP = {
  polygon:
    "Click corners on the map. Enter or a click on the first corner finishes, Backspace removes the last corner, Escape cancels. With the keyboard: arrows move the map, space sets a corner at the cross.",
  circle:
    "Click the centre, then a place on the border. With the keyboard: arrows move the map, space sets the centre and then the border at the cross.",
  typed: "Corners as “x y”, one per line, or WKT, or CIRCLE (x y, radius).",
  edit: "Drag corners, or the small handles between them to add one. With the keyboard: Tab to a corner, arrows move it, Delete removes it.",
};

export class RegionTool {
  constructor(element, page) {
    this._page = page;
    this.regions = [];
    this.busy = false;
    this._list = one("#region-list", element);
    this._form = one("#region-form", element);
    this._name = one("#region-name", element);
    this._text = one("#region-text", element);
    this._help = one("#region-help", element);
    this._says = one("#region-says", element);
    this._editing = null; // the name of the region that is changed
    this._fixed = null; // a shape that can be typed, though not drawn
    this.drawing = new Drawing(page.map, (text, how) => this._drawn(text, how));
    this._mayChange = "mayChange" in document.body.dataset;
    one("#draw-polygon", element)?.addEventListener("click", () => this._draw("polygon"));
    one("#draw-circle", element)?.addEventListener("click", () => this._draw("circle"));
    one("#type-region", element)?.addEventListener("click", () => this._type());
    one("#region-undo", element).addEventListener("click", () => this.drawing.undo());
    one("#region-cancel", element).addEventListener("click", () => this._close());
    one("#region-finish", element).addEventListener("click", () => this.drawing.finish());
    this._text.addEventListener("input", () => this._typed());
    this._form.addEventListener("submit", (event) => this._save(event));
  }

  async load() {
    const found = await get("/regions");
    this.regions = found.items;
    this._write();
    this._page.showRegions();
  }

  // What the address of the page asks for: ?draw=polygon, ?edit=Depot, ?region=Depot.
  begin(asked) {
    const named = (name) => this.regions.find((region) => region.name === name);
    if (asked.get("draw") && this._mayChange) {
      this._page.tabs.show("regions-tab");
      if (asked.get("draw") === "typed") this._type();
      else this._draw(asked.get("draw") === "circle" ? "circle" : "polygon");
    } else if (named(asked.get("edit")) && this._mayChange) {
      this._page.tabs.show("regions-tab");
      this._edit(named(asked.get("edit")));
    } else if (named(asked.get("region"))) {
      this._page.tabs.show("regions-tab");
      this._look(named(asked.get("region")));
    }
  }

  _write() {
    const fixed = (region) => region.shared || !this._mayChange;
    this._list.replaceChildren(
      ...this.regions.map((region) =>
        make(
          "li",
          {},
          make(
            "button",
            {
              type: "button",
              class: "name",
              title: "Show on the map",
              onclick: () => this._look(region),
            },
            icon(/^\s*circle/i.test(region.text) ? "circle" : "polygon"),
            make("span", {}, region.name),
          ),
          !this._mayChange
            ? null
            : make(
                "a",
                {
                  class: "plain",
                  href: `/subscriptions/new?region=${encodeURIComponent(region.name)}`,
                  title: "New subscription",
                  "aria-label": `New subscription with ${region.name}`,
                },
                icon("plus"),
              ),
          fixed(region)
            ? null
            : make(
                "button",
                {
                  type: "button",
                  class: "plain",
                  title: "Edit",
                  "aria-label": `Edit ${region.name}`,
                  onclick: () => this._edit(region),
                },
                icon("pen"),
              ),
          fixed(region)
            ? null
            : make(
                "button",
                {
                  type: "button",
                  class: "plain",
                  title: "Remove",
                  "aria-label": `Remove ${region.name}`,
                  onclick: () => this._remove(region),
                },
                icon("bin"),
              ),
        ),
      ),
    );
    one("#region-empty").hidden = this.regions.length > 0;
  }

  _open(help, editing = null) {
    this._page.stopReplay();
    this.busy = true;
    this._editing = editing;
    this._fixed?.remove();
    this._fixed = null;
    this._form.hidden = false;
    one("#region-list-part").hidden = true;
    this._help.textContent = HELP[help];
    this._says.textContent = "";
    this._name.value = editing ?? "";
    this._name.readOnly = editing !== null;
    one("h2", this._form).textContent = editing ? `Edit ${editing}` : "New region";
    this._buttons();
  }

  _close() {
    this.drawing.stop();
    this._fixed?.remove();
    this.busy = false;
    this._form.hidden = true;
    one("#region-list-part").hidden = false;
  }

  _draw(kind) {
    this._open(kind);
    this._text.value = "";
    this.drawing.start(kind);
    this._buttons();
  }

  _type() {
    this._open("typed");
    this._text.value = "";
    this.drawing.stop();
    this._buttons();
    this._text.focus();
  }

  _edit(region) {
    this._open("edit", region.name);
    this._text.value = region.text;
    this._take(region.text);
    this._look(region);
    this._buttons();
    this._text.focus();
  }

  _drawn(text, { cancelled = false, finished = false } = {}) {
    if (cancelled) {
      this._close();
      announce("Drawing cancelled");
      return;
    }
    this._text.value = text ?? "";
    if (finished && text) {
      this._help.textContent = HELP.edit;
      if (!this._name.value) this._name.focus();
    }
    this._buttons();
  }

  _typed() {
    const taken = this._take(this._text.value);
    this._says.textContent = taken || !this._text.value.trim() ? "" : "This is not a region yet.";
    this._buttons();
  }

  _take(text) {
    this._fixed?.remove();
    this._fixed = null;
    const taken = this.drawing.take(text);
    if (taken === "fixed") {
      this.drawing.stop();
      this._fixed = layerOf(text, { weight: 2 })?.addTo(this._page.map);
    } else if (!taken) {
      this.drawing.stop();
    }
    return Boolean(taken);
  }

  _buttons() {
    one("#region-undo").disabled = !this.drawing.canUndo();
    one("#region-finish").hidden = !(this.drawing.open && this.drawing.kind === "polygon");
    one("#region-finish").disabled = (this.drawing.corners?.length ?? 0) < 3;
  }

  async _save(event) {
    event.preventDefault();
    this.drawing.finish();
    const text = this.drawing.text() ?? this._text.value.trim();
    const name = this._name.value.trim();
    try {
      if (this._editing) await put(`/regions/${encodeURIComponent(this._editing)}`, { text });
      else await post("/regions", { name, text });
      this._close();
      tell(`${name} is saved.`);
      await this.load();
      one(`#region-list [href$="region=${CSS.escape(encodeURIComponent(name))}"]`)?.focus();
    } catch (problem) {
      this._says.textContent = [problem.message, problem.hint].filter(Boolean).join(" ");
    }
  }

  async _remove(region) {
    if (
      !(await sure(
        `Remove the region ${region.name}? Subscriptions that use it keep their copy.`,
        "Remove",
      ))
    )
      return;
    try {
      await remove(`/regions/${encodeURIComponent(region.name)}`);
      await this.load();
    } catch (problem) {
      tellProblem(problem);
    }
  }

  _look(region) {
    const bounds = this._page.regions.boundsOf(region.text);
    if (bounds) this._page.map.fitBounds(bounds.pad(0.6), { animate: false });
  }
}
