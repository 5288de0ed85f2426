// The channels that wait most: their credit, and where their buffers are. The driver ranks them, 50 at once.

import { read, saved } from "./data.js";
import { el, makeTable, row, say } from "./dom.js";
import * as format from "./format.js";
import { makeSequence } from "./sequence.js";

/** Milliseconds between two reads. */
const PERIOD = 2000;
const PART = 50;
/** Seconds of a trace. */
const SECONDS = 2;
const HEADS = ["Channel", "Credit", "Granted/s", "Spent/s", "At credit 0", "Without a buffer", "Backlog", "Queue", "In flight", "Sent", ...(saved === null ? ["Trace"] : [])];

export function makeChannels(node, job) {
  const table = makeTable("The channels that wait most", HEADS);
  const place = el("p", { class: "quiet", id: "channels-place" });
  const before = el("button", { type: "button", id: "channels-before", onclick: () => go(-PART) }, `Previous ${PART}`);
  const after = el("button", { type: "button", id: "channels-after", onclick: () => go(PART) }, `Next ${PART}`);
  let [offset, readAt, asked] = [0, 0, 0];
  const traced = el("div", { id: "trace" });
  let sequence = null;
  node.append(el("div", { class: "controls" }, before, after, place), table.node, traced);

  /** Let the driver trace a channel, and draw what passed. */
  async function trace(channel) {
    const name = `${channel.producer_name} → ${channel.consumer_name}`;
    sequence ??= makeSequence(traced);
    sequence.tell(name, `Tracing for ${SECONDS} seconds.`);
    const query = new URLSearchParams({ exchange: channel.exchange, producer: channel.producer, consumer: channel.consumer, seconds: SECONDS });
    try {
      sequence.show(await read(`/jobs/${job}/channels/trace?${query}`));
    } catch (error) {
      sequence.tell(name, error.reason ?? "The driver does not answer.");
    }
  }

  function go(step) {
    offset = Math.max(0, offset + step);
    load();
  }

  async function load() {
    const mine = asked += 1;
    readAt = Date.now();
    try {
      const answer = await read(`/jobs/${job}/channels?offset=${offset}&limit=${PART}`);
      if (mine === asked) show(answer);
    } catch { /* the next read may succeed; the notice above says if the connection is lost */ }
  }

  function show({ total, channels }) {
    if (channels.length === 0 && offset > 0) return go(-PART);
    [before.disabled, after.disabled] = [offset === 0, offset + PART >= total];
    say(place, total === 0 ? "No channel has been reported yet." : `${offset + 1} to ${offset + channels.length} of ${total}, those that wait most first`);
    table.node.hidden = total === 0;
    table.update(channels.map((channel) => channelRow(channel, trace)));
  }

  return {
    close() { sequence?.close(); },
    update(overview) {
      if (Date.now() - readAt >= PERIOD || overview.job.ended_at !== null) load();
    },
  };
}

/** A value as text; "-" if it is not known. Within one TaskManager there is no credit. */
const known = (value, write) => (value === null ? "-" : write(value));
const waited = (share, seconds) => (share === null ? known(seconds, format.duration) : `${format.percent(share)}, ${format.duration(seconds ?? 0)}`);

function channelRow(channel, trace) {
  const name = `${channel.producer_name} → ${channel.consumer_name}`;
  return row([name, known(channel.credit, String),
    known(channel.credits_granted_per_s, format.short), known(channel.credits_spent_per_s, format.short),
    waited(channel.credit_wait_ratio, channel.credit_wait_s), waited(channel.without_buffer_ratio, channel.without_buffer_s),
    known(channel.backlog, String), known(channel.queue, String), known(channel.in_flight_bytes, format.bytes),
    known(channel.bytes_per_s, (value) => `${format.bytes(value)}/s`),
    saved !== null ? null : el("button", { type: "button", "data-key": `trace ${name}`, "aria-label": `Trace ${name}`, onclick: () => trace(channel) }, "Trace")].filter((cell) => cell !== null));
}
