"""All brokers that the service talks to, on this machine, until Ctrl-C.

`python -m brokers [MQTT NATS KAFKA]`: the ports, or the usual ones.
"""

import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from brokers import kafka, mosquitto, nats
from ensue.errors import RunnerError

_PORTS = (1883, 4222, 9092)


def main(arguments: Sequence[str]) -> int:
    """Runs those that can run here, and says where they are."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # A job in the background of a script inherits a SIGINT that is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        on_mqtt, on_nats, on_kafka = [int(port) for port in arguments] or _PORTS
        brokers = (
            ("mqtt", mosquitto.missing(), mosquitto.Broker(port=on_mqtt)),
            ("nats", nats.missing(), nats.Broker(port=on_nats)),
            ("kafka", kafka.missing(), kafka.Broker(port=on_kafka)),
        )
        with suppress(KeyboardInterrupt), ExitStack() as running:
            for scheme, missing, broker in brokers:
                if missing is None:
                    running.enter_context(broker)
                    _say(f"{scheme}://{broker.address}")
                else:
                    _say(f"no {scheme}: {missing}")
            _say("until Ctrl-C")
            threading.Event().wait()
    except (RunnerError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
