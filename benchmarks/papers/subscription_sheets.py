"""The results of the paper's runs of subscriptions, as tables."""

from typing import Any

from benchmarks.tables import Sheet


def sheets(report: dict[str, Any]) -> list[Sheet]:
    return [_times(report), _messages(report), _memory(report)]


def _times(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Processor seconds on the paper's stream",
        ("run", "planted", "found", "add", "make ready", "match", "list: plan", "list: match",
         "match, times faster", "all, times faster", "fat clients"),
        tuple(
            (
                run["kind"],
                f"{run['ours']['planted']:,}",
                f"{run['ours']['matches']:,}",
                *(f"{run['ours'][f'{part}_seconds']:.2f}" for part in ("add", "ready", "match")),
                f"{run['queries']['scaled_planning_seconds']:,.1f}",
                f"{matching_seconds(run):,.1f}",
                f"{run['times_faster']:,.0f}",
                f"{run['times_faster_with_adding']:,.0f}",
                f"{run['fat_client']['client_seconds']:.2f}",
            )
            for run in report["runs"]
            if "queries" in run
        ),
    )  # fmt: skip


def matching_seconds(run: dict[str, Any]) -> float:
    queries = run["queries"]
    return float(queries["scaled_seconds"] - queries["scaled_planning_seconds"])


def _messages(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Messages, subscriptions / fat client",
        ("run", "stream", "matches", "between parts", "to clients", "to clients a match"),
        tuple(
            (
                run["kind"],
                run["stream"],
                f"{run['ours']['matches']:,}",
                *(
                    " / ".join(f"{run[way][name]:,}" for way in ("ours", "fat_client"))
                    for name in ("messages_between_parts", "messages_to_clients")
                ),
                " / ".join(
                    f"{run[way]['messages_to_clients'] / run['ours']['matches']:.1f}" for way in ("ours", "fat_client")
                ),
            )
            for run in report["runs"]
        ),
    )


def _memory(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Bytes a subscription, subscriptions / fat client",
        ("run", "stream", "server", "server, waiting events", "all clients, waiting events"),
        tuple(
            (
                run["kind"],
                run["stream"],
                " / ".join(f"{run[way]['server_bytes_each']:,.0f}" for way in ("ours", "fat_client")),
                f"{run['ours']['state_bytes'] / report['subscriptions']:,.0f} / 0",
                f"0 / {run['fat_client']['client_bytes'] / report['subscriptions']:,.0f}",
            )
            for run in report["runs"]
        ),
    )
