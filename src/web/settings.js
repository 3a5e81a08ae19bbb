// The settings beside a conversation: what a request is made of, and a sentence beside each value that is wrong.
import { get } from "./api.js";
import { $, element } from "./element.js";

const kDecimal = /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i;
const kWhole = /^[+-]?\d+$/;
const kMostTokens = 2 ** 31 - 1;
const kMaxTemperature = 100;
const kShownLength = 40;  // of a wrong value, in its sentence

let models = [];

function number(text, pattern, isIn, wanted) {
  const value = Number(text);
  if (!pattern.test(text) || !isIn(value)) throw new Error(`${wanted}, not "${text.slice(0, kShownLength)}".`);
  return value;
}

function json(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error.message}.`);
  }
}

function tools(text) {
  const list = json(text);
  if (!Array.isArray(list)) throw new Error('A list of tools, like [{"type": "function", ...}].');
  list.forEach((tool, i) => {
    const place = list.length > 1 ? `Tool ${i + 1}` : "The tool";
    if (tool?.type !== "function") throw new Error(`${place} needs "type": "function".`);
    if (typeof tool.function?.name !== "string" || tool.function.name === "")
      throw new Error(`${place} needs a name: "function": {"name": ...}.`);
  });
  return list.length > 0 ? list : undefined;
}

function schema(text) {
  const value = json(text);
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw new Error('A JSON schema is an object, like {"type": "object"}.');
  return value;
}

function maxTokens(text) {
  const most = chosen()?.max_model_len ?? kMostTokens;
  const wanted = `A whole number from 1 to ${most.toLocaleString("en")}`;
  return number(text, kWhole, (value) => value >= 1 && value <= most, wanted);
}

/// Fields that are read from text: the value, or an error whose message is the sentence beside the field.
const kReaders = {
  temperature: (text) =>
    number(text, kDecimal, (value) => value >= 0 && value <= kMaxTemperature,
           `A number from 0 to ${kMaxTemperature}, like 0.7`),
  top_p: (text) => number(text, kDecimal, (value) => value > 0 && value <= 1, "A number above 0 and at most 1, like 0.9"),
  max_tokens: maxTokens,
  seed: (text) => number(text, kWhole, Number.isSafeInteger, "A whole number of at most 15 digits"),
  tools,
  schema,
};

/// The field on the page of a field of the API.
const kFieldOf = {
  model: "model", temperature: "temperature", top_p: "top_p", max_tokens: "max_tokens", max_completion_tokens: "max_tokens",
  seed: "seed", tools: "tools", tool_choice: "tool_choice", response_format: "schema", structured_outputs: "schema",
};

/// Writes a sentence beside a field, or takes it away.
function mark(id, sentence) {
  $(`${id}-fault`).textContent = sentence;
  if (sentence) $(id).setAttribute("aria-invalid", "true");
  else $(id).removeAttribute("aria-invalid");
}

/// The value of a field; undefined where it is empty or wrong.
function read(id) {
  const text = $(id).value.trim();
  let value;
  let sentence = "";
  try {
    if (text !== "") value = kReaders[id](text);
  } catch (error) {
    sentence = error.message;
  }
  mark(id, sentence);
  return value;
}

/// Opens what hides a field, and puts the cursor there.
function showField(id) {
  for (let around = $(id).closest("details"); around; around = around.parentElement.closest("details")) around.open = true;
  $(id).focus();
}

/// Reads all fields. Null if a value is wrong: the first such field then has the cursor.
export function readSettings() {
  const values = Object.fromEntries(Object.keys(kReaders).map((id) => [id, read(id)]));
  const wrong = Object.keys(kReaders).find((id) => $(id).hasAttribute("aria-invalid"));
  if (wrong) showField(wrong);
  return wrong ? null : values;
}

/// The request for an answer to `messages`, of settings that readSettings has read.
export function requestOf(values, messages) {
  const { schema, ...fields } = values;
  const system = $("system").value.trim();
  return {
    ...fields,
    model: $("model").value,
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    stream: true,
    stream_options: { include_usage: true },
    baton_stats: true,
    ...(fields.tools && { tool_choice: $("tool_choice").value }),
    ...(schema && { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } }),
  };
}

/// Writes what the server says of a field beside it.
export function showRefusal(refusal) {
  const id = kFieldOf[refusal.param?.split(/[.[]/)[0]];
  if (!id) return;
  mark(id, refusal.message);
  showField(id);
}

/// The entry of the chosen model or prefix; undefined before the server has named one.
export function chosen() {
  return models.find((model) => model.id === $("model").value);
}

function nameChosen() {
  $("settings-of").textContent = chosen() ? ` · ${chosen().id}` : "";
}

/// Asks the server for its models. The choice stays where it can; the first is the first registered prefix.
export async function loadModels() {
  const before = chosen()?.id;
  ({ data: models } = await get("v1/models"));
  $("model").replaceChildren(...models.map((model) => element("option", { value: model.id }, model.id)));
  const wanted = models.find((model) => model.id === before) ?? models.find((model) => model.parent) ?? models[0];
  if (wanted) $("model").value = wanted.id;
  nameChosen();
  return models;
}

/// `changed` is called when another model or prefix is chosen.
export function watchSettings(changed) {
  for (const id of Object.keys(kReaders)) {
    $(id).addEventListener("change", () => read(id));
    $(id).addEventListener("input", () => $(id).hasAttribute("aria-invalid") && read(id));
  }
  $("tool_choice").addEventListener("change", () => mark("tool_choice", ""));
  $("model").addEventListener("change", () => {
    mark("model", "");
    nameChosen();
    if ($("max_tokens").value) read("max_tokens");
    changed();
  });
  $("settings").addEventListener("submit", (event) => event.preventDefault());
  const narrow = matchMedia("(max-width: 48rem)");
  const fold = () => ($("fold").open = !narrow.matches);
  narrow.addEventListener("change", fold);
  fold();
}
