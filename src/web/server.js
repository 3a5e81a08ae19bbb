// Whether the server can be reached, and what it serves.
import { get, isFromProxy } from "./api.js";
import { $ } from "./element.js";

const kWatchMs = 3000;
const kRetryMs = 1000;
const kPatienceMs = 5000;

let isLost = false;
let timer = null;
let onReturn = () => {};

/// Empty, or what keeps the server from answering.
async function complaint() {
  const server = `The server at ${location.host}`;
  let response = null;
  try {
    response = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(kPatienceMs) });
  } catch (error) {
    if (error.name === "TimeoutError") return `${server} has not answered for ${kPatienceMs / 1000} seconds.`;
  }
  if (!response || isFromProxy(response.status))
    return `${server} cannot be reached: it has stopped, or the network to it is down.`;
  if (response.status !== 503) return "";
  const body = await response.json().catch(() => null);
  return `${server} takes no requests: ${body?.error?.message || "it is shutting down"}.`;
}

async function look() {
  clearTimeout(timer);
  const sentence = document.hidden ? "" : await complaint();
  if (document.hidden) return;
  clearTimeout(timer);  // another look may have been quicker
  const was = isLost;
  isLost = sentence !== "";
  $("stopped").hidden = !isLost;
  if (isLost) {
    const whole = `${sentence} The page looks every second and goes on when it is back.`;
    if ($("stopped").textContent !== whole) $("stopped").textContent = whole;  // the same alert is read out once
  }
  $("state").className = isLost ? "lost" : "there";
  $("state-word").textContent = isLost ? "stopped" : "connected";
  if (was && !isLost) onReturn();
  timer = setTimeout(look, isLost ? kRetryMs : kWatchMs);
}

/// Watches the server as long as the page is seen. `back` is called when it answers again.
export function watch(back) {
  onReturn = back;
  document.addEventListener("serverlost", look);
  document.addEventListener("visibilitychange", () => document.hidden || look());
  look();
}

/// Says in the header what the server runs.
export async function showVersion(models) {
  const { version } = await get("version");
  const model = models[0];
  $("about").textContent = model ? `${model.id} · Baton ${version}` : `Baton ${version}`;
  if (model) $("about").title = `${model.root}, up to ${model.max_model_len.toLocaleString("en")} tokens a conversation`;
}

/// A sentence about anything else that is wrong; none hides it.
export function showProblem(sentence) {
  $("problem").hidden = !sentence;
  $("problem").textContent = sentence || "";
}
