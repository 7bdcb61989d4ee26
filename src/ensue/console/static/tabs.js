// Tabs: arrow keys go from one to the next, as the pattern for them says.

import { all } from "./elements.js";

export class Tabs {
  constructor(list, { changed = () => {} } = {}) {
    this._tabs = all('[role="tab"]', list);
    this._changed = changed;
    for (const tab of this._tabs) {
      tab.addEventListener("click", () => this.show(tab.id));
      tab.addEventListener("keydown", (event) => this._key(event, tab));
    }
  }

  show(id) {
    for (const tab of this._tabs) {
      const chosen = tab.id === id;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = !chosen;
    }
    this._changed(id);
  }

  _key(event, tab) {
    const at = this._tabs.indexOf(tab);
    const last = this._tabs.length - 1;
    const next = {
      ArrowRight: at === last ? 0 : at + 1,
      ArrowLeft: at === 0 ? last : at - 1,
      Home: 0,
      End: last,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    this.show(this._tabs[next].id);
    this._tabs[next].focus();
  }
}
