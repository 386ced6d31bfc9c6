// Charts of the status page and of the replay report, as SVG by d3. Everything a user named is set as text, never as
// markup. Every chart has a table of its numbers below it.
"use strict";

const streamcal = {};
globalThis.streamcal = streamcal;

streamcal.text = {
  // Three significant digits; what is absent is a dash.
  figure(value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    return d3.format(`.${digits}~g`)(value).replace("−", "-");
  },
  count(value) {
    return value === null || value === undefined ? "–" : d3.format(",")(value);
  },
  withError(value, error) {
    const plain = streamcal.text.figure(value);
    return error === null || error === undefined || plain === "–" ? plain : `${plain} ± ${streamcal.text.figure(error, 2)}`;
  },
  interval(value, low, high) {
    const plain = streamcal.text.figure(value);
    if (low === null || low === undefined || high === null || high === undefined) return plain;
    return `${plain} (${streamcal.text.figure(low)} to ${streamcal.text.figure(high)})`;
  },
  moment(ms) {
    return ms === null || ms === undefined ? "–" : d3.utcFormat("%Y-%m-%d %H:%M")(new Date(ms));
  },
  span(ms) {
    if (ms === null || ms === undefined) return "–";
    const s = Math.abs(ms) / 1000;
    const sign = ms < 0 ? "-" : "";
    if (s < 1) return `${sign}${Math.round(s * 1000)} ms`;
    if (s < 120) return `${sign}${d3.format(".3~g")(s)} s`;
    if (s < 7200) return `${sign}${d3.format(".3~g")(s / 60)} min`;
    if (s < 172800) return `${sign}${d3.format(".3~g")(s / 3600)} h`;
    return `${sign}${d3.format(",.0f")(s / 86400)} d`;
  },
};

streamcal.charts = (() => {
  const { figure: fig, count, moment } = streamcal.text;
  const margin = { top: 10, right: 14, bottom: 36, left: 52 };

  // The drawing of a figure element, emptied, as wide as there is room.
  function canvas(place, height, label) {
    const box = place.querySelector(".chart");
    const width = Math.max(260, Math.min(760, box.clientWidth || 560));
    box.replaceChildren();
    const svg = d3.select(box).append("svg")
      .attr("viewBox", `0 0 ${width} ${height}`).attr("width", width).attr("height", height)
      .attr("role", "img").attr("aria-label", label);
    return { svg, width };
  }

  function nothing(place, why) {
    const said = document.createElement("p");
    said.className = "quiet";
    said.textContent = why;
    place.querySelector(".chart").replaceChildren(said);
    table(place, [], []);
  }

  // The numbers of a chart, written out when somebody opens them.
  function table(place, head, rows) {
    const details = place.querySelector("details");
    if (!details) return;
    details.hidden = rows.length === 0;
    details.fill = () => {
      const made = streamcal.table(head, rows);
      details.querySelector(".wide").replaceChildren(made);
    };
    if (!details.listens) {
      details.addEventListener("toggle", () => details.open && details.fill());
      details.listens = true;
    }
    if (details.open) details.fill();
  }

  function axes(svg, x, y, box, { xTicks = 6, yTicks = 5, xFormat = null, yFormat = null, xLabel = "", yLabel = "" } = {}) {
    const across = svg.append("g").attr("class", "axis").attr("transform", `translate(0,${box.bottom})`);
    const up = svg.append("g").attr("class", "axis").attr("transform", `translate(${box.left},0)`);
    const bottom = d3.axisBottom(x).tickSizeOuter(0).tickSizeInner(-(box.bottom - box.top)).tickPadding(8);
    const left = d3.axisLeft(y).tickSizeOuter(0).tickSizeInner(-(box.right - box.left)).tickPadding(6);
    across.call(ticked(bottom, xTicks, xFormat));
    up.call(ticked(left, yTicks, yFormat));
    if (xLabel) svg.append("text").attr("class", "label").attr("x", (box.left + box.right) / 2).attr("y", box.bottom + 32).attr("text-anchor", "middle").text(xLabel);
    if (yLabel) svg.append("text").attr("class", "label").attr("transform", `translate(12,${(box.top + box.bottom) / 2}) rotate(-90)`).attr("text-anchor", "middle").text(yLabel);
  }

  // ticks: how many, or which; format: a function, or null for the scale's own.
  function ticked(axis, ticks, format) {
    return (Array.isArray(ticks) ? axis.tickValues(ticks) : axis.ticks(ticks)).tickFormat(format);
  }

  const full = (bins) => (bins || []).filter((bin) => bin.observed_rate !== undefined && bin.observed_rate !== null);
  const kinds = ["raw", "served"];

  // Observed rate over mean score, with intervals, and how many predictions each bin holds.
  function reliability(place, { raw, served }) {
    const bins = { raw: full(raw), served: full(served) };
    const all = [...bins.raw, ...bins.served];
    if (!all.length) return nothing(place, "No labelled predictions in this window yet.");
    // Scores of rare events fill a corner of the unit square; it is shown as large as it can be.
    const most = Math.min(1, d3.max(all, (bin) => Math.max(bin.hi, bin.observed_rate)));
    const { svg, width } = canvas(place, 430, "Observed rate over mean score, raw and served, with the number of predictions per bin; the table below has the numbers");
    const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: 300 };
    const x = d3.scaleLinear([0, most], [box.left, box.right]);
    const y = d3.scaleLinear([0, most], [box.bottom, box.top]);
    svg.append("clipPath").attr("id", clip(place)).append("rect").attr("x", box.left - 8).attr("y", box.top - 8)
      .attr("width", box.right - box.left + 16).attr("height", box.bottom - box.top + 16);
    axes(svg, x, y, box, { yLabel: "observed rate" });
    svg.append("line").attr("class", "ideal").attr("x1", x(0)).attr("y1", y(0)).attr("x2", x(most)).attr("y2", y(most));
    const total = d3.max(all, (bin) => bin.n);
    for (const kind of kinds) {
      const marks = svg.append("g").attr("class", `marks ${kind}`).attr("clip-path", `url(#${clip(place)})`);
      for (const bin of bins[kind]) {
        const mark = marks.append("g").attr("class", "mark");
        mark.append("title").text(`${kind}: mean score ${fig(bin.mean_score)}, observed ${streamcal.text.interval(bin.observed_rate, bin.observed_low, bin.observed_high)}, n ${count(bin.n)}`);
        if (bin.observed_low !== undefined && bin.observed_low !== null) {
          mark.append("line").attr("x1", x(bin.mean_score)).attr("x2", x(bin.mean_score)).attr("y1", y(bin.observed_low)).attr("y2", y(bin.observed_high));
        }
        const r = 3 + 4 * Math.sqrt(bin.n / total); // area by number, yet never invisible
        if (kind === "raw") mark.append("circle").attr("cx", x(bin.mean_score)).attr("cy", y(bin.observed_rate)).attr("r", r);
        else mark.append("rect").attr("x", x(bin.mean_score) - r).attr("y", y(bin.observed_rate) - r).attr("width", 2 * r).attr("height", 2 * r);
      }
    }
    const low = { left: box.left, right: box.right, top: 326, bottom: 394 };
    const height = d3.scaleSqrt([0, total], [low.bottom, low.top]);
    const ticks = d3.scaleSqrt([0, total], [0, 1]).nice().ticks(3);
    axes(svg, x, height, low, { yTicks: ticks, yFormat: d3.format("~s"), xLabel: "mean score · below: predictions per bin (square-root scale)" });
    bars(svg, bins, x, height, low.bottom);
    table(place, ["bin", "kind", "n", "positives", "mean score", "observed rate", "95 % interval"],
      kinds.flatMap((kind) => bins[kind].map((bin) => [
        `${fig(bin.lo)} to ${fig(bin.hi)}`, kind, count(bin.n), count(bin.positives), fig(bin.mean_score, 6), fig(bin.observed_rate, 6),
        bin.observed_low === undefined ? "–" : `${fig(bin.observed_low, 6)} to ${fig(bin.observed_high, 6)}`,
      ])));
  }

  // Two bars side by side per bin.
  function bars(svg, bins, x, height, bottom) {
    kinds.forEach((kind, i) => {
      svg.append("g").attr("class", `bars ${kind}`).selectAll("rect").data(bins[kind].filter((bin) => bin.n > 0)).join("rect")
        .attr("x", (bin) => x(bin.lo) + 1 + (i * (x(bin.hi) - x(bin.lo) - 2)) / 2)
        .attr("width", (bin) => Math.max(1, (x(bin.hi) - x(bin.lo) - 2) / 2))
        .attr("y", (bin) => height(bin.n)).attr("height", (bin) => bottom - height(bin.n));
    });
  }

  let clips = 0;
  function clip(place) {
    place.clip ??= `clip-${(clips += 1)}`;
    return place.clip;
  }

  // Lines over event time. lines: [{name, kind, values, low, high}]; spans: [{from, to}] shaded.
  function overTime(place, { at, lines, reference = null, log = false, zero = false, label, yLabel, spans = [] }) {
    const known = lines.flatMap((line) => line.values).filter((value) => value !== null && value !== undefined && (!log || value > 0));
    if (at.length < 2 || !known.length) return nothing(place, "Not enough points over time yet.");
    const { svg, width } = canvas(place, 210, `${label}; the table below has the numbers`);
    const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: 176 };
    const x = d3.scaleUtc(d3.extent(at), [box.left, box.right]);
    const edges = reference === null ? known : [...known, reference];
    let [low, high] = d3.extent(edges);
    if (zero) low = Math.min(0, low);
    if (low === high) [low, high] = log ? [low / 1.1, high * 1.1] : [low - 0.05, high + 0.05];
    const y = log ? d3.scaleLog([low / 1.05, high * 1.05], [box.bottom, box.top]) : d3.scaleLinear([low, high], [box.bottom, box.top]).nice();
    svg.append("clipPath").attr("id", clip(place)).append("rect").attr("x", box.left).attr("y", box.top).attr("width", box.right - box.left).attr("height", box.bottom - box.top);
    for (const span of spans) {
      const [from, to] = [Math.max(span.from, at[0]), Math.min(span.to ?? at[at.length - 1], at[at.length - 1])];
      if (to >= from) svg.append("rect").attr("class", "alarm-span").attr("x", x(from)).attr("width", Math.max(2, x(to) - x(from))).attr("y", box.top).attr("height", box.bottom - box.top);
    }
    axes(svg, x, y, box, { xTicks: Math.max(2, Math.floor(width / 120)), xFormat: dayOrTime, yTicks: log ? logTicks(y.domain()) : 5, yFormat: log ? d3.format(".3~g") : null, yLabel });
    if (reference !== null) svg.append("line").attr("class", "ideal").attr("x1", box.left).attr("x2", box.right).attr("y1", y(reference)).attr("y2", y(reference));
    const drawn = svg.append("g").attr("clip-path", `url(#${clip(place)})`);
    const usable = (value) => value !== null && value !== undefined && (!log || value > 0);
    for (const line of lines) {
      if (line.low) {
        drawn.append("path").attr("class", `band ${line.kind}`).attr("d",
          d3.area().defined((_, i) => usable(line.low[i]) && usable(line.high[i])).x((t) => x(t)).y0((_, i) => y(line.low[i])).y1((_, i) => y(line.high[i]))(at));
      }
      drawn.append("path").attr("class", `line ${line.kind}`).attr("data-name", line.name).attr("d",
        d3.line().defined((_, i) => usable(line.values[i])).x((t) => x(t)).y((_, i) => y(line.values[i]))(at));
    }
    table(place, ["event time (UTC)", ...lines.map((line) => line.name)],
      at.map((t, i) => [moment(t), ...lines.map((line) => fig(line.values[i], 4))]).reverse());
  }

  // Days by their date, times within them by the clock, all UTC.
  function dayOrTime(date) {
    if (d3.utcDay(date) < date) return d3.utcFormat("%H:%M")(date);
    return d3.utcFormat(d3.utcYear(date) < date ? "%b %d" : "%Y")(date);
  }

  function logTicks([low, high]) {
    const steps = high / low > 10 ? [1, 2, 5] : [1, 1.25, 1.5, 2, 3, 5, 7];
    const ticks = d3.range(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)) + 1).flatMap((power) => steps.map((step) => step * 10 ** power));
    const inside = ticks.filter((tick) => tick >= low * 0.999 && tick <= high * 1.001);
    return inside.length > 8 ? inside.filter((_, i) => i % Math.ceil(inside.length / 8) === 0) : inside.length > 1 ? inside : d3.ticks(low, high, 4);
  }

  const logit = (p) => Math.log(p / (1 - p));
  const scoreTicks = [0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999];

  // Served over raw score on the scale of logits, where most families are straight lines.
  function maps(place, raw, curves) {
    const drawn = curves.filter((curve) => curve.served);
    if (!drawn.length) return nothing(place, "No map has been made yet.");
    const { svg, width } = canvas(place, 330, "Served score over raw score of the chosen map; the table below has the numbers");
    const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: 292 };
    const x = d3.scaleLinear([-9, 9], [box.left, box.right]);
    const y = d3.scaleLinear([-9, 9], [box.bottom, box.top]);
    const named = (value) => d3.format("~g")(scoreTicks[scoreTicks.findIndex((tick) => logit(tick) === value)]);
    svg.append("clipPath").attr("id", clip(place)).append("rect").attr("x", box.left).attr("y", box.top).attr("width", box.right - box.left).attr("height", box.bottom - box.top);
    axes(svg, x, y, box, { xTicks: scoreTicks.map(logit), xFormat: named, yTicks: scoreTicks.map(logit), yFormat: named, xLabel: "raw score", yLabel: "served score" });
    svg.append("line").attr("class", "ideal").attr("x1", x(-9)).attr("y1", y(-9)).attr("x2", x(9)).attr("y2", y(9));
    const lines = svg.append("g").attr("clip-path", `url(#${clip(place)})`);
    for (const curve of drawn) {
      lines.append("path").attr("class", `line ${curve.kind}`).attr("data-name", curve.name)
        .attr("d", d3.line().x((_, i) => x(logit(raw[i]))).y((served) => y(logit(served)))(curve.served));
    }
    table(place, ["raw score", ...drawn.map((curve) => curve.name)], raw.map((score, i) => [fig(score, 4), ...drawn.map((curve) => fig(curve.served[i], 4))]));
  }

  // The same, small enough for a table.
  function thumbnail(raw, served) {
    const size = 44;
    const place = d3.scaleLinear([-9, 9], [1, size - 1]);
    const svg = d3.create("svg").attr("class", "thumbnail").attr("viewBox", `0 0 ${size} ${size}`).attr("width", size).attr("height", size).attr("aria-hidden", "true");
    svg.append("line").attr("class", "ideal").attr("x1", 1).attr("y1", size - 1).attr("x2", size - 1).attr("y2", 1);
    svg.append("path").attr("class", "line served").attr("d", d3.line().x((_, i) => place(logit(raw[i]))).y((p) => size - place(Math.max(-9, Math.min(9, logit(p)))))(served));
    return svg.node();
  }

  // How many scores lie where, on the scale of logits, before and after the map.
  function histogram(place, { raw, served }) {
    if (!raw.length && !served.length) return nothing(place, "No labelled predictions.");
    const bins = { raw: raw.map(placed), served: served.map(placed) };
    const all = [...bins.raw, ...bins.served];
    const { svg, width } = canvas(place, 240, "Number of predictions by score, raw and served; the table below has the numbers");
    const box = { left: margin.left, right: width - margin.right, top: margin.top, bottom: 202 };
    const x = d3.scaleLinear([d3.min(all, (bin) => bin.lo), d3.max(all, (bin) => bin.hi)], [box.left, box.right]);
    const y = d3.scaleLinear([0, d3.max(all, (bin) => bin.n)], [box.bottom, box.top]).nice();
    const ticks = [0.00001, 0.0001, ...scoreTicks, 0.9999, 0.99999].filter((tick) => logit(tick) >= x.domain()[0] && logit(tick) <= x.domain()[1]);
    axes(svg, x, y, box, { xTicks: ticks.map(logit), xFormat: (value) => d3.format(".5~g")(1 / (1 + Math.exp(-value))), yFormat: d3.format("~s"), xLabel: "score (logit scale)", yLabel: "predictions" });
    bars(svg, bins, x, y, box.bottom);
    const edges = [...new Set([...raw, ...served].map((bin) => bin.lo))].sort((a, b) => a - b);
    const find = (held, lo) => held.find((bin) => bin.lo === lo);
    table(place, ["score from", "to", "raw", "served"], edges.map((lo) => [
      fig(lo, 4), fig((find(raw, lo) ?? find(served, lo)).hi, 4), count(find(raw, lo)?.n ?? 0), count(find(served, lo)?.n ?? 0),
    ]));
  }

  const placed = (bin) => ({ n: bin.n, lo: Math.max(-16, bin.lo > 0 ? logit(bin.lo) : -16), hi: Math.min(16, bin.hi < 1 ? logit(bin.hi) : 16) });

  return { histogram, maps, overTime, reliability, thumbnail };
})();

// A table of text; a cell is text, a node, or {text, className}.
streamcal.table = (head, rows, { wordColumns = 1 } = {}) => {
  const made = document.createElement("table");
  const cell = (row, tag, content, i) => {
    const one = row.appendChild(document.createElement(tag));
    if (tag === "th") one.scope = "col";
    if (i < wordColumns) one.className = "word";
    if (content instanceof Node) one.append(content);
    else if (content !== null && typeof content === "object") {
      one.textContent = content.text;
      one.className = `${one.className} ${content.className}`.trim();
    } else one.textContent = content;
  };
  const first = made.createTHead().insertRow();
  head.forEach((name, i) => cell(first, "th", name, i));
  const body = made.createTBody();
  for (const values of rows) {
    const row = body.insertRow();
    values.forEach((value, i) => cell(row, "td", value, i));
  }
  return made;
};
