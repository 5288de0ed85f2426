// The graph of the job: chains of operators and the exchanges between them. Only the cause has a colour.

import { el, replace, svg } from "./dom.js";
import * as format from "./format.js";
import { cut, measured } from "./text.js";

const LINE = 20;
const PAD = 10;
const SHARES = [["busy", "busy_ratio"], ["back-pressured", "backpressured_ratio"], ["idle", "idle_ratio"]];
const THROTTLED = ["throttled", "throttled_ratio"];

/** The shares of a vertex's time. Only a source with a throttle can be throttled. */
const sharesOf = (vertex) => (vertex.throttled_ratio > 0 ? [...SHARES, THROTTLED] : SHARES);

export function makeGraph(node, onSelect) {
  const picture = el("div", { class: "wide" });
  node.append(picture, legend());
  let places = null;
  let laidOut = "";
  return {
    update(overview, selected) {
      const width = picture.clientWidth || 800;
      const shape = JSON.stringify([width, overview.vertices.map((each) => each.name), overview.edges.map((each) => each.name)]);
      if (shape !== laidOut) places = fitting(overview, width);
      laidOut = shape;
      replace(picture, draw(overview, places, selected, onSelect));
    },
  };
}

/** From left to right if there is room for it, else from top to bottom. */
function fitting(overview, width) {
  const across = width < 700 ? null : layout(overview, width, "LR");
  return across !== null && across.graph().width <= width ? across : layout(overview, width, "TB");
}

function layout(overview, width, rankdir) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir, ranksep: rankdir === "TB" ? 44 : 110, nodesep: 24, marginx: 4, marginy: 4 });
  graph.setDefaultEdgeLabel(() => ({}));
  const longest = Math.max(...overview.vertices.flatMap((vertex) => vertex.operators.map((operator) => measured(`▶ ${operator.name}`))));
  const nodeWidth = Math.min(360, width - 16, Math.max(250, longest + 70));
  for (const vertex of overview.vertices) {
    graph.setNode(String(vertex.id), { width: nodeWidth, height: 2 * PAD + LINE * (vertex.operators.length + 3) + 14 });
  }
  overview.edges.forEach((edge, index) => graph.setEdge(String(edge.source), String(edge.target), {}, String(index)));
  dagre.layout(graph);
  return graph;
}

function draw(overview, places, selected, onSelect) {
  const { width, height } = places.graph();
  const arrow = (id) => svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 10, markerHeight: 10, markerUnits: "userSpaceOnUse", orient: "auto" },
    svg("path", { d: "M0 0L8 4L0 8z", class: id }));
  const isDown = places.graph().rankdir === "TB";
  const edges = overview.edges.map((edge, index) => drawEdge(edge, places.edge(String(edge.source), String(edge.target), String(index)), isDown));
  const nodes = overview.vertices.map((vertex) => drawVertex(vertex, places.node(String(vertex.id)), overview.now, vertex.id === selected, onSelect));
  return svg("svg", { width, height, role: "group", "aria-label": "The job's graph" },
    svg("defs", {}, arrow("arrow"), arrow("arrow-cause")), edges, nodes);
}

function drawEdge(edge, place, isDown) {
  const [first, ...others] = place.points;
  const path = `M${first.x} ${first.y}${others.map((point) => `L${point.x} ${point.y}`).join("")}`;
  const middle = place.points[Math.floor(place.points.length / 2)];
  const [x, anchor] = isDown ? [middle.x + 10, "start"] : [middle.x, "middle"];
  const blocked = edge.blocked_ratio > 0.1 ? `waits ${format.percent(edge.blocked_ratio)}` : "";
  const flow = `${format.rate(edge.rows_per_s)}, ${format.bytes(edge.bytes_per_s)}/s`;
  return svg("g", { class: `edge ${edge.role}` },
    svg("title", {}, `${edge.name}, ${edge.partitioning}: ${flow}; its producers wait ${format.percent(edge.blocked_ratio)} of the time`),
    svg("path", { d: path, "marker-end": `url(#${edge.role === "cause" ? "arrow-cause" : "arrow"})` }),
    svg("text", { x, y: middle.y - 4, "text-anchor": anchor }, format.rate(edge.rows_per_s)),
    svg("text", { x, y: middle.y + 14, "text-anchor": anchor }, blocked));
}

/** Subtasks of a later stage that have not started have not ended either. */
const hasEnded = (vertex) => vertex.ended === vertex.parallelism;

function drawVertex(vertex, place, now, isSelected, onSelect) {
  const [left, top] = [place.x - place.width / 2, place.y - place.height / 2];
  const select = () => onSelect(vertex.id);
  const onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    select();
  };
  return svg("g", {
    class: `vertex ${vertex.role}${isSelected ? " selected" : ""}${hasEnded(vertex) ? " ended" : ""}`,
    transform: `translate(${left} ${top})`, tabindex: 0, role: "button", "aria-pressed": String(isSelected),
    "aria-label": spoken(vertex, now), "data-key": `vertex-${vertex.id}`, onclick: select, onkeydown,
  }, svg("rect", { class: "box", width: place.width, height: place.height, rx: 6 }),
  vertex.operators.map((operator, index) => drawOperator(operator, index, place.width)),
  drawShares(vertex, place.width, PAD + LINE * vertex.operators.length + 4), drawFoot(vertex, now, place.height));
}

function drawOperator(operator, index, width) {
  const name = cut(operator.role === "cause" ? `▶ ${operator.name}` : operator.name, width - 2 * PAD - 50);
  const y = PAD + LINE * index + 14;
  return svg("g", { class: `operator ${operator.role}` },
    svg("title", {}, `${operator.name} (${operator.kind || "operator"})`),
    svg("text", { x: PAD, y }, name),
    svg("text", { x: width - PAD, y, "text-anchor": "end", class: "number" }, format.percent(operator.busy_ratio)));
}

function drawShares(vertex, width, top) {
  const shares = sharesOf(vertex);
  const room = (width - 2 * PAD - 6 * (shares.length - 1)) / shares.length;
  return shares.map(([name, field], index) => {
    const x = PAD + index * (room + 6);
    const share = vertex.running === 0 ? 0 : vertex[field];
    return svg("g", { class: `share ${name}` },
      svg("rect", { class: "track", x, y: top, width: room, height: 7, rx: 2 }),
      svg("rect", { class: "bar", x, y: top, width: room * share, height: 7, rx: 2 }),
      svg("text", { x, y: top + 22, class: "number" }, `${name === "back-pressured" ? "waits" : name} ${format.percent(share)}`));
  });
}

function drawFoot(vertex, now, height) {
  const all = `${vertex.parallelism} ${vertex.parallelism > 1 ? "subtasks" : "subtask"}`;
  const running = vertex.running === vertex.parallelism ? all : `${vertex.running} of ${all}`;
  return [
    svg("text", { x: PAD, y: height - PAD - LINE, class: "quiet" }, `${running}, ${format.rate(vertex.rows_in_per_s)}`),
    svg("text", { x: PAD, y: height - PAD - 2, class: "quiet" }, `watermark ${format.watermark(vertex, now)}`),
  ];
}

function spoken(vertex, now) {
  const role = { cause: "it is the bottleneck", waits: "it waits", "": "" }[vertex.role];
  const shares = sharesOf(vertex).map(([name, field]) => `${name} ${format.percent(vertex[field])}`).join(", ");
  return [vertex.name, `${vertex.running} of ${vertex.parallelism} subtasks run`, shares, format.rate(vertex.rows_in_per_s),
    `watermark ${format.watermark(vertex, now)}`, role].filter(Boolean).join("; ");
}

function legend() {
  const item = (kind, text) => el("li", { class: kind }, text);
  return el("ul", { class: "legend", "aria-label": "Colours" }, item("cause", "bottleneck"), item("busy", "busy"),
    item("back-pressured", "waits for room in its output (back-pressured)"), item("idle", "idle: waits for input"),
    item("throttled", "throttled: waits for a throttle of its rate"), item("", "each share is that of the subtask with the largest one"));
}
