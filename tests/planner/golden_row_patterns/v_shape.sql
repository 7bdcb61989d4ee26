MATCH_RECOGNIZE (
  PARTITION BY symbol ORDER BY at
  MEASURES FIRST(price) AS top, LAST(DOWN.price) AS bottom
  PATTERN (START DOWN+ UP+)
  DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price)
)
