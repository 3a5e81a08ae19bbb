// How one message looks: an answer whose parts grow while it streams, its calls with boxes for their results, what it took.
import { button, element } from "./element.js";

const kCopiedMs = 2000;
const kLeastSeconds = 0.01;  // between first and last token: a rate over less says nothing

export function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; ++at) n /= 1000;
  return `${n < 10 && at > 0 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

/// A message whose sender is read out and not shown.
export function messageItem(role, sender, content) {
  const item = element("li", { class: role }, element("span", { class: "unseen" }, `${sender}: `));
  if (content) item.append(element("div", { class: "content" }, content));
  return item;
}

/// Where the clipboard is closed (a page over http from another machine), the old command copies a selection.
function copyBySelection(text, beside) {
  const box = element("textarea", { class: "unseen", readonly: "", "aria-hidden": "true" });
  box.value = text;
  beside.after(box);
  box.focus({ preventScroll: true });
  box.select();
  const isCopied = document.execCommand("copy");
  box.remove();
  return isCopied;
}

async function copy(text, beside) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text, beside);
  }
}

/// `text` gives what is copied when it is clicked.
export function copyButton(text, announce) {
  const made = button("Copy", async () => {
    const isCopied = await copy(text(), made);
    made.focus({ preventScroll: true });
    made.textContent = isCopied ? "Copied" : "Not copied";
    announce(isCopied ? "Copied." : "The browser does not let this page copy.");
    setTimeout(() => (made.textContent = "Copy"), kCopiedMs);
  }, { class: "small" });
  return made;
}

/// What the API says of an answer, in one line: tokens, times, and what sharing saved.
export function numbersOf(usage, stats, times) {
  const parts = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt ${usage.prompt_tokens} tokens, ${cached} from the cache`, `answer ${usage.completion_tokens}`);
    const seconds = (times.last - times.first) / 1000;
    const rate = (usage.completion_tokens - 1) / seconds;
    if (seconds >= kLeastSeconds) parts.push(`${rate.toFixed(rate < 100 ? 1 : 0)} tokens/s`);
  }
  if (times.first) parts.push(`first token after ${Math.round(times.first - times.begin)}\u00a0ms`);
  if (stats?.largest_group > 1)
    parts.push(`shared with up to ${stats.largest_group - 1} others, ${bytes(stats.kv_bytes_saved)} not read again`);
  return parts.join(" · ");
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/// An answer on the page (`item`) and as the API takes it back (`message`). Its parts are made when their first text comes.
export class Answer {
  constructor() {
    this.item = messageItem("assistant", "Answer");
    this.item.setAttribute("aria-busy", "true");
    this.waiting = element("p", { class: "numbers" }, "The prompt is being read …");
    this.item.append(this.waiting);
    this.message = { role: "assistant", content: null };
    this.places = {};
    this.calls = [];  // a call's element for each of message.tool_calls
  }

  place(name, make) {
    this.waiting.remove();
    if (!this.places[name]) this.item.append((this.places[name] = make()));
    return this.places[name];
  }

  content(text) {
    this.message.content = (this.message.content || "") + text;
    this.place("content", () => element("div", { class: "content" })).append(text);
  }

  thought(text) {
    const made = this.place("thought", () =>
      element("details", { open: "" }, element("summary", {}, "Reasoning"), element("div", { class: "thought" })));
    made.lastChild.append(text);
  }

  call({ index, id, function: part }) {
    const calls = (this.message.tool_calls ||= []);
    const call = (calls[index] ||= { id, type: "function", function: { name: "", arguments: "" } });
    this.calls[index] = this.place(`call ${index}`, () =>
      element("div", { class: "call" }, element("strong", {}), " ", element("span", {})));
    call.function.name += part?.name ?? "";
    call.function.arguments += part?.arguments ?? "";
    this.calls[index].firstChild.append(part?.name ?? "");
    this.calls[index].lastChild.append(part?.arguments ?? "");
  }

  take(delta) {
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.thought(thought);
    if (delta.content) this.content(delta.content);
    for (const call of delta.tool_calls || []) this.call(call);
  }

  get isEmpty() {
    return Object.keys(this.places).length === 0;
  }

  get calledText() {
    return this.calls.map((call) => call.textContent).join("\n");
  }

  /// What is copied: the text, or the calls where there is none.
  get text() {
    return this.message.content || this.calledText;
  }

  /// Whether it calls tools, and none of the calls is cut.
  get hasWholeCalls() {
    const calls = this.message.tool_calls;
    return calls !== undefined && calls.every((call) => isJson(call.function.arguments || "{}"));
  }

  /// The line below, with a button to copy where there is something.
  end(line, announce) {
    this.item.removeAttribute("aria-busy");
    this.waiting.remove();
    const foot = element("div", { class: "foot" }, element("p", { class: "numbers" }, line));
    if (this.text) foot.append(copyButton(() => this.text, announce));
    if (line || this.text) this.item.append(foot);
  }

  /// A box for a result under each call. `take` gets the results in the calls' order; if it answers false, the boxes stay.
  askForResults(take) {
    const boxes = this.message.tool_calls.map((call, i) => {
      const hint = "What the tool returns, as text or JSON. Enter sends.";
      const box = element("textarea", { rows: "2", spellcheck: "false", placeholder: hint });
      this.calls[i].after(element("label", { class: "result" }, `Result of ${call.function.name}`, box));
      return box;
    });
    const send = button(boxes.length > 1 ? "Send the results" : "Send the result", () => {
      const results = boxes.map((box) => box.value);
      if (!take(results)) return;
      boxes.forEach((box, i) => {
        const name = this.message.tool_calls[i].function.name;
        const shown = element("pre", {}, results[i] || "(empty)");
        box.parentElement.replaceWith(element("div", { class: "result" }, `Result of ${name}`, shown));
      });
      send.remove();
    }, { class: "first" });
    boxes[boxes.length - 1].parentElement.after(send);
    for (const box of boxes)
      box.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        const next = boxes[boxes.indexOf(box) + 1];
        if (next) next.focus();
        else send.click();
      });
    return boxes;
  }
}
