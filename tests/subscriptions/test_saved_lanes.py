"""The state of a lane of subscriptions is saved and restored."""

import pytest

from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.operators.subscriptions.subscription_loader import clear_set_cache
from support.saved_lanes import REST, halfway, matcher, went_on


def test_a_lane_goes_on_from_a_saved_state(tmp_path):
    clear_set_cache()
    lane = halfway(tmp_path / "first")
    state, expected = lane.save(), went_on(lane, REST)
    restored = matcher(tmp_path / "second")
    restored.restore(state)
    assert went_on(restored, REST) == expected
    names = {match.split()[0] for match in expected}
    assert {"left", "quiet", "nobody", "same", "later"} <= names
    assert "gone" not in names


def test_a_state_of_another_format_is_refused(tmp_path):
    clear_set_cache()
    lane = matcher(tmp_path)
    header, arrays, blobs = unpack_state(lane.save())
    with pytest.raises(StateError, match=r"format 9(.|\n)*hint"):
        lane.restore(pack_state(header | {"lane_format": 9}, arrays, blobs))
