// The verdict: where the job is slow, why, and what to do.

import { el, revise } from "./dom.js";
import * as format from "./format.js";
import { hotLines } from "./profile.js";

const WORDS = {
  pending: ["Measuring", "calm"], ok: ["OK", "calm"], limit: ["At its limit", "limit"],
  behind: ["Falls behind", "alarm"], stuck: ["Stuck", "alarm"], ended: ["Ended", "calm"],
};

export function makeVerdict(node) {
  let shown = "";
  let isOpen = false;
  return {
    update(overview) {
      const { at: _, ...said } = overview.diagnosis;
      const facts = [said, overview.vertices.map((vertex) => vertex.parallelism)];
      const news = JSON.stringify(facts, (name, value) => (name === "evidence" ? undefined : value)); // it is not shown
      isOpen = node.querySelector("details")?.open ?? isOpen; // the reader opens and closes it
      if (news !== shown && revise(node, ...parts(overview, isOpen).filter(Boolean))) shown = news;
    },
  };
}

function parts(overview, isOpen) {
  const { severity, sentence, findings } = overview.diagnosis;
  const [word, kind] = WORDS[severity];
  const badge = el("span", { class: `badge ${kind}` }, word);
  if (findings.length === 0) return [el("p", { class: "headline", role: "status" }, badge, ` ${sentence}`)];
  const [first, ...others] = findings;
  const ended = severity === "ended" ? [el("p", { class: "headline" }, badge, ` ${sentence}`),
    el("p", { class: "quiet" }, "In its last seconds:")] : [];
  const headline = el("p", { class: "headline", role: "status" }, severity === "ended" ? null : badge, ` ${where(first)}`);
  return [...ended, headline, details(first, overview), more(others, overview, isOpen)];
}

function where(finding) {
  const waits = finding.waits.map((name) => `“${name}”`).join(", ");
  if (!waits) return `${quoted(finding.place)} is the limit`;
  return `${waits} ${finding.waits.length > 1 ? "wait" : "waits"} for ${quoted(finding.place)}`;
}

/** A place with typographic quotes, if it is only a name in Python's quotes: 'name', or "it's name". */
const quoted = (place) => place.replace(/^(['"])(.*)\1$/, "“$2”");

function details(finding, overview) {
  const vertex = overview.vertices[finding.vertex];
  const facts = [
    [finding.operator === null ? "Place" : "Operator", finding.operator ?? finding.place],
    vertex ? ["Subtask", format.subtasks(finding.subtasks, vertex.parallelism)]
      : ["Producers", `${finding.waits.join(", ")}: subtasks ${format.subtasks(finding.subtasks, null)}`],
    ["Cause", finding.why],
    ["Remedy", finding.remedy],
    ["Gain", gain(finding)],
    ...(finding.hottest.length > 0 ? [["Lines", hotLines(finding.hottest)]] : []),
  ];
  return el("dl", { class: "facts" }, facts.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]).flat());
}

function gain(finding) {
  const then = finding.limit ? `; then ${finding.limit}` : "";
  if (finding.gain === null) return `not known${then}`;
  return finding.gain < 1.05 ? `none: ${finding.limit || "something else is the limit"}`
    : `${finding.at_least ? "at least " : ""}${finding.gain.toFixed(1)} times as many rows${then}`;
}

function more(findings, overview, isOpen) {
  if (findings.length === 0) return null;
  const also = el("summary", { "data-key": "more" }, `${findings.length} more ${findings.length > 1 ? "places" : "place"}`);
  return el("details", { open: isOpen }, also, findings.map((each) => el("div", { class: "also" }, el("h3", {}, where(each)), details(each, overview))));
}
