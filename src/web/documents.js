// The documents of this version: the Markdown that they are written in, as elements.
import { send } from "./api.js";
import { $, element } from "./element.js";
import { showProblem } from "./server.js";

const kInline = /(`+)(.+?)\1(?!`)|!?\[([^\]]*)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*/g;
const kOurs = /^([\w-]*)(?:\.md)?(?:#([\w-]+))?$/;

/// What a link in document `name` leads to on this page, or null: other documents are not part of the program.
function targetOf(link, name) {
  const [, document, place] = (link.endsWith(".md") || link.includes("#") ? link.match(kOurs) : null) ?? [];
  const other = document || name;
  if (document === undefined || !$(`document-${other}`)) return null;
  return `#docs/${other}${place ? `/${place}` : ""}`;
}

/// A line's text with its code, links and emphasis.
function inline(text, name) {
  const made = [];
  let from = 0;
  for (const match of text.matchAll(kInline)) {
    const [whole, , code, label, link, strong, emphasis] = match;
    made.push(text.slice(from, match.index));
    from = match.index + whole.length;
    if (code !== undefined) made.push(element("code", {}, code.trim()));
    else if (strong !== undefined) made.push(element("strong", {}, ...inline(strong, name)));
    else if (emphasis !== undefined) made.push(element("em", {}, ...inline(emphasis, name)));
    else if (!whole.startsWith("!")) {  // pictures are no part of the program
      const target = targetOf(link, name);
      made.push(element(target ? "a" : "span", target ? { href: target } : {}, ...inline(label, name)));
    }
  }
  return [...made, text.slice(from)];
}

/// The cells of a table's row; \| is no border.
function cells(line) {
  return line.replace(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function table(lines, name) {
  const row = (line, kind) => element("tr", {}, ...cells(line).map((cell) => element(kind, {}, ...inline(cell, name))));
  const body = lines.slice(2).map((line) => row(line, "td"));
  return element("div", { class: "wide" },
                 element("table", {}, element("thead", {}, row(lines[0], "th")), element("tbody", {}, ...body)));
}

const place = (title) => title.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");

/// The kinds of blocks: how a first line begins, which lines continue, and what is made of them.
const kBlocks = [
  { begins: /^#+ /, goesOn: () => false, make: ([line], name) => {
    const [, marks, title] = line.match(/^(#+) (.*)$/);
    return element(`h${Math.min(6, marks.length + 1)}`, { id: `at-${place(title)}` }, ...inline(title, name));
  } },
  { begins: /^```/, goesOn: (line, lines) => lines.length < 2 || !lines.at(-1).startsWith("```"),
    make: (lines) => element("pre", { tabindex: "0" }, lines.slice(1, -1).join("\n")) },
  { begins: /^ {4}/, goesOn: (line) => /^ {4}|^$/.test(line),
    make: (lines) => element("pre", { tabindex: "0" }, lines.map((line) => line.slice(4)).join("\n").trimEnd()) },
  { begins: /^\|/, goesOn: (line) => line.startsWith("|"), make: table },
  { begins: /^- /, goesOn: (line) => /^- |^ {2}/.test(line), make: (lines, name) => {
    const items = lines.join("\n").split(/\n?^- /m).slice(1);
    return element("ul", {}, ...items.map((item) => element("li", {}, ...inline(item.replace(/\n\s*/g, " "), name))));
  } },
  { begins: /./, goesOn: (line) => line !== "" && !/^(#+ |```|\||- )/.test(line),
    make: (lines, name) => element("p", {}, ...inline(lines.join(" "), name)) },
];

/// The elements of a document.
function rendered(text, name) {
  const lines = text.split("\n");
  const made = [];
  for (let at = 0; at < lines.length;) {
    const block = kBlocks.find(({ begins }) => begins.test(lines[at]));
    const taken = [lines[at++]];
    if (!block) continue;  // an empty line
    while (at < lines.length && block.goesOn(lines[at], taken)) taken.push(lines[at++]);
    made.push(block.make(taken, name));
  }
  return made;
}

/// Shows a document, and goes to the heading `heading` of it.
export async function showDocument(name, heading) {
  const chosen = $(`document-${name}`) ? name : "api";
  for (const link of $("documents").querySelectorAll("a")) link.removeAttribute("aria-current");
  $(`document-${chosen}`).setAttribute("aria-current", "page");
  try {
    const text = await (await send(`page/${chosen}.md`)).text();
    $("document").replaceChildren(...rendered(text, chosen));
    $("document").scrollTop = 0;
    $(`at-${heading}`)?.scrollIntoView();
    showProblem("");
  } catch (error) {
    showProblem(error.message);
  }
}
