// The playground and the live view. It talks to the API of the server that it comes from, and to nothing else.
const $ = (id) => document.getElementById(id);
const kPollMs = 1000;
const kRatePoints = 120;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// ---- The API.

function headers() {
  const key = $("key").value.trim();
  return key ? { "Content-Type": "application/json", Authorization: `Bearer ${key}` } : { "Content-Type": "application/json" };
}

/// What went wrong, in the server's words where it has some.
async function errorOf(response) {
  const text = await response.text();
  try {
    const error = JSON.parse(text).error;
    if (response.status === 401) return "This server asks for an API key.";
    return (error && error.message) || `${response.status}: ${text}`;
  } catch {
    return `${response.status} ${response.statusText}`;
  }
}

async function get(path) {
  const response = await fetch(path, { headers: headers() });
  if (!response.ok) throw new Error(await errorOf(response));
  return response.json();
}

function show(problem) {
  $("problem").hidden = !problem;
  $("problem").textContent = problem || "";
}

/// Calls `take` with each event of a stream of server-sent events.
async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      if (!frame.startsWith("data: ") || frame === "data: [DONE]") continue;
      take(JSON.parse(frame.slice(6)));
    }
  }
}

// ---- The playground.

let conversation = [];
let running = null;

async function loadModels() {
  const { data } = await get("v1/models");
  const chosen = $("model").value;
  $("model").replaceChildren(...data.map((model) => element("option", { value: model.id }, model.id)));
  if (data.some((model) => model.id === chosen)) $("model").value = chosen;
}

/// The value of a field, or undefined where it is empty.
function field(id, convert) {
  const text = $(id).value.trim();
  return text === "" ? undefined : convert(text);
}

function parsed(name) {
  return (text) => {
    try {
      return JSON.parse(text);
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
  };
}

function requestBody() {
  const system = $("system").value.trim();
  const body = {
    model: $("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...conversation],
    stream: true,
    stream_options: { include_usage: true },
    baton_stats: true,
    temperature: field("temperature", Number),
    top_p: field("top_p", Number),
    max_tokens: field("max_tokens", Number),
    seed: field("seed", Number),
    tools: field("tools", parsed("Tools")),
  };
  if (body.tools) body.tool_choice = $("tool_choice").value;
  const schema = field("schema", parsed("Schema"));
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  return body;
}

function addMessage(role, content) {
  const item = element("li", { class: role });
  if (content) item.append(element("div", { class: "content" }, content));
  $("messages").append(item);
  item.scrollIntoView({ block: "end" });
  return item;
}

/// Parts of a message that grow while it streams: made when their first text comes.
class Parts {
  constructor(item) {
    this.item = item;
    this.message = { role: "assistant", content: null };
    this.places = {};
  }
  place(name, make) {
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
  call(delta) {
    const calls = (this.message.tool_calls ||= []);
    const call = (calls[delta.index] ||= { id: delta.id, type: "function", function: { name: "", arguments: "" } });
    const made = this.place(`call ${delta.index}`, () => element("div", { class: "call" }));
    if (delta.function?.name) {
      call.function.name += delta.function.name;
      made.append(`${delta.function.name} `);
    }
    if (delta.function?.arguments) {
      call.function.arguments += delta.function.arguments;
      made.append(delta.function.arguments);
    }
  }
  take(delta) {
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) this.thought(thought);
    if (delta.content) this.content(delta.content);
    for (const call of delta.tool_calls || []) this.call(call);
  }
}

function bytes(n) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; ++at) n /= 1000;
  return `${n < 10 && at > 0 ? n.toFixed(1) : Math.round(n)} ${units[at]}`;
}

/// One line under an answer: tokens, times, and what sharing saved.
function numbersOf(usage, stats, times) {
  const parts = [];
  if (usage) {
    const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
    parts.push(`prompt ${usage.prompt_tokens} tokens, ${cached} from the cache`, `answer ${usage.completion_tokens}`);
    const seconds = (times.last - times.first) / 1000;
    if (usage.completion_tokens > 1 && seconds > 0)
      parts.push(`${((usage.completion_tokens - 1) / seconds).toFixed(1)} tokens/s`);
  }
  if (times.first) parts.push(`first token after ${Math.round(times.first - times.begin)} ms`);
  if (stats && stats.largest_group > 1)
    parts.push(`shared with up to ${stats.largest_group - 1} others, ${bytes(stats.kv_bytes_saved)} not read again`);
  return parts.join(" · ");
}

async function answer() {
  const item = addMessage("assistant", "");
  const parts = new Parts(item);
  const times = { begin: performance.now(), first: 0, last: 0 };
  let usage = null;
  let stats = null;
  let ended = "";
  running = new AbortController();
  $("send").disabled = true;
  $("stop").hidden = false;
  try {
    const body = JSON.stringify(requestBody());
    const response = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body, signal: running.signal });
    if (!response.ok) throw new Error(await errorOf(response));
    await readEvents(response, (event) => {
      if (event.error) throw new Error(event.error.message);
      usage = event.usage || usage;
      stats = event.baton || stats;
      const choice = event.choices?.[0];
      if (!choice) return;
      if (choice.delta) parts.take(choice.delta);
      if (choice.finish_reason && choice.finish_reason !== "stop") ended = choice.finish_reason;
      times.last = performance.now();
      if (!times.first && (choice.delta?.content || choice.delta?.tool_calls || choice.delta?.reasoning_content))
        times.first = times.last;
    });
    conversation.push(parts.message);
  } catch (error) {
    if (error.name === "AbortError") {
      ended = "stopped";
      conversation.push(parts.message);
    } else {
      item.append(element("div", { class: "wrong" }, error.message));
      conversation.pop();
    }
  }
  running = null;
  $("send").disabled = false;
  $("stop").hidden = true;
  const line = [numbersOf(usage, stats, times), ended && `ended by ${ended}`].filter(Boolean).join(" · ");
  if (line) item.append(element("p", { class: "numbers" }, line));
  item.scrollIntoView({ block: "end" });
}

function ask(event) {
  event?.preventDefault();
  const text = $("text").value.trim();
  if (!text || running) return;
  $("text").value = "";
  conversation.push({ role: "user", content: text });
  addMessage("user", text);
  answer();
}

// ---- The live view.

let previous = null;
let rates = [];

function tile(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, value));
}

/// Differences of counters a second, or null for the first look.
function perSecond(now) {
  if (!previous) return null;
  const seconds = (now.at - previous.at) / 1000;
  const rate = (name) => Math.max(0, (now[name] - previous[name]) / seconds);
  return {
    generated: rate("generation_tokens"),
    prompt: rate("prompt_tokens"),
    requested: rate("kv_bytes_requested"),
    saved: rate("kv_bytes_saved"),
  };
}

function drawNumbers(now, rate) {
  const share = rate && rate.requested + rate.saved > 0 ? rate.saved / (rate.requested + rate.saved) : 0;
  $("numbers").replaceChildren(
    tile("Tokens/s", rate ? rate.generated.toFixed(0) : "…"),
    tile("Prompt tokens/s", rate ? rate.prompt.toFixed(0) : "…"),
    tile("Running", now.num_requests_running),
    tile("Waiting", now.num_requests_waiting),
    tile("Cache in use", `${((100 * now.kv_blocks_used) / Math.max(1, now.kv_blocks_total)).toFixed(1)} %`),
    tile("Prompt tokens cached", `${((100 * now.prompt_tokens_cached) / Math.max(1, now.prompt_tokens)).toFixed(1)} %`),
    tile("Saved bytes", rate ? `${bytes(rate.saved)}/s` : "…"),
    tile("Reads saved by sharing", rate ? `${(100 * share).toFixed(0)} %` : "…"),
  );
}

function drawRate() {
  const top = Math.max(1, ...rates);
  const points = rates.map((rate, i) => `${(600 * i) / (kRatePoints - 1)},${78 - (74 * rate) / top}`);
  $("rate").innerHTML = points.length > 1 ? `<path d="M${points.join("L")}"/>` : "";
}

function colour(n) {
  if (n === 0) return "s0";
  if (n < 2) return "s1";
  if (n < 4) return "s2";
  if (n < 16) return "s3";
  return n < 64 ? "s4" : "s5";
}

/// Lays the nodes out: a node begins where its parent ends, and its children share its height.
function layOut(nodes) {
  const children = nodes.map(() => []);
  const roots = [];
  nodes.forEach((node, i) => (node.parent < 0 ? roots : children[node.parent]).push(i));
  const kRow = 18;
  const placed = nodes.map(() => null);
  let width = 1;
  const place = (i, x, y) => {
    const end = x + nodes[i].n_tokens;
    width = Math.max(width, end);
    let height = 0;
    for (const child of children[i]) height += place(child, end, y + height);
    height = Math.max(height, kRow);
    placed[i] = { x, y, height };
    return height;
  };
  let height = 0;
  for (const root of roots) height += place(root, 0, height);
  return { placed, width, height: Math.max(height, kRow) };
}

function drawTree(tree) {
  const nodes = tree.nodes;
  const { placed, width, height } = layOut(nodes);
  const space = "http://www.w3.org/2000/svg";
  const pixels = Math.max(200, $("tree").clientWidth - 2);
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${pixels} ${height}`);
  svg.setAttribute("height", height);
  nodes.forEach((node, i) => {
    const { x, y, height: tall } = placed[i];
    const left = (x / width) * pixels;
    const wide = Math.max(2, (node.n_tokens / width) * pixels);
    const rect = document.createElementNS(space, "rect");
    for (const [key, value] of Object.entries({ x: left, y, width: wide, height: tall })) rect.setAttribute(key, value);
    rect.setAttribute("class", colour(node.n_sequences) + (node.is_pinned ? " pinned" : ""));
    const title = document.createElementNS(space, "title");
    title.textContent = `${node.n_tokens} tokens, ${node.n_sequences} running sequences${node.is_pinned ? ", registered" : ""}, hash ${node.hash}`;
    rect.append(title);
    svg.append(rect);
    const label = `${node.n_tokens} × ${node.n_sequences}`;
    if (wide > 7 * label.length + 8) {
      const text = document.createElementNS(space, "text");
      text.setAttribute("x", left + 5);
      text.setAttribute("y", y + tall / 2 + 4);
      text.setAttribute("class", `on-${colour(node.n_sequences)}`);
      text.textContent = label;
      svg.append(text);
    }
  });
  $("tree").replaceChildren(svg);
  const left = tree.n_left_out ? `; ${tree.n_left_out} less used parts are left out` : "";
  $("tree-note").textContent = nodes.length
    ? `${nodes.length} parts are in use or registered; the whole cache holds ${tree.n_cached_tokens} tokens${left}. A framed part is registered.`
    : `Nothing is in use; the cache holds ${tree.n_cached_tokens} tokens.`;
  $("tree-table").replaceChildren(
    ...nodes.map((node) => {
      const cells = [node.hash, node.parent < 0 ? "the beginning" : nodes[node.parent].hash, node.n_tokens, node.n_sequences,
                     node.is_pinned ? "yes" : "no"];
      return element("tr", {}, ...cells.map((cell) => element("td", {}, String(cell))));
    }));
}

async function look() {
  try {
    const now = { ...(await get("live")), at: performance.now() };
    const rate = perSecond(now);
    if (rate) rates = [...rates, rate.generated].slice(-kRatePoints);
    previous = now;
    drawNumbers(now, rate);
    drawRate();
    drawTree(now.tree);
    show("");
  } catch (error) {
    previous = null;
    show(error.message);
  }
}

// ---- Tabs and keys.

let looking = null;

function open(name) {
  for (const view of ["chat", "live"]) {
    const isOpen = view === name;
    $(view).hidden = !isOpen;
    $(`tab-${view}`).setAttribute("aria-selected", isOpen);
    $(`tab-${view}`).tabIndex = isOpen ? 0 : -1;
  }
  clearInterval(looking);
  show("");
  if (name === "live") {
    previous = null;
    look();
    looking = setInterval(look, kPollMs);
  } else {
    loadModels().catch((error) => show(error.message));
  }
  history.replaceState(null, "", `#${name}`);
}

for (const view of ["chat", "live"]) {
  $(`tab-${view}`).addEventListener("click", () => open(view));
  $(`tab-${view}`).addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    const other = view === "chat" ? "live" : "chat";
    open(other);
    $(`tab-${other}`).focus();
  });
}
$("key").value = sessionStorage.getItem("key") || "";
$("key").addEventListener("change", () => {
  sessionStorage.setItem("key", $("key").value);
  open($("live").hidden ? "chat" : "live");
});
$("ask").addEventListener("submit", ask);
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) ask(event);
});
$("stop").addEventListener("click", () => running?.abort());
$("reset").addEventListener("click", () => {
  running?.abort();
  conversation = [];
  $("messages").replaceChildren();
  $("text").focus();
});
open(location.hash === "#live" ? "live" : "chat");
