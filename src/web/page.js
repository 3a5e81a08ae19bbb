// The page: its views, by the end of its address, the API key, and what is asked again when the server is back.
import { Unreachable } from "./api.js";
import { showBeginning, watchConversation } from "./conversation.js";
import { showDocument } from "./documents.js";
import { $ } from "./element.js";
import { setLive } from "./live.js";
import { showProblem, showVersion, watch } from "./server.js";
import { loadModels, watchSettings } from "./settings.js";

const kTitles = { chat: "Baton", live: "Live · Baton", docs: "Docs · Baton" };

/// Asks what is served, for the header and the settings.
async function load() {
  try {
    const models = await loadModels();
    await showVersion(models);
    showProblem("");
  } catch (error) {
    showProblem(error instanceof Unreachable ? "" : error.message);  // server.js says where it cannot be reached
    if (error.status === 401) $("key").setAttribute("aria-invalid", "true");
  }
  showBeginning();
}

/// Shows the view that the address names: #chat, #live, #docs/NAME or #docs/NAME/HEADING.
function open() {
  const [name, text, heading] = location.hash.slice(1).split("/");
  const view = Object.hasOwn(kTitles, name) ? name : "chat";
  document.title = kTitles[view];
  for (const each of Object.keys(kTitles)) {
    $(each).hidden = each !== view;
    if (each === view) $(`to-${each}`).setAttribute("aria-current", "page");
    else $(`to-${each}`).removeAttribute("aria-current");
  }
  showProblem("");
  setLive(view === "live");
  if (view === "chat") load();
  if (view === "docs") showDocument(text || "api", heading);
}

/// Does what needs the browser's storage, which may be closed.
function withStorage(act) {
  try {
    return act(sessionStorage);
  } catch {
    return null;
  }
}

$("key").value = withStorage((storage) => storage.getItem("key")) || "";
$("key").addEventListener("change", () => {
  withStorage((storage) => storage.setItem("key", $("key").value));
  $("key").removeAttribute("aria-invalid");
  load().then(() => $("live").hidden || setLive(true));
});
addEventListener("hashchange", open);
watchSettings(showBeginning);
watchConversation();
if (location.hash.startsWith("#live") || location.hash.startsWith("#docs")) load();  // the header is in all views
open();
watch(load);
