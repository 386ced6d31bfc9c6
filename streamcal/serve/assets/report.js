// The charts of the replay report: draws the data that the page carries.
"use strict";

(() => {
  const data = JSON.parse(document.querySelector("#report-data").textContent);
  function draw() {
    document.querySelectorAll("[data-model]").forEach((root, i) => {
      const model = data[i];
      streamcal.panels.reliability(root, model.window);
      streamcal.panels.overTime(root, model.history, model.alarms);
      streamcal.charts.histogram(root.querySelector("[data-chart=histogram]"), model.histogram);
      streamcal.panels.maps(root, model.maps);
    });
  }
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    draw();
  });
  draw();
})();
