// The page of a job: it shows what the events say, and reads only time series, channels and profiles besides. "#ID" names the job.

import { makeChannels } from "./channels.js";
import { read, saved } from "./data.js";
import { el, onceFree, say, section } from "./dom.js";
import * as format from "./format.js";
import { makeGraph } from "./graph.js";
import { makeHistory } from "./history.js";
import { makeCheckpoints, makeJobList, makeLag } from "./lists.js";
import { makeProfile } from "./profile.js";
import { makeSubtasks } from "./subtasks.js";
import { makeVerdict } from "./verdict.js";

const main = document.getElementById("main");
const notice = document.getElementById("notice");
/** Milliseconds until another try when the driver does not answer. */
const AGAIN = 3000;
/** Milliseconds without an event after which the driver does not answer: it sends one each second. */
const SILENCE = 10_000;
const LOST = "The driver does not answer. What you see is from before.";
let stop = () => {};

function tell(text) {
  notice.hidden = text === "";
  say(notice, text);
}

function header(title, state) {
  say(document.getElementById("job-name"), title);
  say(document.getElementById("job-state"), state);
  document.title = `${title} · Headgate`;
}

/** The parts of a job's page, in their order. A further part is one more line here. */
function makePage(job) {
  const [verdict, graph, tasks, profile, channels, lag, checkpoints] = [["verdict", "Verdict"], ["graph", "Graph"], ["subtasks", "Subtasks"],
    ["profile", "Profile of a function"], ["channels", "Channels"], ["lag", "Lag of sources"], ["checkpoints", "Checkpoints"]].map(([id, title]) => section(id, title));
  const history = makeHistory(job, () => tell(LOST));
  let last = null;
  const select = (vertex, subtask) => { history.select(vertex, subtask); update(last); };
  const hottest = (vertex) => last.subtasks.find((task) => task.vertex === vertex)?.subtask ?? 0;
  const graphOf = makeGraph(graph.body, (vertex) => select(vertex, hottest(vertex)));
  const parts = [makeVerdict(verdict.body), history, makeLag(lag.body), makeCheckpoints(checkpoints.body),
    makeProfile(profile.body, job), makeChannels(channels.body, job)];
  const tasksOf = makeSubtasks(tasks.body, (task) => select(task.vertex, task.subtask));
  const report = el("a", { id: "report", href: "/report", hidden: "" }, "Report of this program");
  const save = el("p", { class: "controls", id: "save" }, el("a", { href: `/jobs/${job}/page`, download: "" }, "Save this page"),
    el("a", { href: `/jobs/${job}/recording`, download: "" }, "Save the last ten minutes for headgate doctor"), report);

  function update(overview) {
    last = overview;
    report.hidden = !overview.has_report;
    parts.forEach((part) => part.update(overview));
    const selected = history.selected;
    graphOf.update(overview, selected?.vertex);
    tasksOf.update(overview, selected);
    const { name, state, duration_s: ran, restarts } = overview.job;
    header(name, [`${state} ${state === "RUNNING" ? "for" : "after"} ${format.duration(Math.round(ran))}`, restarts ? `${restarts} ${restarts > 1 ? "restarts" : "restart"}` : ""].filter(Boolean).join(" · "));
  }
  main.replaceChildren(verdict.node, graph.node, tasks.node, profile.node, history.node, channels.node, lag.node, checkpoints.node, ...(saved === null ? [save] : []));
  const again = () => { if (last) update(last); };
  addEventListener("resize", again);
  const stopLooking = onceFree(again);
  return { update, close: () => { removeEventListener("resize", again); stopLooking(); parts.forEach((part) => part.close?.()); } };
}

function showJob(job) {
  const page = makePage(job);
  let timer = 0;
  let source = null;
  let isLeft = false;
  const open = () => {
    source = new EventSource(`/jobs/${job}/events`);
    source.addEventListener("overview", (event) => { tell(""); wait(); page.update(JSON.parse(event.data)); });
    source.addEventListener("end", close);
    source.addEventListener("error", lose);
    wait();
  };
  const wait = () => { clearTimeout(timer); timer = setTimeout(lose, SILENCE); };
  const close = () => { clearTimeout(timer); source.close(); };
  const lose = async () => {
    close();
    tell(LOST);
    timer = setTimeout(open, AGAIN);
    if (!await isUnknown(job) || isLeft) return;
    stop();
    history.replaceState(null, "", "#");
    stop = showJobs(`The driver does not know the job ${job}: its program has ended, or later jobs have taken its place.`);
  };
  open();
  return () => { isLeft = true; close(); page.close(); };
}

/** Whether the driver answers, and says that there is no such job. */
async function isUnknown(job) {
  try {
    await read(`/jobs/${job}`);
    return false;
  } catch (error) {
    return error.status === 404;
  }
}

/** The page as it was saved. Only what the reader chooses still changes it. */
function showSaved() {
  const { job, now } = saved.overview;
  document.querySelector("nav").hidden = true;
  makePage(job.id).update(saved.overview);
  tell(`This page was saved on ${format.day(now)}. It does not change any more.`);
}

/** The list of jobs. `note` says why it is shown, if the reader did not ask for it. */
function showJobs(note = "") {
  header("Jobs", "");
  const box = el("section", { "aria-label": "Jobs" });
  const list = makeJobList(box);
  main.replaceChildren(box);
  let timer = 0;
  const load = async () => {
    try {
      const { jobs } = await read("/jobs");
      tell(note);
      if (timer === 0 && jobs.length === 1 && note === "") { location.hash = jobs[0].id; return; }
      list.update(jobs, Date.now() / 1000);
    } catch {
      tell(LOST);
    }
    timer = setTimeout(load, AGAIN);
  };
  load();
  return () => clearTimeout(timer);
}

function route() {
  const job = location.hash.slice(1);
  if (job === "main") return;
  stop();
  tell("");
  main.replaceChildren();
  stop = /^[\w-]+$/.test(job) ? showJob(job) : showJobs();
}

document.getElementById("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
document.getElementById("all-jobs").addEventListener("click", (event) => { event.preventDefault(); stop(); history.pushState(null, "", "#"); stop = showJobs(); });
if (saved !== null) {
  showSaved();
} else {
  addEventListener("hashchange", route);
  route();
}
