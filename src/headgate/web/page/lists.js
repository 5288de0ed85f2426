// The lag of sources, the checkpoints, the counts since a moment, and the list of jobs.

import { el, makeTable, row, say } from "./dom.js";
import * as format from "./format.js";

/** A table in `node`, with a text in its place while there are no rows. */
function makeList(node, label, heads, nothing) {
  const [table, note] = [makeTable(label, heads), el("p", { class: "quiet" }, nothing)];
  node.append(note, table.node);
  return (rows) => {
    note.hidden = rows.length > 0;
    table.node.hidden = rows.length === 0;
    table.update(rows);
  };
}

export function makeLag(node) {
  const heads = ["Source", "Latest subtask", "Behind by", "Changes by", "Caught up in"];
  const list = makeList(node, "Lag of sources", heads, "No source has a pace: sources read as fast as they can.");
  const splits = makeList(node, "Unread messages", ["Source", "Partition", "Unread", "Changes by", "Caught up in"], "");
  return {
    update(overview) {
      splits((overview.unread ?? []).map((each) => row([
        each.operator, each.split, format.short(each.messages), `${each.growth > 0 ? "+" : ""}${each.growth} each second`, catchUp(each),
      ])));
      list(overview.lag.map((lag) => row([lag.operator, String(lag.subtask), format.duration(lag.lag_s), growth(lag), catchUp(lag)])));
    },
  };
}

/** A cell whose text may need several lines. */
const long = (text) => el("td", { class: text.length > 20 ? "long" : "" }, text);

const growth = (lag) => `${lag.growth > 0 ? "+" : ""}${Number(lag.growth.toFixed(2))} s each second`;

function catchUp(lag) {
  if (lag.catch_up_s === null) return lag.growth > 0.01 ? "never: it falls back" : "never at this rate";
  return lag.catch_up_s === 0 ? "it is on time" : format.duration(lag.catch_up_s);
}

export function makeCheckpoints(node) {
  const heads = ["Checkpoint", "Started", "Took", "Size", "Slowest task", "Start delay", "Alignment", "Stop", "Writing", "Result"];
  const list = makeList(node, "Checkpoints", heads, "No checkpoint has ended yet.");
  return {
    update(overview) {
      list([...overview.checkpoints].reverse().map((each) => row([
        `${each.id}${each.kind === "checkpoint" ? "" : ` (${each.kind})`}`, format.time(each.triggered_at, overview.now),
        format.duration(each.duration_s), format.bytes(each.size_bytes), each.slowest ?? "", format.duration(each.start_delay_s),
        `${format.duration(each.alignment_s)}${each.unaligned ? ", unaligned" : ""}`, format.duration(each.sync_s),
        format.duration(each.async_s), long(each.failure === null ? "complete" : `failed: ${each.failure}`),
      ], { class: each.failure === null ? "" : "failed" })));
    },
  };
}

/** Counts what each vertex has done since a moment that the reader chooses. A restart goes back to a checkpoint, which may be
    before that moment: then it counts from the start of the job, earlier attempts included. */
export function makeCounts(node) {
  let mark = null;
  const [since, table] = [el("p", { class: "quiet" }), makeTable("Counts", ["Vertex", "Rows in", "Rows out", "Late rows"])];
  node.append(since, table.node);
  return {
    get from() { return mark?.at ?? null; },
    start(overview) { mark = overview && { at: overview.now, attempt: overview.attempt, vertices: overview.vertices }; },
    update(overview) {
      const isSame = mark !== null && mark.attempt === overview.attempt;
      say(since, isSame ? `Counted since ${format.time(mark.at, overview.now)}` : "Counted since the start of the job");
      const count = (vertex, field) => vertex[field] - (isSame ? mark.vertices[vertex.id][field] : 0);
      table.update(overview.vertices.map((vertex) => row([vertex.name,
        ...["rows_in", "rows_out", "late_rows"].map((field) => count(vertex, field).toLocaleString("en"))])));
    },
  };
}

export function makeJobList(node) {
  const list = makeList(node, "Jobs", ["Job", "State", "Started", "Ran for", "Restarts", "Error"], "No job is here yet.");
  return {
    update(jobs, now) {
      list([...jobs].reverse().map((job) => row([el("a", { href: `#${job.id}`, "data-key": job.id }, job.name), job.state,
        job.started_at === null ? "" : format.time(job.started_at, now), format.duration(job.duration_s), String(job.restarts), long(job.error ?? "")])));
    },
  };
}
