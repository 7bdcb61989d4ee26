"""The state of a lane of subscriptions, as earlier releases have written it, is read."""

import json
from pathlib import Path

import pytest
from tests.state import save_subscriptions

from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.workload.subscriptions.catalogue.ready import forget

SAMPLES = sorted((Path(__file__).parents[1] / "state").glob("subscriptions*/*.json"))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_lane_goes_on_from_a_saved_state(tmp_path, path):
    forget()
    saved = json.loads(path.read_text())
    assert save_subscriptions.again(tmp_path, saved) == saved["matches"]
    names = {match.split()[0] for match in saved["matches"]}
    assert {"left", "quiet", "nobody", "same", "later"} <= names
    assert "gone" not in names


def test_a_saved_state_is_what_it_was(tmp_path):
    forget()
    now = save_subscriptions.sample(tmp_path)
    assert now["matches"] == json.loads(SAMPLES[-1].read_text())["matches"]


def test_a_state_of_another_format_is_refused(tmp_path):
    forget()
    lane = save_subscriptions.matcher(tmp_path)
    header, arrays, blobs = unpacked(lane.save())
    with pytest.raises(StateError, match=r"format 9(.|\n)*hint"):
        lane.restore(packed(header | {"lane_format": 9}, arrays, blobs))
