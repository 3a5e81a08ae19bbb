// What an empty conversation shows: what is asked, and three questions to begin with.
import { button, $ } from "./element.js";
import { chosen } from "./settings.js";

/// Questions about models/demo/catalogue.txt, which is most often the first prefix of the demo model.
const kDemo = [
  "What does the Kalsaren T35 cost?",
  "Is the Pelrinar K3 in stock?",
  "Is the Marmir E6 or the Wesnar B4 cheaper?",
];
const kDemoAlone = ["Hello!", "Who are you?", "What can you do?"];
const kPrefix = [
  "What are you here for?",
  "What should I know first? Three points, please.",
  "Which questions can you answer?",
];
const kModel = [
  "Say hello in three languages.",
  "What is a cache, in two sentences?",
  "Write a short poem about a relay race.",
];

const isDemo = (model) => /(^|\/)demo\/?$/.test(model.root);

function questionsFor(model) {
  if (isDemo(model)) return model.parent ? kDemo : kDemoAlone;
  return model.parent ? kPrefix : kModel;
}

/// Shows the beginning for the chosen model; `ask` takes a question that is clicked.
export function showStarters(ask) {
  const model = chosen();
  $("starters").hidden = !model;
  if (!model) return;
  const prefix = model.parent ? model.id.slice(model.parent.length + 1) : null;
  $("starters-of").textContent = `Ask ${model.id}`;
  $("starters-why").textContent = prefix
    ? `Your questions follow the registered prompt "${prefix}". It is computed once and read once for all requests.`
    : "No registered prompt is chosen. With one, what all questions share is computed once and read once for all requests.";
  $("questions").replaceChildren(...questionsFor(model).map((text) => button(text, () => ask(text))));
}
