// A trace of a channel as a sequence: data with its backlog to the right, AddCredit to the left, reads at the consumer.

import { el, replace, say, svg } from "./dom.js";
import * as format from "./format.js";

const LINE = 24;
const TOP = 40;
/** Events that are drawn at once. */
const PART = 40;
/** The kind of the event at which a message arrives, by the kind of the event with which it leaves. */
const ARRIVES = { sent: "received", granted: "credited" };

export function makeSequence(node) {
  const title = el("h3", { id: "trace-title" });
  const place = el("p", { class: "quiet", role: "status" });
  const before = el("button", { type: "button", id: "trace-before", onclick: () => go(-PART) }, "Earlier");
  const after = el("button", { type: "button", id: "trace-after", onclick: () => go(PART) }, "Later");
  const controls = el("div", { class: "controls", hidden: true }, before, after);
  const picture = el("div", { class: "wide sequence" });
  let [trace, offset] = [null, 0];
  node.append(title, place, controls, picture);
  addEventListener("resize", draw);

  function go(step) {
    offset = Math.max(0, offset + step);
    draw();
  }

  function draw() {
    if (trace === null) return;
    const events = trace.events.slice(offset, offset + PART);
    [before.disabled, after.disabled] = [offset === 0, offset + PART >= trace.events.length];
    const all = `${trace.events.length} events${trace.is_complete ? "" : ", and there were more"}`;
    say(place, events.length === 0 ? "Nothing passed the channel." : `${offset + 1} to ${offset + events.length} of ${all}`);
    controls.hidden = events.length === 0;
    replace(picture, ...(events.length === 0 ? [] : [drawn(trace, events, picture.clientWidth || 600)]));
  }

  return {
    /** Show `text` in place of a picture. */
    tell(name, text) {
      trace = null;
      say(title, `Trace of ${name}`);
      say(place, text);
      controls.hidden = true;
      replace(picture);
    },
    show(answer) {
      [trace, offset] = [answer, 0];
      say(title, `Trace of ${answer.producer_name} → ${answer.consumer_name}`);
      draw();
    },
    close() { removeEventListener("resize", draw); },
  };
}

function drawn(trace, events, width) {
  const [left, right] = [84, Math.max(240, Math.min(width, 900) - 116)];
  const height = TOP + LINE * events.length + 8;
  const rows = new Map(events.map((event, index) => [`${event.kind} ${event.number}`, TOP + LINE * index + LINE / 2]));
  const name = (x, text) => svg("text", { x, y: 16, "text-anchor": "middle", class: "end" }, text);
  const line = (x) => svg("path", { class: "lifeline", d: `M${x} 24V${height}` });
  return svg("svg", { width: right + 116, height, role: "img", "aria-label": summary(events) },
    svg("defs", {}, svg("marker", { id: "message", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" },
      svg("path", { d: "M0 0L8 4L0 8z", class: "arrow" }))),
    line(left), line(right), name(left, trace.producer_name), name(right, trace.consumer_name),
    events.map((event, index) => drawEvent(event, TOP + LINE * index + LINE / 2, rows, left, right)));
}

function drawEvent(event, y, rows, left, right) {
  const time = svg("text", { x: 0, y: y + 4, class: "number" }, `${event.at.toFixed(4)} s`);
  const middle = (left + right) / 2;
  const group = (kind, ...parts) => svg("g", { class: `event ${kind}` }, svg("title", {}, words(event)), time, ...parts);
  const arrow = (from, to, end) => svg("path", { d: `M${from} ${y}L${to} ${end}`, "marker-end": "url(#message)" });
  const label = (text) => svg("text", { x: middle, y: y - 4, "text-anchor": "middle", class: "number" }, text);
  const end = rows.get(`${ARRIVES[event.kind]} ${event.number}`) ?? y;
  switch (event.kind) {
    case "sent": return group("data", arrow(left, right, end), label(`${event.buffers} of data, backlog ${event.left}`));
    case "granted": return group("credit", arrow(right, left, end), label(`AddCredit ${event.buffers}`));
    case "credited": return group("credit", svg("circle", { cx: left, cy: y, r: 4 }), svg("text", { x: left + 8, y: y + 15, class: "number" }, `credit ${event.left}`));
    case "received": return group("data", svg("circle", { cx: right, cy: y, r: 4 }));
    default: return group("read", svg("rect", { x: right - 4, y: y - 6, width: 8, height: 12 }), svg("text", { x: right + 10, y: y + 4, class: "number" }, `reads ${event.buffers}, ${event.left} left`));
  }
}

/** An event in words, as they appear when the pointer rests on it. */
function words(event) {
  const at = format.duration(event.at);
  switch (event.kind) {
    case "sent": return `After ${at} the producer sends ${event.buffers} buffers; ${event.left} more wait behind them`;
    case "credited": return `After ${at} an AddCredit of ${event.buffers} arrives: the credit is ${event.left}`;
    case "received": return `After ${at} the consumer receives ${event.buffers} buffers`;
    case "granted": return `After ${at} the consumer sends an AddCredit of ${event.buffers}`;
    default: return `After ${at} the consumer's task reads ${event.buffers} buffers; ${event.left} are left in its queue`;
  }
}

function summary(events) {
  const count = (kind) => events.filter((event) => event.kind === kind);
  const buffers = (kind) => count(kind).reduce((sum, event) => sum + event.buffers, 0);
  return `${buffers("sent")} buffers sent, ${buffers("credited")} credits received and ${buffers("read")} buffers read, `
    + `from ${format.duration(events[0].at)} to ${format.duration(events.at(-1).at)}`;
}
