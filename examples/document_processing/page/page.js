// The page: shows what the server sends. What comes from a document is only ever set as text.

const EVENTS = ["state", "submitted", "started", "progressed", "progress", "retried", "snoozed",
  "released", "crashed", "redriven", "completed", "failed", "poisoned", "cancelled"];
const HIDDEN = /(\[(?:e-mail|iban|card|phone|name)\])/;

const jobs = new Map();              // the newest job of each document
let people = [], documents = [], types = [];
let me = sessionStorage.me, events = null, asking = null;

const find = (selector, within = document) => within.querySelector(selector);

// -- asking -------------------------------------------------------------------------------------

async function ask(path, body) {
  const response = await fetch(path, body === undefined ? {} : {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (response.ok) return response.status === 204 ? null : response.json();
  const problem = await response.json();
  throw Object.assign(new Error(`${problem.title}. ${problem.detail}`), { problem });
}

/** Do something, and show what was refused. */
async function attempt(deed) {
  find("#problem").hidden = true;
  try {
    await deed();
  } catch (error) {
    find("#problem").textContent = error.message;
    find("#problem").hidden = false;
    if (error.problem?.errorCode === "JOB_TYPE_DISABLED") await askForTypes();
  }
}

/** For what is repeated soon: it may fail now, while the server is away. */
const quietly = (deed) => deed().catch(() => {});

async function askForTypes() {
  const before = JSON.stringify(types);
  types = (await ask("/api/job-types")).items;
  if (JSON.stringify(types) !== before) show();
}

async function askForDocuments() {
  documents = await ask("/api/documents");
  show();
}

// -- events of jobs -----------------------------------------------------------------------------

function keep(job) {
  const known = jobs.get(job.subjectId);
  if (known && known.jobId !== job.jobId && known.createdAt > job.createdAt) return;
  if (known && known.jobId === job.jobId && known.version > job.version) return;
  jobs.set(job.subjectId, job);
}

/** A job that ended has changed its document. */
async function hear(job) {
  keep(job);
  if (job.completedAt) await askForDocuments(); else show();
}

/** One stream for all jobs that may be seen, also those that a colleague begins. */
function listen() {
  events = new EventSource("/api/events");
  for (const name of EVENTS) events.addEventListener(name, (event) => hear(JSON.parse(event.data)));
  events.addEventListener("reset", askForJobs);
}

/** The same without a stream: the browser itself sends If-None-Match, and gets a 304. */
function askAgainAndAgain() {
  asking = setInterval(() => quietly(async () => {
    for (const job of jobs.values())
      if (!job.completedAt) await hear(await ask(`/api/jobs/${job.jobId}/status`));
  }), 1000);
}

async function askForJobs() {
  for (const job of (await ask("/api/jobs?limit=50")).items.reverse()) keep(job);
  show();
}

function follow(by) {
  events?.close();
  clearInterval(asking);
  for (const way of ["live", "asking"]) find(`#${way}`).ariaPressed = way === by;
  if (isOperator()) return;
  if (by === "live") listen(); else askAgainAndAgain();
}

// -- doing --------------------------------------------------------------------------------------

async function become(person) {
  await ask("/login", { person });
  sessionStorage.me = me = person;
  jobs.clear();
  documents = [];
  show();
  await askForTypes();
  if (!isOperator()) await Promise.all([askForDocuments(), askForJobs()]);
  follow(find("#live").ariaPressed === "true" ? "live" : "asking");
}

async function analyze(documentId, type) {
  const accepted = await ask("/api/analysis/enqueue", { documentId, type });
  await hear(await ask(accepted.statusUrl));
}

const isOperator = () => people.find((person) => person.id === me)?.is_operator;

// -- showing ------------------------------------------------------------------------------------

function element(name, text, properties = {}) {
  return Object.assign(document.createElement(name), { textContent: text, ...properties });
}

function show() {
  find("#people").replaceChildren(...people.map(shownPerson));
  find("#work").hidden = !me || isOperator();
  find("#switches").hidden = !isOperator();
  const off = types.filter((type) => type.disabled).map((type) => type.jobType);
  find("#banner").hidden = !off.length;
  find("#banner").textContent =
    `Switched off by an operator for now: ${off.join(", ")}. What is asked of it is refused.`;
  find("#types").replaceChildren(...types.map(shownType));
  const open = new Set([...document.querySelectorAll("li[id]:has(details[open])")].map((li) => li.id));
  find("#documents").replaceChildren(...documents.map((one) => shownDocument(one, off, open)));
}

function shownPerson(person) {
  const button = element("button", person.name, { onclick: () => attempt(() => become(person.id)) });
  button.append(element("small", person.company));
  button.ariaPressed = person.id === me;
  return button;
}

function shownType(type) {
  const verb = type.disabled ? "enable" : "disable";
  const item = element("li", "");
  item.append(
    element("span", type.jobType),
    element("button", type.disabled ? "Switch on" : "Switch off", {
      onclick: () => attempt(async () => {
        await ask(`/api/job-types/${type.jobType}/${verb}`, null);
        await askForTypes();
      }),
    }),
  );
  return item;
}

function shownDocument(one, off, open) {
  const item = find("#document").content.cloneNode(true).firstElementChild;
  const { index, statistics, summary } = one.findings;
  item.id = one.documentId;
  find("h2", item).textContent = one.title;
  find(".facts", item).textContent = [
    one.isMine ? "yours" : "shared with you",
    one.hidden !== null && `${one.hidden} personal details hidden`,
    index && `language: ${index.language}`,
    statistics && `${statistics.words} words in ${statistics.sentences} sentences`,
  ].filter(Boolean).join(" · ");
  find(".keywords", item).replaceChildren(
    ...Object.keys(index?.keywords ?? {}).map((word) => element("span", word)));
  find(".summary", item).replaceChildren(...redacted(summary?.text ?? ""));
  find(".summary", item).hidden = !summary;
  find(".text", item).replaceChildren(...redacted(one.redacted ?? "Not processed yet."));
  find("details", item).open = open.has(one.documentId);
  showJob(find(".job", item), jobs.get(one.documentId));
  for (const button of item.querySelectorAll("[data-type]")) {
    button.disabled = off.includes("ai-analyze");
    button.onclick = () => attempt(() => analyze(one.documentId, button.dataset.type));
  }
  return item;
}

function redacted(text) {
  return text.split(HIDDEN).map((part) =>
    HIDDEN.test(part) ? element("mark", part.slice(1, -1)) : document.createTextNode(part));
}

function showJob(line, job) {
  if (!job) return;
  line.hidden = false;
  find(".state", line).textContent = job.state;
  find(".state", line).classList.add(job.status);
  find("progress", line).hidden = Boolean(job.completedAt);
  find("progress", line).value = job.progress ?? 0;
  const said = job.errorMessage ?? job.phase ?? "";
  find(".phase", line).textContent = [job.jobType, said].filter(Boolean).join(" · ");
}

// -- beginning ----------------------------------------------------------------------------------

find("#live").onclick = () => follow("live");
find("#asking").onclick = () => follow("asking");
find("#new").onsubmit = (event) => {
  event.preventDefault();
  const form = event.target;
  attempt(async () => {
    const accepted = await ask("/api/documents", Object.fromEntries(new FormData(form)));
    form.reset();
    await askForDocuments();
    await hear(await ask(accepted.statusUrl));
  });
};
setInterval(() => me && quietly(askForTypes), 3000);
people = await ask("/api/people");
show();
await attempt(() => become(me ?? people[0].id));
