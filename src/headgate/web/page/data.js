// Where the page reads what the events do not say: from the driver, or from what was saved with the page.

const text = document.getElementById("saved")?.textContent;
/** What was saved with the page: { overview, channels, profile, series }. Null for the page of a driver. */
export const saved = text ? JSON.parse(text) : null;

/** Of a saved page: the times and the values of each series, by its name. */
const columns = new Map((saved?.series ?? []).flatMap(({ times, values }) => Object.entries(values).map(([name, column]) => [name, [times, column]])));

/** Whether the time series of a subtask can be read. */
export const hasSeries = (task) => saved === null || columns.has(`task/${task}/busy_s`);

/** Read a JSON answer of the REST interface. */
export async function read(path) {
  if (saved !== null) return readSaved(new URL(path, "file:///"));
  const reply = await fetch(path);
  if (!reply.ok) throw Object.assign(new Error(`${path}: ${reply.status}`), { status: reply.status, reason: await refusal(reply) });
  return reply.json();
}

/** Why the driver refuses to answer, in its words. */
async function refusal(reply) {
  try {
    return (await reply.json()).errors.join("; ");
  } catch {
    return undefined;
  }
}

function readSaved({ pathname, searchParams: query }) {
  if (pathname.endsWith("/channels")) {
    const offset = Number(query.get("offset"));
    return { total: saved.channels.length, offset, channels: saved.channels.slice(offset, offset + Number(query.get("limit"))) };
  }
  if (pathname.endsWith("/flamegraph")) return saved.profile;
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  return { series: query.getAll("name").map((name) => ({ name, points: points(name, from, to) })) };
}

function points(name, from, to) {
  const [times, values] = columns.get(name) ?? [[], []];
  return times.map((at, index) => [at, values[index], values[index], values[index]]).filter(([at, value]) => at >= from && at < to && value !== null);
}
