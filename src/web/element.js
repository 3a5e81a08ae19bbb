// How the page finds and makes elements.
export const $ = (id) => document.getElementById(id);

const kDrawing = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function element(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/// An element of a drawing (SVG).
export function drawn(name, attributes = {}, ...children) {
  return filled(document.createElementNS(kDrawing, name), attributes, children);
}

export function button(text, act, attributes = {}) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}
