// Where the page reads what the events do not say: time series and channels.

/** Read a JSON answer of the REST interface. */
export async function read(path) {
  const reply = await fetch(path);
  if (!reply.ok) throw new Error(`${path}: ${reply.status}`);
  return reply.json();
}
