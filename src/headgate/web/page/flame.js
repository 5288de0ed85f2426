// A flame graph: callers above what they called, as wide as their share of the samples. Arrow keys move within it.

import { el, replace, say, svg } from "./dom.js";
import * as format from "./format.js";
import { cut } from "./text.js";

const LINE = 22;
/** The least width in pixels of a frame that is drawn, and of one that has a name. */
const [LEAST, NAMED] = [2, 34];
const HELP = "Arrow keys move between frames. Enter or a click enlarges a frame, Escape shows all.";

export function makeFlame(node) {
  const [picture, words] = [el("div", { class: "wide flame" }), el("p", { class: "quiet", id: "flame-words" }, HELP)];
  node.append(picture, words, legend());
  let [root, zoomed, current] = [null, "", ""];
  addEventListener("resize", draw);
  picture.addEventListener("focusin", (event) => { choose(event.target.dataset.key); });

  /** Make a frame the one that the tabulator key reaches, and tell of it. */
  function choose(key) {
    current = key;
    for (const each of picture.querySelectorAll("[data-key]")) each.setAttribute("tabindex", each.dataset.key === key ? 0 : -1);
    say(words, `${spoken(at(root, key), root)} · ${HELP}`);
  }

  function zoom(key) {
    [zoomed, current] = [key, key];
    draw();
    frame(key)?.focus({ preventScroll: true });
  }

  const frame = (key) => picture.querySelector(`[data-key="${CSS.escape(key)}"]`);

  function onkeydown(event) {
    const next = { ArrowDown: `${current}/0`, ArrowUp: above(current), ArrowLeft: beside(current, -1), ArrowRight: beside(current, 1) }[event.key];
    if (next !== undefined) frame(next)?.focus();
    else if (event.key === "Enter" || event.key === " ") zoom(current);
    else if (event.key === "Escape") zoom("");
    else return;
    event.preventDefault();
  }

  function draw() {
    if (root === null) return;
    const width = picture.clientWidth || 600;
    const frames = [...callers(zoomed), ...within(at(root, zoomed), zoomed, 0, width)];
    const shown = frames.some((each) => each.key === current) ? current : zoomed;
    const height = LINE * (1 + Math.max(...frames.map((each) => depth(each.key)))) + 2;
    replace(picture, svg("svg", { width, height, role: "tree", "aria-label": `Flame graph of ${root.name}`, "aria-describedby": "flame-words", onkeydown },
      svg("defs", {}, svg("pattern", { id: "off-cpu", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { width: 6, height: 6, class: "off" }), svg("rect", { width: 2, height: 6, class: "stripe" }))),
      frames.map((each) => drawFrame(each, root, width, each.key === shown, zoom))));

    function callers(key) {
      const parts = key.split("/").slice(1);
      return parts.map((_, index) => ["", ...parts.slice(0, index)].join("/"))
        .map((caller) => ({ key: caller, node: at(root, caller), x: 0, room: width }));
    }
  }

  return {
    show(tree) {
      [root, zoomed, current] = [tree, "", ""];
      say(words, HELP);
      draw();
    },
    close() { removeEventListener("resize", draw); },
  };
}

// A frame's key is its path: "" is the root, "/0/2" the third child of the root's first one.

const at = (root, key) => key.split("/").slice(1).reduce((node, number) => node.children[number], root);
const depth = (key) => key.split("/").length - 1;
const above = (key) => (key === "" ? undefined : key.slice(0, key.lastIndexOf("/")));
const beside = (key, step) => (key === "" ? undefined : `${above(key)}/${Number(key.slice(key.lastIndexOf("/") + 1)) + step}`);

/** A frame and all that it called, with their places. */
function within(node, key, x, room) {
  let left = x;
  const called = node.children.flatMap((child, index) => {
    const width = (room * child.value) / node.value;
    left += width;
    return width < LEAST ? [] : within(child, `${key}/${index}`, left - width, width);
  });
  return [{ key, node, x, room }, ...called];
}

function drawFrame({ key, node, x, room }, root, width, isReached, zoom) {
  const [y, on] = [LINE * depth(key) + 1, (room * node.on) / (node.value || 1)];
  const name = room < NAMED ? "" : cut(node.name, Math.min(room, width) - 10);
  return svg("g", { class: "frame", role: "treeitem", "aria-level": depth(key) + 1, "aria-label": spoken(node, root), "data-key": key,
    tabindex: isReached ? 0 : -1, onclick: () => zoom(key) },
  svg("title", {}, spoken(node, root)),
  svg("rect", { class: "on", x, y, width: on, height: LINE - 2 }),
  svg("rect", { x: x + on, y, width: room - on, height: LINE - 2, fill: "url(#off-cpu)" }),
  svg("rect", { class: "outline", x, y, width: room, height: LINE - 2 }),
  svg("text", { x: x + 5, y: y + 14 }, name));
}

/** A frame in words: "price (prices.py:12): 70 % of the samples, 2 % of them on the processor". */
const spoken = (node, root) => `${node.name}: ${format.percent(node.value / (root.value || 1))} of the samples, `
  + `${format.percent(node.on / (node.value || 1))} of them on the processor`;

function legend() {
  return el("ul", { class: "legend", "aria-label": "Patterns" }, el("li", { class: "on-cpu" }, "plain: on the processor"),
    el("li", { class: "off-cpu" }, "striped: waits, or has no processor"));
}
