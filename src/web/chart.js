// A line of numbers over the last two minutes, with axes.
import { drawn } from "./element.js";

export const kChartMs = 120000;
const kHeight = 150;
const kBelow = 20;       // for the times
const kAbove = 8;
const kDigit = 7;        // pixels of a digit of a label
const kGapMs = 3500;     // no line is drawn over a longer time without a number
const kLeastTop = 10;
const kTimes = [[120, "2 min ago"], [90, "90 s"], [60, "60 s"], [30, "30 s"], [0, "now"]];

/// The round number, 1, 2 or 5 times a power of ten, from which a number is at most four times as large.
function stepFor(most) {
  const power = 10 ** Math.floor(Math.log10(most / 4));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step * 4 >= most);
}

const written = (n) => n.toLocaleString("en", { maximumFractionDigits: 1 });

/// Draws `points`, each {at: milliseconds, value}, of which `now` is the right end.
export function drawChart(svg, points, now) {
  const width = Math.max(200, svg.clientWidth);
  const step = stepFor(Math.max(kLeastTop, ...points.map((point) => point.value)));
  const top = step * Math.ceil(Math.max(kLeastTop, ...points.map((point) => point.value)) / step);
  const left = kDigit * written(top).length + 14;
  const right = width - 10;
  const x = (at) => right - ((right - left) * (now - at)) / kChartMs;
  const y = (value) => kHeight - kBelow - ((kHeight - kBelow - kAbove) * value) / top;
  const made = [];
  for (let value = 0; value <= top; value += step)
    made.push(drawn("line", { class: "grid", x1: left, x2: right, y1: y(value), y2: y(value) }),
              drawn("text", { class: "level", x: left - 6, y: y(value) + 4 }, written(value)));
  for (const [seconds, name] of kTimes) {
    const end = seconds === 120 ? "first" : seconds === 0 ? "last" : "";
    made.push(drawn("text", { class: `time ${end}`, x: x(now - 1000 * seconds), y: kHeight - 4 }, name));
  }
  let line = "";
  points.forEach((point, i) => {
    const isBehind = i > 0 && point.at - points[i - 1].at <= kGapMs;
    line += `${isBehind ? "L" : "M"}${x(point.at).toFixed(1)},${y(point.value).toFixed(1)}`;
  });
  if (line) made.push(drawn("path", { d: line }));
  const newest = points.at(-1);
  if (newest) made.push(drawn("circle", { cx: x(newest.at), cy: y(newest.value), r: 3 }));
  svg.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
  svg.setAttribute("height", kHeight);
  svg.replaceChildren(...made);
}
