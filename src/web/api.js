// The API of the server that the page comes from. Nothing else is called.
import { $ } from "./element.js";

/// A server that cannot be reached, or a connection to it that has ended.
export class Unreachable extends Error {}

/// A request that the server has refused, in its words. `param` is the field that it names, if any.
export class Refused extends Error {
  constructor(status, message, param) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

function headers() {
  const key = $("key").value.trim();
  return { "Content-Type": "application/json", ...(key ? { Authorization: `Bearer ${key}` } : {}) };
}

async function refusalOf(response) {
  const text = await response.text();
  let error = null;
  try {
    error = JSON.parse(text).error;
  } catch {
    // A proxy answers in HTML.
  }
  let message = error?.message || `The server answered ${response.status} ${response.statusText}.`;
  if (response.status === 401)
    message = $("key").value.trim() ? "The server does not know this API key."
                                    : "This server asks for an API key: type it at the top.";
  return new Refused(response.status, message, error?.param || null);
}

/// Whether a proxy says that its server does not answer.
export const isFromProxy = (status) => status === 502 || status === 504;

/// Answers like fetch, but a server that cannot be reached and a refusal are errors with a sentence.
export async function send(path, options = {}) {
  if (/[^\x20-\x7e]/.test($("key").value.trim()))
    throw new Refused(401, "The API key has a character that no header can carry: type it again at the top.", null);
  let response = null;
  try {
    response = await fetch(path, { ...options, headers: headers() });
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (!response || isFromProxy(response.status)) throw lost(`The server at ${location.host} cannot be reached.`);
  if (!response.ok) throw await refusalOf(response);
  return response;
}

export async function get(path) {
  return (await send(path, { cache: "no-store" })).json();
}

/// The rest of the page hears at once that the server is gone (server.js).
function lost(sentence) {
  document.dispatchEvent(new Event("serverlost"));
  return new Unreachable(sentence);
}

async function readFrames(reader, take) {
  let rest = "";
  let isComplete = false;
  for (;;) {
    let part = null;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
    if (!part || (part.done && !isComplete)) throw lost("The connection to the server ended before the answer did.");
    if (part.done) return;
    const frames = (rest + part.value).split("\n\n");
    rest = frames.pop();
    for (const frame of frames) {
      if (frame === "data: [DONE]") isComplete = true;
      else if (frame.startsWith("data: ")) take(JSON.parse(frame.slice(6)));
    }
  }
}

/// Calls `take` with each event of a stream of server-sent events. What `take` throws ends the stream.
export async function readEvents(response, take) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    await readFrames(reader, take);
  } catch (error) {
    reader.cancel().catch(() => {});
    throw error;
  }
}
