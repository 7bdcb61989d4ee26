"""A real NATS server with JetStream on this machine.

`python -m brokers.nats` runs one until Ctrl-C.

    with Broker() as broker:
        connection = await nats.connect(f"nats://{broker.address}")
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from brokers.processes import ServerProcess, program, run_until_interrupted, said
from ensue.errors import RunnerError


class Broker(ServerProcess):
    """One nats-server; its streams survive a stop and a start."""

    name = "nats"

    def __init__(self, *, port: int = 0, jetstream: bool = True, settings: Sequence[str] = ()) -> None:
        super().__init__(port=port)
        self._jetstream = jetstream
        self._settings = list(settings)

    def command(self, folder: Path) -> list[str]:
        file = folder / "nats.conf"
        lines = [f'listen: "127.0.0.1:{self.port}"', *self._settings]
        if self._jetstream:
            lines.append(f'jetstream {{ store_dir: "{folder}/data" }}')
        file.write_text("\n".join(lines) + "\n")
        return [program("nats-server", "nats-server"), "-c", str(file)]

    def answers(self) -> bool:
        return said(self.port, b"", 4) == b"INFO"


def missing() -> str | None:
    """Why no server can run here, or None."""
    try:
        program("nats-server", "nats-server")
    except RunnerError as error:
        return str(error)
    return None


def main(arguments: Sequence[str]) -> int:
    """Runs one until Ctrl-C; the one argument is its port."""
    return run_until_interrupted("NATS with JetStream", lambda port: Broker(port=port), arguments, 4222)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
