// The ten subtasks to look at first. Ended ones come last and have no bars.

import { el, makeTable, row } from "./dom.js";
import * as format from "./format.js";

const HEADS = ["Subtask", "Time", "Busy", "Back-pressured", "Throttled", "Idle", "CPU", "Rows/s", "Input pool", "Output pool", "Queue"];

export function makeSubtasks(node, onSelect) {
  const table = makeTable("The ten subtasks to look at first", HEADS);
  node.append(table.node);
  return {
    update(overview, selected) {
      table.update(overview.subtasks.map((task) => subtaskRow(task, isThis(task, selected), onSelect)));
    },
  };
}

const isThis = (task, selected) => task.vertex === selected?.vertex && task.subtask === selected.subtask;

function subtaskRow(task, isSelected, onSelect) {
  const name = el("button", { type: "button", "data-key": task.name, "aria-pressed": String(isSelected), onclick: () => onSelect(task) },
    task.role === "cause" ? `▶ ${task.name}` : task.name);
  const cells = task.ended ? [name, "ended", "", "", "", "", "", "", "", "", ""] : [
    name, bar(task), format.percent(task.busy_ratio), `${format.percent(task.backpressured_ratio)} ${task.level}`,
    format.percent(task.throttled_ratio), format.percent(task.idle_ratio), format.percent(task.cpu_ratio), format.short(task.rows_in_per_s),
    format.percent(task.in_pool_usage), format.percent(task.out_pool_usage), String(task.input_queue),
  ];
  return row(cells, { class: `${task.role}${task.ended ? " ended" : ""}` });
}

/** The parts of a subtask's time, side by side. */
function bar(task) {
  const part = (kind, share) => {
    const node = el("span", { class: kind });
    node.style.setProperty("width", `${100 * share}%`);
    return node;
  };
  return el("span", { class: "bar", "aria-hidden": "true" }, part("busy", task.busy_ratio),
    part("back-pressured", task.backpressured_ratio), part("throttled", task.throttled_ratio), part("idle", task.idle_ratio));
}
