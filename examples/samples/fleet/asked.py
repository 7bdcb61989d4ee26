"""What the subscriptions of a day of trucks ask for, in seconds and metres."""

MINUTE, HOUR, DAY = 60, 3_600, 86_400

MARGIN = 150
REACH = 20_000
DWELL = 2 * MINUTE
WITHIN = 30 * MINUTE
SILENT = 20 * MINUTE
RESTED = 45 * MINUTE
CLOSE, WIDER = 1_000, 500  # metres from the leader of a convoy
STRAYED = 3 * MINUTE
ANSWERED = 30
