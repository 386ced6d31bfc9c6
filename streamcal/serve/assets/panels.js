// The charts of one model, from the documents of /api/v1; the replay report has documents of the same shape.
"use strict";

streamcal.panels = (() => {
  const { figure: fig, count, moment, withError, interval, span } = streamcal.text;
  const by = (root, name) => root.querySelector(`[data-chart="${name}"]`);

  const around = (values, errors, sign) => values.map((value, i) => (value === null || errors[i] === null ? null : value + sign * 1.96 * errors[i]));

  // Figures over time. history: the document of /api/v1/history; alarms: [{from, to}] of the whole model.
  const unknown = { ece: [], ece_noise_floor: [], platt_slope: [], platt_slope_se: [], ratio: [] };
  const noHistory = { at_ms: [], raw: unknown, served: unknown, threshold: [], evidence: [] };

  // Without a history the charts say so: those of another model must not stay.
  function overTime(root, given, alarms) {
    const history = given ?? noHistory;
    const { at_ms: at, raw, served } = history;
    const draw = (name, chart) => by(root, name) && streamcal.charts.overTime(by(root, name), { at, spans: alarms, ...chart });
    draw("ece", {
      zero: true, yLabel: "ECE", label: "ECE over time, raw and served, with the noise floor of the served one",
      lines: [
        { name: "raw", kind: "raw", values: raw.ece },
        { name: "noise floor", kind: "floor", values: served.ece_noise_floor },
        { name: "served", kind: "served", values: served.ece },
      ],
    });
    draw("slope", {
      reference: 1, yLabel: "Platt slope", label: "Platt slope over time, raw and served, with the 95 % interval of the served one",
      lines: [
        { name: "raw", kind: "raw", values: raw.platt_slope },
        { name: "served", kind: "served", values: served.platt_slope, low: around(served.platt_slope, served.platt_slope_se, -1), high: around(served.platt_slope, served.platt_slope_se, 1) },
      ],
    });
    draw("ratio", {
      reference: 1, log: true, yLabel: "predicted / observed", label: "Predicted to observed ratio over time, raw and served",
      lines: [{ name: "raw", kind: "raw", values: raw.ratio }, { name: "served", kind: "served", values: served.ratio }],
    });
    draw("evidence", {
      zero: true, yLabel: "evidence", label: "Evidence of miscalibration against the threshold of an alarm",
      lines: [
        { name: "threshold", kind: "threshold", values: history.threshold },
        { name: "evidence", kind: "served", values: history.evidence },
      ],
    });
    const told = root.querySelector("[data-span]");
    if (told) told.textContent = spanOf(history);
  }

  function spanOf({ at_ms: at, step_ms: step, window }) {
    if (!at.length) return "";
    const every = step ? `a point every ${span(step)}` : "every snapshot";
    return `Window ${window}; ${count(at.length)} ${at.length === 1 ? "point" : "points"} from ${moment(at[0])} to ${moment(at[at.length - 1])} UTC, ${every}.`;
  }

  function reliability(root, window) {
    streamcal.charts.reliability(by(root, "reliability"), { raw: window?.raw_bins, served: window?.served_bins });
  }

  const actions = { promoted: "promoted", refused: "refused", rolled_back: "rolled back", shadow: "kept in shadow", published: "published", pinned: "pinned", unpinned: "unpinned" };
  const reasonOf = (map) => [map.reason || (map.action === "promoted" ? "gain" : "–"), map.trigger === "schedule" ? "" : `(${map.trigger})`, map.who ? `by ${map.who}` : "", map.why].filter((words) => words).join(" ");

  // Newest first; without what a tracking filter publishes as it moves, like refusals around it become one entry.
  function decisions(log) {
    const kept = [];
    for (const map of log) {
      if (map.action === "published" && !map.in_force) continue;
      const newer = kept[kept.length - 1];
      if (map.action === "refused" && newer?.action === "refused" && newer.reason === map.reason && map.trigger === newer.trigger) {
        kept[kept.length - 1] = { ...newer, at_ms: map.at_ms, attempts: newer.attempts + map.attempts };
      } else kept.push(map);
    }
    return kept;
  }

  const offsets = (found) => found.segments === 1 ? fig(found.offset_low) : `${fig(found.offset_low)} to ${fig(found.offset_high)}`;

  // What the chosen map adds for single segments, which its curve does not show.
  function corrected(place, version, found) {
    if (!place) return;
    place.hidden = !found;
    if (!found) { place.replaceChildren(); return; }
    const more = found.segments > found.largest.length ? `; the largest ${found.largest.length}` : "";
    const slopes = found.slopes ? `, ${count(found.slopes)} with a slope of their own` : "";
    place.replaceChildren(
      streamcal.said(`Beside its curve version ${version} corrects ${count(found.segments)} ${found.segments === 1 ? "segment" : "segments"}, ${found.segments === 1 ? "offset" : "offsets"} ${offsets(found)} logits${slopes}${more}:`),
      streamcal.table(["segment", "offset (logits)", "slope"], found.largest.map((one) => [one.segment, fig(one.offset), fig(one.slope ?? 1)])),
    );
  }

  // The map history with a picture of each, and the chosen one large.
  function maps(root, document_) {
    const place = by(root, "maps");
    const list = root.querySelector("[data-map-log]");
    const everything = root.querySelector("[data-map-all]");
    everything.onchange = () => maps(root, document_);
    const rows = everything.checked ? document_.maps : decisions(document_.maps);
    const drawable = document_.maps.filter((map) => map.served);
    const force = drawable.find((map) => map.in_force) ?? null;
    if (!drawable.some((map) => map.version === place.chosen)) place.chosen = force?.version ?? drawable[0]?.version ?? null;
    const show = () => {
      const chosen = drawable.find((map) => map.version === place.chosen);
      const parent = chosen && drawable.find((map) => map.version === chosen.parent);
      const curves = [];
      if (parent) curves.push({ name: `version ${parent.version} (before it)`, kind: "floor", served: parent.served });
      if (chosen) curves.push({ name: `version ${chosen.version}`, kind: "served", served: chosen.served });
      streamcal.charts.maps(place, document_.raw, curves);
      const told = root.querySelector("[data-map-chosen]");
      if (told) told.textContent = chosen ? `Version ${chosen.version} (${chosen.family})${chosen.in_force ? ", in force" : ""}${parent ? `; grey: version ${parent.version} before it` : ""}.` : "";
      corrected(root.querySelector("[data-map-corrections]"), chosen?.version, chosen?.corrections);
      for (const button of list.querySelectorAll("button")) button.setAttribute("aria-pressed", String(Number(button.dataset.version) === place.chosen));
    };
    const picture = (map) => {
      if (!map.served) return "";
      const button = document.createElement("button");
      button.type = "button";
      button.className = "picture";
      button.dataset.version = map.version;
      button.setAttribute("aria-label", `Show the map of version ${map.version}`);
      button.append(streamcal.charts.thumbnail(document_.raw, map.served));
      button.addEventListener("click", () => { place.chosen = map.version; show(); });
      return button;
    };
    const focused = document.activeElement?.closest?.("[data-map-log]") ? document.activeElement.dataset.version : null;
    const own = rows.some((map) => map.corrections);
    list.replaceChildren(rows.length ? streamcal.table(
      ["when (UTC)", "what", "why", "gain (nats)", "map", "version", "family", ...(own ? ["segments corrected"] : []), "fitted on (positive)"],
      rows.map((map) => [
        map.attempts > 1 ? `${moment(map.at_ms)} to ${moment(map.until_ms)}` : moment(map.at_ms),
        { text: actions[map.action] + (map.in_force ? ", in force" : "") + (map.attempts > 1 ? ` ${count(map.attempts)} times` : ""), className: `action-${map.action}` },
        reasonOf(map), fig(map.evidence?.gain), picture(map), map.version ?? "–", map.family,
        ...(own ? [map.corrections ? count(map.corrections.segments) : map.version === null ? "–" : "none"] : []),
        map.n ? `${count(map.n)} (${count(map.positives)})` : "–",
      ]), { wordColumns: 3 }) : streamcal.said("No refit has been attempted yet."));
    if (focused) list.querySelector(`button[data-version="${CSS.escape(focused)}"]`)?.focus();
    show();
  }

  const faults = { scores_too_high: "too high", scores_too_low: "too low", over_confident: "over-confident", under_confident: "under-confident" };

  function segments(rows) {
    const own = rows.some((row) => row.map_offset !== undefined);
    const ofMap = (row) => row.map_offset === undefined ? "–" : `${fig(row.map_offset)}${row.map_slope === undefined ? "" : `, slope ${fig(row.map_slope)}`}`;
    return streamcal.table(
      ["segment", "state", "n", "observed rate (95 %)", "mean score", "ECE", "noise floor", "slope", "ratio (95 %)", "evidence", ...(own ? ["map adds (logits)"] : [])],
      rows.map((row) => [
        row.segment,
        row.fault ? { text: `alarm: ${faults[row.fault]}${row.since_ms ? ` since ${moment(row.since_ms)}` : ""}`, className: "bad" } : row.ece_excess > 0 ? { text: "beyond chance", className: "watch" }
          : row.evidence >= 0.7 * row.threshold ? { text: "evidence gathers", className: "watch" }
          : row.ece_excess === undefined ? "too few to say" : "within chance",
        count(row.n), interval(row.observed_rate, row.observed_low, row.observed_high), fig(row.mean_score), fig(row.ece), fig(row.ece_noise_floor),
        withError(row.platt_slope, row.platt_slope_se), interval(row.ratio, row.ratio_low, row.ratio_high),
        row.threshold === undefined ? "–" : `${fig(row.evidence)} of ${fig(row.threshold)}`, ...(own ? [ofMap(row)] : []),
      ]), { wordColumns: 2 });
  }

  return { maps, overTime, reliability, segments, faults };
})();

streamcal.said = (words) => {
  const said = document.createElement("p");
  said.className = "quiet";
  said.textContent = words;
  return said;
};
