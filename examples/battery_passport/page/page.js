// The page: sends documents in, follows their jobs by one event stream, and shows what they make.
import { drawJobs, followWorker } from "/page/jobs.js";
import { pixelsOf, pixelsOfCamera } from "/page/pixels.js";

const STEPS = [
  ["PARSE_FACTS", "Read the facts", (jobs) => `${sum(jobs, "facts")} facts in ${jobs.length} ${jobs.length === 1 ? "document" : "documents"}`],
  ["BUILD_SNAPSHOT", "Seal the snapshot", ofLast((r) => `sealed, ${r.snapshot_id.slice(0, 16)}…`)],
  ["COMPILE_PASSPORT", "Compile the passport", ofLast((r) => `hash ${r.payload_hash.slice(0, 16)}…`)],
  ["SIGN_PASSPORT", "Sign the receipt", ofLast((r) => `Ed25519, key ${r.key_id}`)],
  ["GENERATE_QR", "Draw the QR code", ofLast((r) => `level M, ${r.qr.length} characters`)],
  ["EXPORT_PASSPORT", "Export", ofLast((r) => r.artefacts.slice(1).map((name) => name.split(".")[1]).join(", "))],
];
const EVENTS = ["state", "progress", "submitted", "started", "completed", "failed", "retried",
  "poisoned", "cancelled", "snoozed", "released", "crashed", "redriven"];
const $ = (id) => document.getElementById(id);

const runs = new Map();      // by correlation id: the jobs that follow from one click
let current = null;          // the run that is shown
let shown = null;            // the passport that is shown
let scanned = "";            // what its code says

function ofLast(describe) { return (jobs) => describe(jobs.at(-1).result); }
function sum(jobs, name) { return jobs.reduce((total, job) => total + job.result[name], 0); }

function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  made.textContent = text;
  made.className = className;
  return made;
}

async function ask(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

// -- in -------------------------------------------------------------------------------------------

async function send(path, title, body) {
  const correlation = crypto.randomUUID();
  begin(correlation, title);
  try {
    const headers = { "x-correlation-id": correlation };
    const accepted = await ask(path, { method: "POST", headers, body });
    if (accepted.duplicate) await known(accepted);
  } catch (error) {
    notice(`That was not accepted (${error.message}).`);
  }
}

async function known(accepted) {
  const job = await ask(accepted.statusUrl);
  const listed = await ask("/api/jobs?limit=200");
  const jobs = listed.items.filter((one) => one.correlationId === job.correlationId);
  runs.delete(current.correlation);
  begin(job.correlationId, current.title);
  jobs.reverse().forEach(hear);
  notice("These bytes were sent in before: the same jobs, the same passport.");
}

function begin(correlation, title) {
  current = runs.get(correlation) ?? { correlation, title, jobs: new Map() };
  runs.set(correlation, current);
  if (title) current.title = title;
  notice("");
  clear();
  draw();
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// -- live -----------------------------------------------------------------------------------------

function follow() {
  const events = new EventSource("/api/events");
  for (const name of EVENTS) events.addEventListener(name, (event) => hear(JSON.parse(event.data)));
}

function hear(job) {
  if (!STEPS.some(([type]) => type === job.jobType)) return;
  const run = runs.get(job.correlationId) ?? { correlation: job.correlationId, title: "", jobs: new Map() };
  runs.set(job.correlationId, run);
  const before = run.jobs.get(job.jobId);
  if (before && before.version > job.version) return;
  run.jobs.set(job.jobId, job);
  current ??= run;
  if (run !== current) return;
  draw();
  const version = job.result?.passport_version_id;
  if (job.status === "Completed" && version) show(version, job.jobType);
}

function stateOf(jobs) {
  if (!jobs.length) return "waiting";
  if (jobs.some((job) => ["Failed", "Poisoned", "Cancelled"].includes(job.status))) return "failed";
  if (jobs.some((job) => job.status === "Running")) return "running";
  if (jobs.some((job) => job.status === "Queued")) return "queued";
  return "done";
}

function draw() {
  const title = element("b", current.title || "a run");
  $("run").replaceChildren(title);
  $("steps").replaceChildren(...STEPS.map(([type, name, describe], index) => {
    let jobs = [...current.jobs.values()].filter((job) => job.jobType === type);
    let state = stateOf(jobs), text = "";
    if (type === "BUILD_SNAPSHOT" && state === "done") {
      const sealed = jobs.filter((job) => !job.result.missing.length);
      if (!sealed.length) {
        state = "held";
        text = `waits for ${jobs.at(-1).result.missing.join(", ")}: drop it too`;
      } else jobs = sealed;
    }
    const row = element("li", "", `step ${state}`);
    const mark = { done: "✓", failed: "✗" }[state] ?? String(index + 1);
    const says = element("p", text || (state === "done" ? describe(jobs) : ""));
    if (state === "failed") {
      const job = jobs.find((one) => one.errorCode);
      if (job) {
        const again = element("button", "run it again");
        again.addEventListener("click", () => fetch(`/api/jobs/${job.jobId}/redrive`, { method: "POST" }));
        // By itself, so that what turns the direction of a text does not turn what follows it.
        says.replaceChildren(element("bdi", `${job.errorCode}: ${job.errorMessage}`), again);
      }
    }
    row.append(element("span", mark, "dot"), element("h3", name), element("code", type), says);
    return row;
  }), webhook());
  drawJobs($("jobs"), [...current.jobs.values()], element, ask);
}
$("jobs").addEventListener("change", () => drawJobs($("jobs"), [...current.jobs.values()], element, ask));

function webhook() {
  const state = current.delivery ? "done" : current.isNotifying ? "running" : "waiting";
  const row = element("li", "", `step ${state}`);
  const says = current.delivery ? `verified, delivery ${current.delivery.delivery_id.slice(0, 18)}…` : "";
  row.append(element("span", current.delivery ? "✓" : "7", "dot"), element("h3", "Notify the customer"),
    element("code", "webhook"), element("p", says));
  return row;
}

async function waitForWebhook(run, version) {
  if (run.isNotifying) return;
  run.isNotifying = true;
  for (let tries = 0; tries < 40 && !run.delivery; tries += 1) {
    const received = await ask("/received");
    run.delivery = received.find((one) => one.passport_version_id === version && one.event_type === "PASSPORT_SIGNED");
    if (run === current) draw();
    if (!run.delivery) await new Promise((done) => setTimeout(done, 250));
  }
}

// -- out ------------------------------------------------------------------------------------------

function clear() {
  shown = null;
  $("passport").classList.add("empty");
  $("fields").replaceChildren();
  $("checks").replaceChildren();
  $("qr").hidden = $("stamp").hidden = $("actions").hidden = true;
  $("qr-waits").hidden = false;
}

async function show(version, after) {
  const run = current;
  const { passport, receipt_hash, key_id, artefacts } = await ask(`/passports/${version}`);
  if (run !== current) return;
  const isNew = shown !== version;
  shown = version;
  const battery = passport.battery;
  $("passport").classList.remove("empty");
  $("fields").replaceChildren(...Object.entries({
    "Serial number": battery.serial,
    Model: battery.model,
    Manufacturer: battery.manufacturer,
    "Category, chemistry": `${battery.category}, ${battery.chemistry}`,
    Capacity: `${battery.capacity_kwh} kWh`,
    "Carbon footprint": `${passport.carbon_footprint.total_kg_co2e_per_kwh} kg CO₂e/kWh`,
  }).flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  $("rule-list").replaceChildren(...passport.rules.results.filter((one) => one.verdict !== "NOT_APPLICABLE").map((one) => {
    const row = element("li", "", one.verdict);
    row.title = `${one.rule} ${one.title}: ${one.value} ${one.unit}, must be ${one.limit}`;
    row.append(element("span", one.title), element("b", `${short(one.value)} ${one.unit.length < 5 ? one.unit : ""}`.trim()));
    return row;
  }));
  $("zone").textContent = zone(battery, receipt_hash);
  stamp(key_id);
  draw_code(version, artefacts.includes("qr.png"), isNew);
  const isDone = artefacts.includes("passport.json");
  $("actions").hidden = !artefacts.includes("qr.png");
  $("links").replaceChildren(...(isDone ? artefacts : []).filter((name) => name !== "qr.png").map((name) => {
    const link = element("a", { pdf: "PDF", json: "JSON", jsonld: "JSON-LD" }[name.split(".")[1]]);
    link.href = `/passports/${version}/${name}`;
    link.target = "_blank";
    return link;
  }));
  if (isNew) $("checks").replaceChildren();
  if (after === "EXPORT_PASSPORT") {
    waitForWebhook(current, version);
    issued();
  }
}

function draw_code(version, isThere, isNew) {
  const code = $("qr");
  if (isNew || !isThere) code.hidden = true;
  $("qr-waits").hidden = isThere;
  if (isThere && !code.src.includes(version)) {
    code.src = `/passports/${version}/qr.png`;
    code.alt = "QR code of the passport";
  }
  if (isThere) code.hidden = false;
}

function stamp(key) {
  const there = $("stamp");
  if (key && there.hidden) {
    there.replaceChildren("signed", element("small", key));
    there.hidden = false;
  } else if (!key) there.hidden = true;
}

function short(value) { return String(Number(Number(value).toPrecision(4))); }

function zone(battery, hash) {
  const clean = (text) => text.toUpperCase().replace(/[^A-Z0-9]+/g, "<");
  const first = `P<BAT${clean(battery.manufacturer)}<<${clean(battery.model)}`;
  const second = `${clean(battery.serial)}<<${hash.slice(0, 24).toUpperCase()}`;
  return [first, second].map((line) => line.slice(0, 44).padEnd(44, "<")).join("\n");
}

async function issued() {
  const passports = await ask("/passports");
  $("done-title").hidden = !passports.length;
  $("issued").replaceChildren(...passports.map((one) => {
    const row = element("li");
    const open = element("button", one.serial);
    open.append(element("small", one.issued_at.slice(0, 16).replace("T", " ")));
    open.addEventListener("click", () => show(one.passport_version_id));
    row.append(open);
    return row;
  }));
  return passports;
}

// -- scanning -------------------------------------------------------------------------------------

async function scan(picture) {
  const answer = await ask(`/scan?width=${picture.width}&height=${picture.height}`,
    { method: "POST", body: picture.pixels });
  if (!answer.text) return false;
  scanned = answer.text;
  const checks = await ask(`/verify?code=${encodeURIComponent(scanned)}`);
  const read = element("li", "Read from the picture");
  read.append(element("code", scanned));
  $("checks").replaceChildren(read, ...checks.map((one) => element("li", one.what, one.holds ? "" : "wrong")));
  return true;
}

$("scan").addEventListener("click", async () => {
  if (!await scan(await pixelsOf($("qr")))) notice("No code was found.");
});
$("camera").addEventListener("click", async () => {
  try {
    await pixelsOfCamera($("video"), scan);
  } catch (error) {
    notice(`The camera cannot be used (${error.message}).`);
  }
});

// -- files ----------------------------------------------------------------------------------------

async function sendFiles(files) {
  for (const file of files) await send(`/documents?name=${encodeURIComponent(file.name)}`, file.name, file);
}
$("file").addEventListener("change", (event) => sendFiles(event.target.files));
for (const name of ["dragover", "dragleave", "drop"]) {
  $("drop").addEventListener(name, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", name === "dragover");
    if (name === "drop") sendFiles(event.dataTransfer.files);
  });
}

// -- the beginning --------------------------------------------------------------------------------

async function start() {
  const desk = await ask("/desk");
  const tested = element("b", `${desk.rules.cases} tests passed`);
  $("rules").replaceChildren(`${desk.rules.rules} rules of ${desk.rules.name}, `, tested);
  $("tenants").replaceChildren(...Object.entries(desk.tenants).map(([tenant, name]) => {
    const choose = element("button", name);
    choose.setAttribute("aria-pressed", tenant === desk.tenant);
    choose.addEventListener("click", () => {
      document.cookie = `tenant=${tenant}; path=/; samesite=strict`;
      location.reload();
    });
    return choose;
  }));
  $("samples").replaceChildren(...desk.samples.map((sample) => {
    const card = element("button", "", "sample");
    card.type = "button";
    card.dataset.sample = sample.name;
    card.append(element("strong", sample.title), element("span", sample.text));
    for (const file of sample.files) card.append(element("i", file.split(".").at(-1).toUpperCase()));
    card.addEventListener("click", () => send(`/samples/${sample.name}`, sample.title));
    return card;
  }));
  follow();
  followWorker({ says: $("worker"), kill: $("kill"), jobs: $("jobs") }, ask);
  const passports = await issued();
  const listed = await ask("/api/jobs?limit=200");
  const newest = listed.items.find((job) => job.jobType === "EXPORT_PASSPORT" && job.status === "Completed");
  if (!newest || current) return; // a run has begun meanwhile
  const made = passports.find((one) => one.passport_version_id === newest.result.passport_version_id);
  begin(newest.correlationId, made?.serial);
  listed.items.filter((job) => job.correlationId === newest.correlationId).reverse().forEach(hear);
}

start();
