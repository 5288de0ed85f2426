// Time series of one subtask, over a range that the reader chooses.

import { read as readAnswer } from "./data.js";
import { el, replace } from "./dom.js";
import * as format from "./format.js";

/** What is drawn of each subtask: the title, how values are written, and its series by label, counter and colour. */
const CHARTS = [
  { title: "Time", write: format.percent, top: 1, of: "task",
    series: [["busy", "busy_s", "busy"], ["back-pressured", "soft_backpressured_s", "wait"],
      ["within a batch", "hard_backpressured_s", "hard"], ["throttled", "throttle_wait_s", "throttle"], ["idle", "idle_s", "idle"], ["CPU", "cpu_s", "cpu"]] },
  { title: "Rows per second", write: format.short, top: 10, of: "operator", series: [["in", "rows_in", "busy"], ["out", "rows_out", "idle"], ["late", "late_rows", "hard"]] },
  { title: "Buffers in use", write: format.percent, top: 1, of: "task",
    series: [["input", "in_pool_usage", "busy"],
      ["floating", "input_floating_usage", "cpu"], ["exclusive", "input_exclusive_usage", "idle"], ["output", "out_pool_usage", "wait"]] },
  { title: "Input queue, buffers", write: format.short, top: 4, of: "task", series: [["queue", "input_queue", "busy"]] },
];
const LAG = { title: "Lag of the source, seconds", write: format.short, of: "operator", series: [["lag", "lag_s", "hard"]] };
const EVENT_TIME = { title: "Event time behind the clock", write: format.duration, of: "emitting", series: [["watermark", "watermark_lag_s", "hard"]] };
const COLOURS = ["busy", "idle", "cpu", "hard", "wait", "throttle"];
const bytes = (value) => `${format.bytes(value)}/s`;

/** The charts of a place: of its subtask, and of the exchanges of its vertex. */
function chartsOf({ isSource, emitting, edges }) {
  const exchange = (title, write, total) => ({ title, write, of: null,
    series: edges.slice(0, COLOURS.length).map((edge, index) => [edge, `edge/${edge}/${total}`, COLOURS[index]]) });
  return [...CHARTS, ...(isSource ? [LAG] : []), ...(emitting ? [EVENT_TIME] : []),
    ...(edges.length ? [exchange("Exchanges, rows per second", format.short, "rows_out"), exchange("Exchanges, bytes per second", bytes, "bytes_out")] : [])];
}
const HEIGHT = 190;
/** The most characters of the names of one request. The driver refuses an address of more than 4,096. */
const MOST_TEXT = 3000;

export function makeCharts(node) {
  let drawn = [];
  let shown = "";
  const observer = new ResizeObserver(() => drawn.forEach(({ plot, box }) => plot.setSize({ width: box.clientWidth, height: HEIGHT })));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { shown = ""; });
  return {
    /** Read the series of a subtask; `place` is { task, operator, isSource, emitting, edges }. Return a function that
        draws them, and returns whether it could: not while the reader uses the charts of another subtask. */
    async read(job, place, from, to) {
      const charts = chartsOf(place);
      const all = await Promise.all(charts.map((chart) => read(job, chart, place, from, to)));
      return () => {
        const key = JSON.stringify([job, place]);
        if (key !== shown && !make(charts)) return false;
        shown = key;
        drawn.forEach(({ plot, figure }, index) => show(plot, figure, charts[index], all[index], from, to));
        return true;
      };
    },
    /** Draw nothing. */
    clear() {
      forget(drawn);
      [drawn, shown] = [[], ""];
      node.replaceChildren();
    },
  };

  function make(charts) {
    const made = charts.map(makeChart);
    if (!replace(node, ...made.map((each) => each.figure))) {
      forget(made);
      return false;
    }
    forget(drawn);
    drawn = made;
    drawn.forEach(({ plot, box }) => { box.append(plot.root); plot.setSize({ width: box.clientWidth, height: HEIGHT }); observer.observe(box); });
    return true;
  }

  function forget(charts) {
    charts.forEach(({ plot, box }) => { observer.unobserve(box); plot.destroy(); });
  }
}

/** Return columns for uPlot: the times, then the values of each series, null where there is none. */
async function read(job, chart, place, from, to) {
  const names = chart.series.map(([, counter]) => (chart.of ? `${chart.of === "task" ? "task" : "operator"}/${place[chart.of]}/${counter}` : counter));
  const fits = encodeURIComponent(names.join("")).length <= MOST_TEXT;
  const answers = await Promise.all((fits ? [names] : names.map((name) => [name])).map((some) => {
    const query = new URLSearchParams([...some.map((name) => ["name", name]), ["from", Math.floor(from)], ["to", Math.ceil(to)], ["points", 300]]);
    return readAnswer(`/jobs/${job}/series?${query}`);
  }));
  const found = answers.flatMap((answer) => answer.series);
  const times = [...new Set(found.flatMap((series) => series.points.map((point) => point[0])))].sort((one, other) => one - other);
  const columns = found.map((series) => {
    const values = new Map(series.points.map(([begin, , mean]) => [begin, mean]));
    return times.map((time) => values.get(time) ?? null);
  });
  return [times, ...columns];
}

function makeChart(chart) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const axis = { stroke: colour("text"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  const options = {
    width: 400, height: HEIGHT, cursor: { drag: { setScale: false } }, legend: { live: true },
    scales: { x: { time: true }, y: { range: (_, least, most) => [Math.min(0, least || 0), Math.max(chart.top ?? 0, most || 1) * 1.02] } },
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC"),
    axes: [{ ...axis, space: 70, values: (_, ticks, __, ___, step) => ticks.map((at) => clock(at, step)) }, { ...axis, size: room, values: (_, ticks) => ticks.map(chart.write) }],
    series: [{ value: (_, at) => (at === null ? "" : format.time(at, Date.now() / 1000)) }, ...chart.series.map(([label, , name], index) => ({
      label, stroke: colour(name), width: 1.5, dash: index % 2 ? [6, 3] : [], points: { show: false }, value: (_, value) => (value === null ? "" : chart.write(value)),
    }))],
  };
  const box = el("div", { class: "plot", "aria-hidden": "true" });
  const words = el("p", { class: "spoken" });
  const figure = el("figure", {}, el("figcaption", {}, chart.title), box, words);
  return { plot: new uPlot(options, [[], ...chart.series.map(() => [])]), box, figure };
}

/** The width of the axis of values: room for its longest tick. */
const room = (_, ticks) => 24 + 7 * Math.max(4, ...(ticks ?? []).map((tick) => tick.length));

/** A tick of the time axis: "17:05", with seconds or with the date where these tell ticks apart. */
function clock(at, step) {
  const text = new Date(at * 1000).toISOString();
  return step < 60 ? text.slice(11, 19) : step < 86400 ? text.slice(11, 16) : text.slice(5, 10);
}

function show(plot, figure, chart, columns, from, to) {
  plot.setData(columns, false);
  plot.batch(() => { plot.setScale("x", { min: from, max: to }); });
  const last = chart.series.map(([label], index) => {
    const value = columns[index + 1].findLast((each) => each !== null);
    return value === undefined ? null : `${label} ${chart.write(value)}`;
  }).filter(Boolean);
  figure.querySelector(".spoken").textContent = last.length ? `Now: ${last.join(", ")}` : "No data in this range";
}
