MATCH_RECOGNIZE (
  PARTITION BY upper(symbol) AS sym ORDER BY at, volume DESC
  MEASURES NEXT(LAST(B.price), 2) AS later, MATCH_NUMBER() AS n
  ALL ROWS PER MATCH
  AFTER MATCH SKIP TO LAST B
  PATTERN (^ A {- B{1,2} -} C? | PERMUTE(A, C))
  DEFINE B AS B.price > 2 * A.price AND volume > 1
)
