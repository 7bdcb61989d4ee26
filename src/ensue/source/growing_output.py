"""Output that a kernel makes larger itself, while it builds the matches of one event."""

from ensue.source.prelude import by_name

# row by row: a slice costs seconds of compilation
GROW = by_name("""
@njit
def grown(table):
    bigger = np.empty((table.shape[0] * 2, table.shape[1]), table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            bigger[row, column] = table[row, column]
    return bigger
""")
