"""Ten thousand objects are drawn in less than 20 milliseconds a frame."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from console.browsing import Browsing
from console.running import Console, plane

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "console.json"
OBJECTS, MOST = 10_000, 20.0
ROUNDS, FRAMES = 8, 40

# What is asked for afterwards, a pixel, makes the browser finish the picture within the measure.
_MEASURE = """
async ([objects, rounds, frames]) => {
  const { ObjectsLayer } = await import("/static/map/objects.js");
  const { map } = window.ensueMap;
  const layer = new ObjectsLayer().addTo(map);
  const bounds = map.getBounds();
  const wide = bounds.getEast() - bounds.getWest();
  const high = bounds.getNorth() - bounds.getSouth();
  let seed = 7;
  const random = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
  const somewhere = () => Array.from({ length: objects }, (_, id) => ({
    id, type: `type ${id % 8}`, x: bounds.getWest() + random() * wide,
    y: bounds.getSouth() + random() * high,
  }));
  layer.take(somewhere());
  const median = (all) => [...all].sort((a, b) => a - b)[Math.floor(all.length / 2)];
  const medians = [];
  let seen = objects;
  for (let round = 0; round < rounds; round += 1) {
    layer.take(somewhere());  // all of them glide while they are drawn
    const times = [];
    for (let frame = 0; frame < frames; frame += 1) {
      await new Promise(requestAnimationFrame);
      const began = performance.now();
      seen = Math.min(seen, layer.draw(began));
      layer._context.getImageData(0, 0, 1, 1);
      times.push(performance.now() - began);
    }
    medians.push(median(times));
  }
  const { width, height } = layer._canvas;
  const picture = layer._context.getImageData(0, 0, width, height).data;
  let painted = 0;
  for (let at = 3; at < picture.length; at += 4) painted += picture[at] > 0;
  layer.remove();
  return { medians, seen, painted, width, height };
}
"""


@pytest.fixture
def console(tmp_path: Path, stops) -> Console:
    found = plane(tmp_path)
    stops.append(found.stop)
    return found


def test_ten_thousand_objects_are_drawn_in_less_than_20_ms(browsing: Browsing, console: Console, bless: bool):
    browsing.expect("willReadFrequently")  # the measure reads, the page does not
    page = browsing.open(console.url)
    expect(page.locator("#connection")).to_have_text("Live")
    found = page.evaluate(_MEASURE, [OBJECTS, ROUNDS, FRAMES])
    assert found["seen"] == OBJECTS
    assert found["painted"] > OBJECTS  # pixels: they are really there
    best = min(found["medians"])  # the round that neighbours disturbed least
    if bless:
        from benchmarks.machine import machine

        figures = {
            "objects": OBJECTS,
            "width": found["width"],
            "height": found["height"],
            "median_ms": round(best, 2),
            "medians_ms": [round(one, 2) for one in found["medians"]],
        }
        written = json.dumps({"machine": machine(), "drawn": figures}, indent=2)
        RESULTS.write_text(written + "\n", encoding="utf-8")
    assert best < MOST, found["medians"]
