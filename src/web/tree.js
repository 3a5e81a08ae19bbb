// The prefix tree as a picture: a part is as wide as its tokens, and its colour says how many running sequences share it.
import { $, drawn, element } from "./element.js";

const kRow = 18;

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

function rectangle(node, place) {
  const registered = node.is_pinned ? ", registered" : "";
  const title = `${node.n_tokens} tokens, ${node.n_sequences} running sequences${registered}, hash ${node.hash}`;
  const shade = colour(node.n_sequences) + (node.is_pinned ? " pinned" : "");
  return drawn("rect", { ...place, class: shade }, drawn("title", {}, title));
}

function picture({ nodes }) {
  const { placed, width, height } = layOut(nodes);
  const pixels = Math.max(200, $("tree").clientWidth - 2);
  const made = [];
  nodes.forEach((node, i) => {
    const x = (placed[i].x / width) * pixels;
    const wide = Math.max(2, (node.n_tokens / width) * pixels);
    made.push(rectangle(node, { x, y: placed[i].y, width: wide, height: placed[i].height }));
    const label = `${node.n_tokens} × ${node.n_sequences}`;
    if (wide <= 7 * label.length + 8) return;
    const y = placed[i].y + placed[i].height / 2 + 4;
    made.push(drawn("text", { x: x + 5, y, class: `on-${colour(node.n_sequences)}` }, label));
  });
  return drawn("svg", { viewBox: `0 0 ${pixels} ${height}`, height }, ...made);
}

function rows(nodes) {
  return nodes.map((node) => {
    const parent = node.parent < 0 ? "the beginning" : nodes[node.parent].hash;
    const cells = [node.hash, parent, node.n_tokens, node.n_sequences, node.is_pinned ? "yes" : "no"];
    return element("tr", {}, ...cells.map((cell) => element("td", {}, String(cell))));
  });
}

export function drawTree(tree) {
  const count = (n) => n.toLocaleString("en");
  const cached = `${count(tree.n_cached_tokens)} tokens.`;
  const left = tree.n_left_out ? ` ${count(tree.n_left_out)} less used parts are left out.` : "";
  $("tree").replaceChildren(picture(tree));
  const parts = tree.nodes.length === 1 ? "1 part is" : `${count(tree.nodes.length)} parts are`;
  $("tree-note").textContent = tree.nodes.length
    ? `${parts} in use or registered; the whole cache holds ${cached}${left} `
      + "A framed part is registered; a label says tokens × running sequences."
    : `Nothing is in use; the cache holds ${cached}`;
  $("tree-table").replaceChildren(...rows(tree.nodes));
}
