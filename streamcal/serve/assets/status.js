// The status page: asks /api/v1 every two seconds and shows the answers. Nothing is loaded from elsewhere, nothing is
// sent but the questions.
"use strict";

(() => {
  const every = 2000; // ms between questions; a snapshot comes once a second at most
  const patience = 15000;
  const page = (name) => document.querySelector(`[data-show="${name}"]`);
  const { figure: fig, count, moment, withError, span } = streamcal.text;
  const { panels } = streamcal;
  const pageSize = 25;
  const chosen = { model: null, window: null, kind: "served", sort: "worst", search: "", offset: 0 };
  const shown = { status: null, sequence: null, model: null, key: null, maps: null };

  // Text is written only where it changed, so that screen readers hear of changes alone.
  function say(name, words) {
    const place = page(name);
    if (place.textContent !== words) place.textContent = words;
  }

  async function ask(path, parameters = {}) {
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== ""));
    const answer = await fetch(`api/v1/${path}?${query}`, { cache: "no-cache", signal: AbortSignal.timeout(patience) });
    if (answer.status === 404) return null; // not known yet, or gone
    if (!answer.ok) throw new Error(`${path} answered ${answer.status}`);
    return answer.json();
  }

  const stateWords = { ok: "trusted", watch: "watch", alarm: "alarm", unknown: "no verdict yet" };

  function chip(state, words) {
    const made = document.createElement("span");
    made.className = `chip ${state}`;
    made.textContent = words;
    return made;
  }

  function showStatus(status) {
    say("event-time", moment(status.event_time_ms));
    const stale = status.snapshot_age_s !== null && status.snapshot_age_s > 30;
    const ready = status.ready ? (stale ? `ready, but the figures are ${span(status.snapshot_age_s * 1000)} old` : "ready") : `not ready: ${status.not_ready_reason}`;
    say("ready", ready);
    page("ready").className = `chip ${status.ready && !stale ? "ok" : "alarm"}`;
    page("nothing").hidden = status.models.length > 0;
    say("nothing", status.ready ? "No prediction has been read yet." : `The daemon is ${status.not_ready_reason}.`);
    showModels(status.models);
    showStream(status);
  }

  function showModels(models) {
    const names = JSON.stringify(models.map((model) => [model.name, model.verdict.state, model.alarms, chosen.model]));
    page("models").parentElement.hidden = models.length < 2;
    if (page("models").names === names) return;
    page("models").names = names;
    const focused = document.activeElement?.closest?.("[data-show=models]") ? document.activeElement.model : null;
    page("models").replaceChildren(...models.map((model) => {
      const item = document.createElement("li");
      const button = item.appendChild(document.createElement("button"));
      button.type = "button";
      button.model = model.name;
      button.setAttribute("aria-pressed", String(model.name === chosen.model));
      button.append(model.name, chip(model.verdict.state, model.alarms ? `${stateWords[model.verdict.state]}: ${count(model.alarms)}` : stateWords[model.verdict.state]));
      button.addEventListener("click", () => {
        document.querySelector("#search").value = "";
        choose({ model: model.name, window: null, search: "" });
      });
      return item;
    }));
    if (focused !== null) [...page("models").querySelectorAll("button")].find((button) => button.model === focused)?.focus();
  }

  function tiles(document_, window) {
    const { raw = {}, served = {} } = window ?? {};
    const entries = [
      ["ECE, served", fig(served.ece), `noise floor ${fig(served.ece_noise_floor)}; raw ${fig(raw.ece)}`],
      ["Slope, served", withError(served.platt_slope, served.platt_slope_se), `below 1: over-confident; raw ${fig(raw.platt_slope)}`],
      ["Predicted / observed", fig(served.ratio), `raw ${fig(raw.ratio)}`],
      ["Labelled predictions", count(served.n ?? raw.n), `${count(served.positives ?? raw.positives)} positive`],
      ["Evidence", document_.standing ? `${fig(document_.standing.evidence)} of ${fig(document_.standing.threshold)}` : "–", document_.standing ? `over-dispersion ${fig(document_.standing.phi)}` : ""],
      ["Map in force", document_.champion ? `version ${document_.champion.version}` : "none", document_.champion ? `${document_.champion.family}, ${moment(document_.champion.promoted_ms)} UTC` : "scores are served as they come"],
    ];
    page("tiles").replaceChildren(...entries.map(([name, value, more]) => {
      const tile = document.createElement("div");
      tile.appendChild(document.createElement("dt")).textContent = name;
      tile.appendChild(document.createElement("dd")).textContent = value;
      const small = tile.appendChild(document.createElement("dd"));
      small.className = "small";
      small.textContent = more;
      return tile;
    }));
  }

  function facts(name, entries) {
    page(name).replaceChildren(...entries.flatMap(([term, value]) => {
      const dt = document.createElement("dt");
      const dd = document.createElement("dd");
      dt.textContent = term;
      if (value instanceof Node) dd.append(value);
      else dd.textContent = value;
      return [dt, dd];
    }));
  }

  function showStream(status) {
    const lag = status.partitions.map((one) => one.lag).filter((value) => value !== null);
    const delay = status.partitions.map((one) => one.delay_ms).filter((value) => value !== null);
    const { rejected, ...counters } = status.counters;
    const reasons = Object.entries(rejected).flatMap(([topic, by]) => Object.entries(by).map(([reason, n]) => `${count(n)} ${reason} (${topic})`));
    facts("stream", [
      ["Readiness", status.ready ? "ready" : `not ready: ${status.not_ready_reason}`],
      ["Lag, all partitions", lag.length ? `${count(d3.sum(lag))} records` : "–"],
      ["Watermark delay, worst", delay.length ? span(d3.max(delay)) : "–"],
      ["Pending predictions", `${count(status.pending)} (${d3.format(".3~s")(status.pending_bytes)}B)`],
      ["Matched", count(counters.matched)],
      ["Expired without a label", count(counters.expired)],
      ["Rejected", reasons.length ? reasons.join(", ") : "none"],
      ["Version", status.version],
    ]);
    const rows = status.partitions.map((one) => [one.topic, one.partition, moment(one.watermark_ms), span(one.delay_ms), span(one.behind_ms), count(one.lag)]);
    page("partitions").replaceChildren(streamcal.table(["topic", "partition", "watermark (UTC)", "delay", "behind the others", "lag"], rows));
    page("counters").replaceChildren(streamcal.table(["counter", "total"], Object.entries(counters).map(([name, n]) => [name, count(n)])));
  }

  function showLabels(model) {
    const { labels, early } = model;
    facts("labels", [
      ["Labels known of matured predictions", labels ? d3.format(".1%")(labels.coverage) : "–"],
      ["Label delay", labels?.delays.length ? labels.delays.map((one) => `${d3.format(".0%")(one.share)} within ${span(one.seconds * 1000)}`).join(", ") : "–"],
      ["Last outcome", `${moment(model.last_outcome_ms)} UTC`],
      ["Final up to", `${moment(model.sealed_until_ms)} UTC`],
      ["Sealing waits for", model.blocking_partition === null ? "nothing" : `partition ${model.blocking_partition}`],
      ["Early ratio (a warning, no figure)", early?.ratio ? `${withError(early.ratio, early.ratio_se)} on ${count(early.positives)} positives` : "–"],
      ["Shift of scores", model.score_shift.length ? model.score_shift.map((one) => `${one.window}: ${fig(one.index)} (noise ${fig(one.noise_floor)})`).join(", ") : "–"],
      ["Change triggers", Object.entries(model.changes).map(([name, n]) => `${name} ${count(n)}`).join(", ") || "none"],
    ]);
  }

  function showAlarms(alarms) {
    page("alarms").replaceChildren(alarms.length ? streamcal.table(
      ["from (UTC)", "until", "segment", "fault", "evidence"],
      alarms.map((one) => [moment(one.at_ms), one.ended_ms === null ? { text: "in force", className: "bad" } : moment(one.ended_ms), one.segment, panels.faults[one.fault], fig(one.evidence)]),
      { wordColumns: 4 }) : streamcal.said("No alarm has been raised."));
  }

  function showWindows(windows) {
    const names = windows.map((one) => one.window);
    const select = document.querySelector("#window");
    if (JSON.stringify(names) !== select.names) {
      select.names = JSON.stringify(names);
      select.replaceChildren(...names.map((name) => new Option(name === "all" ? "everything read" : name, name)));
    }
    select.value = chosen.window ?? names[0];
  }

  function showSegments(answer) {
    const rows = answer?.segments ?? [];
    const found = answer?.found ?? 0;
    const offset = answer?.offset ?? 0; // of what was answered, which may not be what is wanted by now
    say("segments-found", answer ? `${rows.length ? offset + 1 : 0} to ${offset + rows.length} of ${count(found)}${found < answer.total ? ` found among ${count(answer.total)}` : ""} segments` : "");
    page("segments").replaceChildren(rows.length ? panels.segments(rows) : streamcal.said(answer?.total ? "No segment is called so." : "There are no segments in this window."));
    document.querySelector("#before").disabled = offset === 0;
    document.querySelector("#after").disabled = offset + rows.length >= found;
  }

  // Whether what is chosen is shown now: something else may have been chosen while the answers came.
  async function showModel() {
    const { model } = chosen;
    const [document_, maps] = await Promise.all([ask("model", { model }), ask("maps", { model })]);
    if (!document_ || model !== chosen.model) return false;
    const names = document_.windows.map((one) => one.window);
    if (!names.includes(chosen.window)) chosen.window = names[0] ?? null;
    const { window, kind: score_kind, sort, search, offset } = chosen;
    // without a window there are no figures yet, and nothing to ask for
    const [history, segments] = window === null ? [null, null] : await Promise.all([
      ask("history", { model, window }),
      ask("segments", { model, window, score_kind, sort, search, offset, limit: pageSize }),
    ]);
    if (model !== chosen.model || window !== chosen.window) return false;
    page("model").hidden = false;
    say("model-name", `Model ${document_.name}`);
    say("sentence", document_.verdict.sentence);
    say("done", document_.verdict.done);
    page("verdict").className = `verdict ${document_.verdict.state}`;
    showWindows(document_.windows);
    const held = document_.windows.find((one) => one.window === window);
    tiles(document_, held);
    panels.reliability(page("model"), held);
    const alarms = document_.alarms.filter((one) => one.segment === "all").map((one) => ({ from: one.at_ms, to: one.ended_ms }));
    panels.overTime(page("model"), history, alarms);
    showSegments(segments);
    showLabels(document_);
    showAlarms(document_.alarms);
    const drawn = maps && JSON.stringify(maps.maps.map((one) => [one.version, one.attempts, one.in_force, one.at_ms]));
    if (maps && shown.maps !== `${model} ${drawn}`) {
      panels.maps(page("model"), maps);
      shown.maps = `${model} ${drawn}`;
    }
    page("model").dataset.sequence = document_.sequence;
    return true;
  }

  let busy = false;
  let again = false;
  async function look() {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const status = await ask("status");
      const names = status.models.map((one) => one.name);
      if (!names.includes(chosen.model)) {
        const worst = ["alarm", "watch", "unknown", "ok"].map((state) => status.models.find((one) => one.verdict.state === state)).find((one) => one);
        chosen.model = worst?.name ?? null;
      }
      showStatus(status);
      const key = JSON.stringify([status.sequence, chosen]);
      if (chosen.model !== null && key !== shown.key) {
        if (await showModel()) shown.key = key;
      }
      page("trouble").hidden = true;
      say("updated", `updated ${d3.timeFormat("%H:%M:%S")(new Date())}`);
    } catch (error) {
      page("trouble").hidden = false;
      say("trouble", `The daemon does not answer (${error.message}). What is shown is what it said last.`);
    } finally {
      busy = false;
      if (again) { again = false; look(); }
    }
  }

  function choose(what) {
    Object.assign(chosen, { offset: 0 }, what);
    const link = new URLSearchParams();
    if (chosen.model !== null) link.set("model", chosen.model);
    if (chosen.window !== null) link.set("window", chosen.window);
    history.replaceState(null, "", `#${link}`);
    look();
  }

  const linked = new URLSearchParams(location.hash.slice(1));
  chosen.model = linked.get("model");
  chosen.window = linked.get("window");

  document.querySelector("#window").addEventListener("change", (event) => choose({ window: event.target.value }));
  document.querySelector("#kind").addEventListener("change", (event) => choose({ kind: event.target.value }));
  document.querySelector("#sort").addEventListener("change", (event) => choose({ sort: event.target.value }));
  document.querySelector("#search").addEventListener("input", (event) => choose({ search: event.target.value.trim() }));
  document.querySelector("#before").addEventListener("click", () => choose({ offset: Math.max(0, chosen.offset - pageSize) }));
  document.querySelector("#after").addEventListener("click", () => choose({ offset: chosen.offset + pageSize }));
  document.querySelector("#search").form.addEventListener("submit", (event) => event.preventDefault());

  // Charts are as wide as their place was when they were drawn.
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    shown.key = shown.maps = null;
    look();
  });
  document.addEventListener("visibilitychange", () => document.hidden || look());
  setInterval(() => document.hidden || look(), every);
  look();
})();
