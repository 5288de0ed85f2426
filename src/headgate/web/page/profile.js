// The profile of a function: its hottest lines and its flame graph. The driver profiles a cause; the reader may ask for more.

import { read, saved } from "./data.js";
import { el, replace, say } from "./dom.js";
import { makeFlame } from "./flame.js";
import * as format from "./format.js";

/** Seconds of a profile that the reader asks for. */
const SECONDS = 2;

export function makeProfile(node, job) {
  const operator = el("select", { id: "profile-operator" });
  const button = el("button", { type: "button", id: "profile-start", onclick: () => ask() }, `Profile for ${SECONDS} seconds`);
  const controls = el("div", { class: "controls", hidden: true }, el("label", { for: "profile-operator" }, "Operator"), operator, button);
  const [status, lines, picture] = [el("p", { role: "status", id: "profile-status" }), el("div"), el("div", { hidden: true })];
  let flame = null;
  let vertices = [];
  let shown = 0; // the end of the profile that is drawn
  let [asked, isAsking] = ["", false]; // the operator that the reader asked for: profiles of others do not replace its own
  let listed = "";
  node.append(controls, status, lines, picture);

  /** Let the driver profile the chosen operator, in the subtask that works most. */
  async function ask() {
    asked = operator.value;
    isAsking = true;
    say(status, `Profiling “${asked}” for ${SECONDS} seconds.`);
    await load(vertexOf(asked), { operator: asked, seconds: SECONDS }, (reason) => say(status, reason));
    isAsking = false;
  }

  async function load(vertex, query, failed) {
    try {
      show(await read(`/jobs/${job}/vertices/${vertex}/flamegraph?${new URLSearchParams(query)}`));
    } catch (error) {
      failed(error.reason ?? "The driver does not answer.");
    }
  }

  function show(profile) {
    shown = profile.end_timestamp;
    say(status, `“${profile.operator}[${profile.subtask}]” worked in ${format.percent(profile.share)} of ${profile.samples} samples, `
      + `${format.percent(profile.on)} of them on the processor. The profile took ${format.duration(profile.seconds)} and ended at ${format.day(profile.end_timestamp)}.`);
    replace(lines, ...(profile.hottest.length ? [hotLines(profile.hottest)] : []));
    picture.hidden = profile.data.children.length === 0;
    flame ??= makeFlame(picture);
    flame.show(profile.data);
  }

  const vertexOf = (name) => vertices.find((vertex) => vertex.operators.some((each) => each.name === name)).id;

  function list(first) {
    const names = vertices.flatMap((vertex) => vertex.operators.map((each) => each.name));
    if (JSON.stringify(names) === listed) return;
    replace(operator, ...names.map((name) => el("option", { value: name }, name)));
    listed = JSON.stringify(names);
    if (first) operator.value = first;
  }

  return {
    update(overview) {
      const { profile } = overview;
      vertices = overview.vertices;
      list(profile?.operator ?? overview.diagnosis.findings[0]?.operator);
      const canAsk = saved === null && overview.job.ended_at === null;
      controls.hidden = !canAsk;
      if (!profile && asked === "") say(status, nothing(overview.job.state, canAsk));
      const isNew = profile && profile.end_timestamp > shown && !isAsking && ["", profile.operator].includes(asked);
      if (!isNew) return;
      shown = profile.end_timestamp;
      load(profile.vertex, { operator: profile.operator, subtaskindex: profile.subtask }, () => { shown = 0; });
    },
    close() { flame?.close(); },
  };
}

/** Why there is no profile. */
function nothing(state, canAsk) {
  if (state === "RECORDED") return "A recording has no profile.";
  return canAsk ? "No function was profiled yet. The driver profiles a function when it is the cause." : "No function was profiled.";
}

/** The hottest lines of a function: "70 % price (prices.py:12), 2 % on the processor". */
export const hotLines = (hottest) => el("ol", { class: "lines" }, hottest.map((hot) => el("li", {}, line(hot))));

const line = (hot) => `${format.percent(hot.share)} ${hot.function}${hot.file ? ` (${hot.file.split("/").pop()}:${hot.line})` : ""}, `
  + `${format.percent(hot.on)} on the processor`;
