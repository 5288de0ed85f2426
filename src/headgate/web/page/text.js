// Text that must fit into a picture.

const ruler = document.createElement("canvas").getContext("2d");

/** The width of a name in bold, in pixels. */
export function measured(text) {
  ruler.font = "700 13px system-ui, sans-serif";
  return ruler.measureText(text).width;
}

/** The text, or its begin and "…" if it is wider than `room` pixels. */
export function cut(text, room) {
  if (measured(text) <= room) return text;
  let end = text.length;
  while (end > 1 && measured(`${text.slice(0, end)}…`) > room) end -= 1;
  return `${text.slice(0, end)}…`;
}
