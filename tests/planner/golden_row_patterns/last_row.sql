MATCH_RECOGNIZE (
  ORDER BY volume
  MEASURES A.symbol || 'x' AS s
  PATTERN (A+ $)
  DEFINE A AS A.symbol || 'y' > FIRST(A.symbol) || 'x'
)
