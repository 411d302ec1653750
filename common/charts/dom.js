// Creates elements. Text is always set as text, never as markup.

const svgNamespace = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNamespace, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

// Replaces the text only if it has changed, so that a selection survives.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}
