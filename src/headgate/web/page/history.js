// The part of the page with time series: which subtask and the exchanges of its vertex, which range, and from when it counts.

import { makeCharts } from "./charts.js";
import { hasSeries, saved } from "./data.js";
import { el, replace, say, section } from "./dom.js";
import { makeCounts } from "./lists.js";

const RANGES = [["5 minutes", 300], ["15 minutes", 900], ["1 hour", 3600], ["6 hours", 21600], ["2 days", 172800]];
/** Milliseconds between two reads of the series. */
const PERIOD = 2000;
/** The most subtasks of one vertex in the list, besides the chosen one. */
const MOST = 200;

/** `lost` is called when the driver does not answer. */
export function makeHistory(job, lost) {
  const { node, body } = section("history", "History");
  const task = el("select", { id: "history-task" });
  const range = el("select", { id: "history-range" }, RANGES.map(([text, seconds]) => el("option", { value: seconds }, text)));
  const mark = el("button", { type: "button", id: "count-from-here" }, "Count from here");
  const all = el("button", { type: "button", id: "count-all", hidden: true }, "Count from the start");
  const [plots, counted, problem] = [el("div", { class: "charts" }), el("div"), el("p", { class: "quiet", role: "status", id: "history-problem", hidden: true })];
  const [charts, counts] = [makeCharts(plots), makeCounts(counted)];
  let overview = null;
  let chosen = null; // { vertex, subtask }, chosen by the reader; else the first of the top ten
  let listed = "";
  let [readAt, asked] = [0, 0];

  body.append(el("div", { class: "controls" }, el("label", { for: "history-task" }, "Subtask"), task,
    el("label", { for: "history-range" }, "Range"), range, ...(saved === null ? [mark, all] : [])), problem, plots, counted);

  const place = () => chosen ?? (overview?.subtasks[0] && { vertex: overview.subtasks[0].vertex, subtask: overview.subtasks[0].subtask });

  function listTasks() {
    const now = place();
    if (document.activeElement === task && listed !== "") return; // the reader may have opened the list
    const options = overview.vertices.flatMap((vertex) => subtasksOf(vertex, now)
      .map((subtask) => [`${vertex.id}/${subtask}`, `${vertex.name}[${subtask}]`])).filter(([, text]) => hasSeries(text));
    const key = JSON.stringify(options);
    if (key !== listed && replace(task, ...options.map(([value, text]) => el("option", { value }, text)))) listed = key;
    if (now) task.value = `${now.vertex}/${now.subtask}`;
  }

  /** The subtasks of a vertex that the list has: the first ones, and the one whose series are drawn. */
  function subtasksOf(vertex, now) {
    const first = Array.from({ length: Math.min(MOST, vertex.parallelism) }, (_, subtask) => subtask);
    return now?.vertex === vertex.id && now.subtask >= first.length ? [...first, now.subtask] : first;
  }

  function complain(text) {
    problem.hidden = text === "";
    say(problem, text);
  }

  async function draw(force = false) {
    const now = place();
    if (!now || (!force && Date.now() - readAt < PERIOD)) return;
    readAt = Date.now();
    const mine = asked += 1;
    const vertex = overview.vertices[now.vertex];
    const to = overview.job.ended_at ?? overview.now;
    const from = counts.from ?? Math.max(overview.job.started_at ?? 0, to - Number(range.value));
    const operator = vertex.operators[0];
    const emitting = vertex.operators.findLast((each) => each.kind !== "sink");
    const names = {
      task: `${vertex.name}[${now.subtask}]`, operator: `${operator.name}[${now.subtask}]`, isSource: operator.kind === "source",
      emitting: emitting && vertex.watermark_state !== "none" ? `${emitting.name}[${now.subtask}]` : null,
      edges: overview.edges.filter((edge) => edge.source === vertex.id || edge.target === vertex.id).map((edge) => edge.name),
    };
    try {
      const show = await charts.read(job, names, Math.min(from, to - 10), to);
      if (mine !== asked) return;
      complain("");
      if (!show()) readAt = 0;
    } catch (error) {
      if (mine !== asked) return;
      charts.clear();
      complain(`The history cannot be shown: ${error.reason ?? "the driver does not answer"}.`);
      if (error.status === undefined) lost();
    }
  }

  task.addEventListener("change", () => {
    const [vertex, subtask] = task.value.split("/").map(Number);
    chosen = { vertex, subtask };
    draw(true);
  });
  range.addEventListener("change", () => { counts.start(null); count(false); });
  mark.addEventListener("click", () => { counts.start(overview); count(true); });
  all.addEventListener("click", () => { counts.start(null); count(false); });

  function count(isMarked) {
    if (overview === null) return; // nothing has been counted yet
    all.hidden = !isMarked;
    counts.update(overview);
    draw(true);
  }

  return {
    node,
    /** The subtask whose series are drawn: { vertex, subtask }, or undefined. */
    get selected() { return place(); },
    select(vertex, subtask) { chosen = { vertex, subtask }; listTasks(); task.value = `${vertex}/${subtask}`; draw(true); },
    update(news) { overview = news; listTasks(); counts.update(news); draw(); },
  };
}
