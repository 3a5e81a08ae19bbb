// The live view: numbers of this moment, generated tokens a second over two minutes, and the prefix tree.
import { get, Unreachable } from "./api.js";
import { drawChart, kChartMs } from "./chart.js";
import { $, element } from "./element.js";
import { bytes } from "./message.js";
import { showProblem } from "./server.js";
import { drawTree } from "./tree.js";

const kPollMs = 1000;

let isOpen = false;
let timer = null;
let previous = null;
let points = [];

/// Differences of counters a second, or null for the first look, and when a server has begun again.
function perSecond(now) {
  if (!previous || now.generation_tokens < previous.generation_tokens) return null;
  const seconds = (now.at - previous.at) / 1000;
  const rate = (name) => Math.max(0, (now[name] - previous[name]) / seconds);
  return {
    generated: rate("generation_tokens"),
    prompt: rate("prompt_tokens"),
    requested: rate("kv_bytes_requested"),
    saved: rate("kv_bytes_saved"),
  };
}

const whole = (n) => Math.round(n).toLocaleString("en");
const percent = (part, all, digits) => `${((100 * part) / Math.max(1, all)).toFixed(digits)} %`;

function drawNumbers(now, rate) {
  const tiles = {
    "Tokens/s": rate ? whole(rate.generated) : "…",
    "Prompt tokens/s": rate ? whole(rate.prompt) : "…",
    "Running": whole(now.num_requests_running),
    "Waiting": whole(now.num_requests_waiting),
    "Cache in use": percent(now.kv_blocks_used, now.kv_blocks_total, 1),
    "Prompt from cache": percent(now.prompt_tokens_cached, now.prompt_tokens, 1),
    "Reads saved": rate ? `${bytes(rate.saved)}/s` : "…",
    "Share of reads saved": rate ? percent(rate.saved, rate.requested + rate.saved, 0) : "…",
  };
  $("numbers").replaceChildren(
    ...Object.entries(tiles).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function drawRates(at) {
  points = points.filter((point) => at - point.at <= kChartMs);
  drawChart($("rate"), points, at);
  const newest = points.at(-1);
  const sentence = newest
    ? `now ${whole(newest.value)}, at most ${whole(Math.max(...points.map((point) => point.value)))}`
    : "no number yet";
  $("rate-now").textContent = sentence;
  $("rate").setAttribute("aria-label", `Generated tokens a second in the last two minutes: ${sentence}`);
}

async function look() {
  clearTimeout(timer);
  try {
    const now = { ...(await get("live")), at: performance.now() };
    if (!isOpen) return;
    const rate = perSecond(now);
    if (rate) points.push({ at: now.at, value: rate.generated });
    previous = now;
    drawNumbers(now, rate);
    drawRates(now.at);
    drawTree(now.tree);
    showProblem("");
  } catch (error) {
    previous = null;
    if (!isOpen) return;
    showProblem(error instanceof Unreachable ? "" : error.message);  // server.js says where it cannot be reached
  }
  clearTimeout(timer);
  timer = setTimeout(look, kPollMs);
}

/// Begins to look once a second, or ends.
export function setLive(shown) {
  isOpen = shown;
  previous = null;
  clearTimeout(timer);
  if (shown) look();
}
