"""Users who give up because the network is slow.

Slow responses to a client, then a low transfer rate, then a cancelled request, within five
minutes. Measurements of three kinds come as three tables with columns of their own; a dict of
tables says which is which. `HAVING` judges the finished match by its aggregates.
"""

from datetime import datetime, timedelta

import pyarrow as pa

import ensue

GIVEN_UP = """
    PATTERN ClientPMs+ A[] -> DataTransPMs+ B[] -> ClientCancel C
    WHERE skip_till_next_match(A[], B[], C) {
        A[i].appId = 'app1' and B[i].endpoint = 'zeus-1' and C.appId = 'app1' }
    WITHIN 5 min
    AFTER MATCH SKIP PAST LAST EVENT
    RETURN percentile(A.responseTime, 90) AS p90, avg(B.inTransferRate) AS rate,
           count(A) AS responses, C.user AS user
    HAVING percentile(A.responseTime, 90) > 100 or avg(B.inTransferRate) < 128
"""

NOON = datetime(2026, 3, 14, 12)


def seconds(*after: int) -> list[datetime]:
    return [NOON + timedelta(seconds=s) for s in after]


def measurements() -> dict[str, pa.Table]:
    return {
        "ClientPMs": pa.table(
            {
                "time": seconds(0, 10, 20, 30, 600, 610),
                "appId": ["app1", "app1", "app2", "app1", "app1", "app1"],
                "responseTime": [90.0, 140.0, 900.0, 180.0, 40.0, 55.0],
            }
        ),
        "DataTransPMs": pa.table(
            {
                "time": seconds(40, 50, 60, 620),
                "endpoint": ["zeus-1", "zeus-2", "zeus-1", "zeus-1"],
                "inTransferRate": [120.0, 900.0, 80.0, 400.0],
            }
        ),
        "ClientCancel": pa.table({"time": seconds(70, 630), "appId": ["app1", "app1"], "user": ["ann", "ben"]}),
    }


def main() -> None:
    for match in ensue.match(measurements(), GIVEN_UP, time="time").to_pylist():
        print(
            f"{match['user']} gave up at {match['end']:%H:%M:%S}: {match['responses']} responses, "
            f"90 % of them within {match['p90']:.0f} ms, {match['rate']:.0f} KB/s"
        )


if __name__ == "__main__":
    main()
