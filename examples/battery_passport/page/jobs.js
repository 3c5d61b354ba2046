// The jobs behind a passport: each with its runs, what ended them, and the worker that runs them.

const ENDS = { completed: "completed", retried: "failed, tried again", crashed: "its worker was killed after",
  failed: "failed", poisoned: "given up", released: "given back", cancelled: "cancelled", snoozed: "later" };
const attempts = new Map();  // by job id: its runs, and the version of the job that they are of

export function drawJobs(list, jobs, element, ask) {
  list.replaceChildren(...jobs.map((job) => {
    const runs = attempts.get(job.jobId)?.runs ?? [];
    const row = element("li", "", `job ${job.status.toLowerCase()}`);
    const name = element("code", job.jobType);
    name.title = job.jobId;
    row.append(name, element("span", `attempt ${job.attempt} of ${job.maxAttempts}`, "attempt"),
      element("b", job.state));
    if (runs.length > 1) {
      const chips = element("div", "", "chips");
      chips.append(...runs.map((run) => chip(run, element)));
      row.append(chips);
    }
    return row;
  }));
  for (const job of jobs) {
    if (attempts.get(job.jobId)?.version === job.version) continue;
    attempts.set(job.jobId, { version: job.version, runs: attempts.get(job.jobId)?.runs ?? [] });
    ask(`/api/jobs/${job.jobId}/attempts`).then(({ items }) => {
      attempts.set(job.jobId, { version: job.version, runs: items });
      if (items.length) list.dispatchEvent(new Event("change"));
    });
  }
}

function chip(run, element) {
  const seconds = run.endedAt ? ` ${((new Date(run.endedAt) - new Date(run.startedAt)) / 1000).toFixed(2)} s` : "";
  const shown = element("span", `${ENDS[run.outcome] ?? "runs"}${seconds}`, `chip ${run.outcome ?? "running"}`);
  if (run.errorMessage) shown.title = run.errorMessage;
  return shown;
}

function takenOver(since) {
  const all = [...attempts.values()].flatMap(({ runs }) => runs);
  return all.filter((run) => run.outcome === "crashed" && new Date(run.endedAt) > since).length;
}

export async function followWorker({ says, kill, jobs }, ask) {
  // Say which process works, and kill it where the button is clicked.
  let killed = 0, since = null, works = 0;
  function say() {
    const taken = takenOver(since);
    const does = taken ? `took over ${taken} ${taken === 1 ? "job" : "jobs"}` : "runs the next jobs";
    if (!killed) says.textContent = `Worker ${works} runs these jobs.`;
    else says.textContent = `Worker ${killed} was killed${works === killed ? "" : `; ${works} ${does}`}.`;
  }
  async function look() {
    works = (await ask("/worker")).pid;
    say();
    if (works === killed) setTimeout(look, 100);
  }
  kill.addEventListener("click", async () => {
    since = new Date();
    killed = (await ask("/worker/kill", { method: "POST" })).killed || killed;
    await look();
  });
  jobs.addEventListener("change", say);
  jobs.addEventListener("reset", () => {  // others are shown: who took which over is said of these
    killed = 0;
    say();
  });
  await look();
}
