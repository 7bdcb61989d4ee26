// The words of OPSL, for colours. What a text means only the service knows.

const WORDS = [
  ["comment", "--[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$)"],
  ["text", "'(?:[^']|'')*'?"],
  ["field", '"[^"\\n]*"?'],
  ["variable", "\\$[A-Za-z_][\\w-]*;?"],
  ["type", "\\b(?:ARITH|STRING|BOOL|TIME)(?=\\s*:)"],
  [
    "word",
    "\\b(?:DIST|SPL|OVLP|IN|WITH|LIKE|TRUE|FALSE|TIMESTAMP|DATE|POLYGON|MULTIPOLYGON|CIRCLE)\\b",
  ],
  ["number", "[-+]?\\b\\d+(?:\\.\\d+)?(?:[eE][-+]?\\d+)?\\b"],
  ["operator", "=\\||\\|=|&&|\\|\\||[!@|](?=\\s*\\()"],
];
const PATTERN = new RegExp(WORDS.map(([, pattern]) => `(${pattern})`).join("|"), "gi");

// Splits a text into pieces [kind, text]; the kind of uncoloured ones is null.
export function words(text) {
  const found = [];
  let at = 0;
  for (const match of text.matchAll(PATTERN)) {
    if (match.index > at) found.push([null, text.slice(at, match.index)]);
    const kind = match.slice(1).findIndex((group) => group !== undefined);
    found.push([WORDS[kind][0], match[0]]);
    at = match.index + match[0].length;
  }
  if (at < text.length) found.push([null, text.slice(at)]);
  return found;
}

// Positions of the service count characters, those of the browser UTF-16 units.
export function unitsOf(text, characters) {
  let units = 0;
  for (const character of text) {
    if (characters <= 0) break;
    characters -= 1;
    units += character.length;
  }
  return units;
}

// Coloured elements of a text, with marked parts [{start, end, class}] in units of the browser.
export function coloured(text, marks = []) {
  const element = document.createDocumentFragment();
  const cuts = marks.flatMap(({ start, end }) => [start, end]);
  let at = 0;
  for (const [kind, piece] of words(text)) {
    const inside = cuts.filter((cut) => cut > at && cut < at + piece.length).sort((a, b) => a - b);
    let from = at;
    for (const to of [...inside, at + piece.length]) {
      if (to === from) continue;
      const classes = marks
        .filter(({ start, end }) => start <= from && to <= end)
        .map((mark) => mark.class);
      if (kind) classes.push(`opsl-${kind}`);
      const part = document.createElement("span");
      part.textContent = text.slice(from, to);
      if (classes.length) part.className = classes.join(" ");
      element.append(part);
      from = to;
    }
    at += piece.length;
  }
  return element;
}
