// Shows the parts that only a report has: how the run ended, and its
// configuration.

function showOutcome(data) {
  const { status } = data;
  const isDone = data.outcome === "";
  setText(byId("kind"), "report");
  setText(byId("connection"), `written ${data.written} by DAPD ${data.version}`);
  const banner = byId("banner");
  if (!isDone) {
    banner.hidden = false;
    banner.classList.toggle("bad", !data.stopped);
    setText(banner, data.stopped ? `The run was stopped after step ${status.step} of ${status.total_steps}.`
      : `The run failed after step ${status.step} of ${status.total_steps}: ${data.outcome}`);
  }
  setText(byId("phase"), isDone ? "done" : data.stopped ? "stopped" : "failed");
  byId("phase").dataset.phase = isDone ? "done" : "failed";
  const duration = formatSeconds(Math.round(status.elapsed_seconds));
  setText(byId("progress-text"), `${status.step} of ${status.total_steps} steps` +
    (status.start_step > 0 ? `, those after step ${status.start_step} in ${duration}` : ` in ${duration}`));
}

function showConfiguration(rows, onlySet) {
  const shown = rows.filter((row) => !onlySet || row.origin !== "default");
  const sections = [...new Set(shown.map((row) => row.key.split(".")[0]))];
  byId("configuration").replaceChildren(html("table", { class: "config-table" },
    sections.map((section) => html("tbody", {},
      html("tr", { class: "group" }, html("th", { colspan: 3, scope: "colgroup" }, section)),
      shown.filter((row) => row.key.split(".")[0] === section).map((row) => html("tr", { "data-key": row.key },
        html("th", { scope: "row", class: "code" }, row.key), html("td", { class: "code" }, row.value), html("td", { class: "note" }, row.origin)))))));
}

function showReport(data) {
  byId("charts-section").before(byId("evaluation-section"));
  setText(byId("workers-title"), "Workers at the end");
  showStatus(data.status, data.history);
  showOutcome(data);
  document.title = `${data.status.run_name}: report`;
  showSteps(data.history, data.status);
  showHeldOutAnswers(data.answers.held_out);
  showStepAnswers(data.answers);
  byId("answers-choices").hidden = true;
  byId("configuration-section").hidden = false;
  addChoices("configuration-choices", [["as set", true], ["all keys", false]], (onlySet) => showConfiguration(data.config, onlySet));
  showConfiguration(data.config, true);
  setText(byId("footer"), "The curves' numbers are in metrics.jsonl beside this file, the answers in samples/.");
}
