// How numbers are written. Times are UTC, as in the log of a driver that runs in UTC.

export const percent = (share) => (share === null ? "unknown" : `${Math.round(share * 100)} %`);

const SIZES = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];

/** 1234567 is "1.23 M". */
export function short(value) {
  for (const [size, letter] of SIZES) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))} ${letter}`;
  }
  return String(Number(value.toPrecision(3)));
}

export const rate = (value) => `${short(value)} rows/s`;
export const bytes = (value) => `${short(value)}B`.replace(/(\d)B$/, "$1 B");

/** 0.004 is "4 ms", 75 is "1 min 15 s". */
export function duration(seconds) {
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 1) return seconds === 0 ? "0 s" : `${Number((seconds * 1000).toPrecision(2))} ms`;
  if (seconds < 60) return `${Number(seconds.toPrecision(3))} s`;
  const whole = Math.round(seconds);
  const [days, hours, minutes] = [Math.floor(whole / 86400), Math.floor(whole / 3600) % 24, Math.floor(whole / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  return hours > 0 ? `${hours} h ${minutes} min` : `${minutes} min ${whole % 60} s`;
}

const iso = (seconds) => new Date(seconds * 1000).toISOString();

/** "10:11:12", or with the date if it is another day than that of `now`. */
export function time(seconds, now) {
  if (!(Math.abs(seconds) < 8e12)) return "far away";
  const text = iso(seconds);
  return text.slice(0, 10) === iso(now).slice(0, 10) ? text.slice(11, 19) : `${text.slice(0, 10)} ${text.slice(11, 19)}`;
}

/** "2026-11-25 10:11:12 UTC". */
export const day = (seconds) => `${iso(seconds).slice(0, 19).replace("T", " ")} UTC`;

/** The watermark of a vertex in words. */
export function watermark(vertex, now) {
  return vertex.watermark_state === "time" ? time(vertex.watermark / 1e6, now) : vertex.watermark_state;
}

/** "all 4", "2 (1 of 4)", "0, 2 and 3 (3 of 4)". */
export function subtasks(numbers, all) {
  if (numbers.length === all) return all === 1 ? `[${numbers[0]}], its only one` : `all ${all}`;
  const names = numbers.map((number) => `[${number}]`);
  const shown = names.length > 8 ? [...names.slice(0, 7), `${names.length - 7} more`] : names;
  const last = shown.pop() ?? "none";
  return `${shown.length ? `${shown.join(", ")} and ${last}` : last}${all === null ? "" : `: ${numbers.length} of its ${all} subtasks`}`;
}
