// The conversation: what is asked, the answer as it streams, results of called tools, and what goes wrong.
import { readEvents, Refused, send } from "./api.js";
import { $, button, element } from "./element.js";
import { Answer, messageItem, numbersOf } from "./message.js";
import { readSettings, requestOf, showRefusal } from "./settings.js";
import { showStarters } from "./starters.js";

const kEndPixels = 40;  // nearer than this to the end, the view follows what is written

let messages = [];   // as the API takes them
let running = null;  // aborts the answer that streams
let boxes = [];      // for results of the newest answer's calls
let failed = null;   // says what went wrong with the newest answer
let isFollowing = true;

/// Reads a sentence out to users who do not see the page. A streamed answer is read out once, when it is whole.
function announce(text) {
  $("announced").textContent = text;
}

function follow() {
  if (isFollowing && $("messages").childElementCount > 0) $("scroll").scrollTop = $("scroll").scrollHeight;
  $("newest").hidden = isFollowing;
}

function showNewest() {
  isFollowing = true;
  follow();
}

function add(item) {
  $("starters").hidden = true;
  $("messages").append(item);
  follow();
}

function setRunning(controller) {
  running = controller;
  $("send").setAttribute("aria-disabled", controller !== null);
  $("stop").hidden = controller === null;
}

/// Streams an answer to a request into `answer`. What it took, as a line.
async function stream(request, answer, signal) {
  const times = { begin: performance.now(), first: 0, last: 0 };
  let usage = null;
  let stats = null;
  let reason = "";
  const response = await send("v1/chat/completions", { method: "POST", body: JSON.stringify(request), signal });
  await readEvents(response, (event) => {
    if (event.error) throw new Error(event.error.message);
    usage = event.usage || usage;
    stats = event.baton || stats;
    const choice = event.choices?.[0];
    if (!choice) return;
    if (choice.delta) answer.take(choice.delta);
    reason = choice.finish_reason || reason;
    times.last = performance.now();
    if (!times.first && !answer.isEmpty) times.first = times.last;
  });
  const isUsual = reason === "stop" || reason === "tool_calls";
  return [numbersOf(usage, stats, times), isUsual ? "" : `ended by ${reason}`].filter(Boolean).join(" · ");
}

/// Says what went wrong below the conversation, with a button to ask again for the same answer.
function fail(error) {
  const again = button("Try again", () => answer(), { class: "small" });
  failed = element("li", { class: "failed" }, element("p", {}, error.message), again);
  add(failed);
  announce(error.message);
  if (error instanceof Refused) showRefusal(error);
}

function dropFailure() {
  failed?.remove();
  failed = null;
}

/// The settings, or null and a sentence where a value is wrong.
function checkedSettings() {
  const values = readSettings();
  $("wanted").textContent = values ? "" : "Nothing is sent: a setting is wrong. The sentence beside it says what it takes.";
  return values;
}

/// Asks for an answer to the conversation as it is.
async function answer() {
  const values = checkedSettings();
  if (!values || running) return;
  dropFailure();
  const made = new Answer();
  add(made.item);
  const controller = new AbortController();
  setRunning(controller);
  let line = "";
  let error = null;
  try {
    line = await stream(requestOf(values, messages), made, controller.signal);
  } catch (thrown) {
    error = thrown;
  }
  if (running !== controller) return;  // a new conversation has begun
  setRunning(null);
  const isStopped = error?.name === "AbortError";
  if (isStopped) line = "stopped";
  if (error && !isStopped) {
    made.end(made.isEmpty ? "" : "This answer is not whole, and not part of the conversation.", announce);
    if (made.isEmpty) made.item.remove();
    fail(error);
  } else {
    take(made, line, isStopped);
  }
  follow();
}

/// Makes a whole or stopped answer part of the conversation.
function take(made, line, isStopped) {
  const hasCalls = made.hasWholeCalls && !isStopped;
  if (!hasCalls) {  // nothing can answer a call that is cut
    delete made.message.tool_calls;
    made.message.content ??= "";
  }
  made.end(line, announce);
  messages.push(made.message);
  announce(hasCalls ? `The model calls a tool: ${made.calledText}. Its result is wanted.`
                    : `Answer: ${made.message.content || "none"}`);
  if (!hasCalls) return;
  boxes = made.askForResults((results) => {
    if (!checkedSettings()) return false;
    results.forEach((content, i) => messages.push({ role: "tool", tool_call_id: made.message.tool_calls[i].id, content }));
    boxes = [];
    isFollowing = true;
    $("text").focus();
    answer();
    return true;
  });
  if (!$("text").value) boxes[0].focus();
}

/// A question without an answer is left out when another one is asked.
function dropUnanswered() {
  if (!failed) return;
  dropFailure();
  if (messages.at(-1)?.role !== "user") return;
  messages.pop();
  [...$("messages").querySelectorAll("li.user")].at(-1).classList.add("unanswered");
}

function ask(text) {
  if (!text || running) return;
  if (boxes.length > 0) {
    $("wanted").textContent = "A called tool waits for its result: write it under the call, or begin a new conversation.";
    boxes[0].focus();
    return;
  }
  if (!checkedSettings()) return;
  dropUnanswered();
  $("text").value = "";
  messages.push({ role: "user", content: text });
  if ($("starters").contains(document.activeElement)) $("scroll").focus();
  isFollowing = true;
  add(messageItem("user", "Question", text));
  answer();
}

/// Shows the beginning of a conversation, unless one has begun.
export function showBeginning() {
  if (messages.length === 0 && !failed) showStarters(ask);
}

function reset() {
  running?.abort();
  setRunning(null);
  messages = [];
  boxes = [];
  failed = null;
  $("messages").replaceChildren();
  $("wanted").textContent = "";
  isFollowing = true;
  follow();
  showBeginning();
  $("text").focus();
}

export function watchConversation() {
  const sendText = (event) => {
    event.preventDefault();
    ask($("text").value.trim());
  };
  $("ask").addEventListener("submit", sendText);
  $("text").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) sendText(event);
  });
  $("stop").addEventListener("click", () => {
    running?.abort();
    $("text").focus();
  });
  $("reset").addEventListener("click", reset);
  $("newest").addEventListener("click", showNewest);
  $("settings").addEventListener("input", () => ($("wanted").textContent = ""));
  $("scroll").addEventListener("scroll", () => {
    const { scrollHeight, scrollTop, clientHeight } = $("scroll");
    isFollowing = scrollHeight - scrollTop - clientHeight < kEndPixels;
    $("newest").hidden = isFollowing;
  });
  // The newest line stays in view while text comes in, and when the window or the box below changes its height.
  const resized = new ResizeObserver(follow);
  resized.observe($("scroll"));
  resized.observe($("messages"));
}
