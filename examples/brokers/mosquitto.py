"""A real MQTT broker on this machine: mosquitto.

`python -m brokers.mosquitto` runs one until Ctrl-C.

    with Broker() as broker:
        client.connect("127.0.0.1", broker.port)
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers.processes import ServerProcess, program, run_until_interrupted, said
from ensue.errors import RunnerError

# MQTT 5, clean start, no keep-alive, no properties, no client id.
_CONNECT = bytes.fromhex("100d00044d5154540502000000 0000")
_CONNACK = 0x20


class Broker(ServerProcess):
    """One mosquitto; what waits for absent clients survives a stop and a start."""

    name = "mosquitto"

    def __init__(self, *, port: int = 0, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(port=port)
        self._settings = dict(settings or {})

    def command(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        settings = {
            "listener": f"{self.port} 127.0.0.1",
            "allow_anonymous": "true",
            "persistence": "true",
            "persistence_location": f"{data}/",
            "max_queued_messages": "0",  # without bound: nothing is dropped for a slow client
            "user": "root",  # it would give up its rights to a user who cannot write here
            **self._settings,
        }
        file = folder / "mosquitto.conf"
        file.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        return [program("mosquitto", "mosquitto"), "-c", str(file)]

    def answers(self) -> bool:
        return said(self.port, _CONNECT, 1)[:1] == bytes([_CONNACK])


def missing() -> str | None:
    """Why no broker can run here, or None."""
    try:
        program("mosquitto", "mosquitto")
    except RunnerError as error:
        return str(error)
    return None


def main(arguments: Sequence[str]) -> int:
    """Runs one until Ctrl-C; the one argument is its port."""
    return run_until_interrupted("mosquitto (MQTT)", lambda port: Broker(port=port), arguments, 1883)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
