// Elements made of names and text. Text is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** An HTML element: el("p", { class: "quiet", onclick: f }, "text", otherElement). */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/** An SVG element. */
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/** Set the text of an element unless it has this text already, so that screen readers read only changes. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

let pressed = null;
let isRefused = false; // whether a `replace` was refused that nobody has made up for
addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
addEventListener("click", () => { pressed = null; }, true); // before the handlers of the element
for (const end of ["pointerup", "pointercancel"]) addEventListener(end, () => setTimeout(() => { pressed = null; }), true);

/** Whether the reader is about to click within `node`, or selects text in it. */
function isInUse(node) {
  const selection = getSelection();
  return node.contains(pressed) || (!selection.isCollapsed && node.contains(selection.anchorNode));
}

/** Replace the children of `node`, and return true, unless the reader uses it. The focus moves to the new child with the
    same `data-key`. */
export const replace = (node, ...children) => change(node, () => node.replaceChildren(...children));

/** Do as `replace`, but keep the elements that are as before, and change texts in place: the focus stays, and a screen
    reader reads only what is new. The children are elements without listeners. */
export const revise = (node, ...children) => change(node, () => merge(node, children));

function merge(node, children) {
  const before = [...node.childNodes];
  children.forEach((child, number) => {
    const old = before[number];
    if (old === undefined) node.append(child);
    else if (!isLike(old, child)) old.replaceWith(child);
    else if (old.nodeType === Node.ELEMENT_NODE) merge(old, [...child.childNodes]);
    else if (old.data !== child.data) old.data = child.data;
  });
  before.slice(children.length).forEach((old) => old.remove());
}

/** Whether two nodes are texts, or elements with the same name and attributes. */
const isLike = (one, other) => one.nodeType === other.nodeType
  && (one.nodeType !== Node.ELEMENT_NODE || one.cloneNode().isEqualNode(other.cloneNode()));

function change(node, work) {
  if (isInUse(node)) {
    isRefused = true;
    return false;
  }
  const key = node.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  work();
  if (key !== undefined) node.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
  return true;
}

/** Call `draw` when the reader has stopped to use what a `replace` was to change. Return a function that ends this. */
export function onceFree(draw) {
  const look = () => setTimeout(() => {
    if (!isRefused || pressed !== null || !getSelection().isCollapsed) return;
    isRefused = false;
    draw();
  });
  document.addEventListener("selectionchange", look);
  addEventListener("pointerup", look, true);
  return () => {
    document.removeEventListener("selectionchange", look);
    removeEventListener("pointerup", look, true);
  };
}

/** A section with a heading; `add` puts it into `main`. */
export function section(id, title) {
  const body = el("div");
  const node = el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), body);
  return { node, body };
}

/** A table whose first column names its rows: its node, and `update` with new rows. It scrolls by itself if it is wide. */
export function makeTable(label, heads) {
  const body = el("tbody");
  const head = el("tr", {}, heads.map((text) => el("th", { scope: "col" }, text)));
  const node = el("div", { class: "wide", role: "group", "aria-label": label, tabindex: "0" },
    el("table", {}, el("thead", {}, head), body));
  return { node, update: (rows) => replace(body, ...rows) };
}

/** A row of a table. The first cell is its heading. */
export function row(cells, attributes = {}) {
  const [first, ...others] = cells;
  return el("tr", attributes, el("th", { scope: "row" }, first), others.map((cell) => (cell instanceof Element && cell.tagName === "TD" ? cell : el("td", {}, cell))));
}
