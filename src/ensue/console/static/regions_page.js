// The page of regions: importing some from a file or a text.

import { post } from "./api.js";
import { make, one } from "./elements.js";
import { tellProblem } from "./page.js";

const form = one("#import-form");
const says = one("#import-says");

async function content() {
  const [file] = one("#import-file").files;
  return file ? file.text() : one("#import-text").value;
}

form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  let collection;
  try {
    collection = JSON.parse(await content());
  } catch {
    says.replaceChildren(
      make(
        "p",
        { class: "wrong-value" },
        "This is not JSON. Use a GeoJSON FeatureCollection whose features have a property “name”.",
      ),
    );
    return;
  }
  try {
    const found = await post("/regions/import", collection);
    const { added, refused } = found;
    if (!refused.length) {
      location.reload();
      return;
    }
    says.replaceChildren(
      make("p", {}, `${added.length} added, ${refused.length} refused:`),
      make("ul", {}, ...refused.map((one) => make("li", {}, `${one.name}: ${one.detail}`))),
    );
  } catch (problem) {
    tellProblem(problem);
  }
});
