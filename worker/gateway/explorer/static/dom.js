/**
 * Makes elements. Text becomes text nodes and nothing else: names and passages come out of documents that anybody may
 * have written, so no string is ever read as markup.
 */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Return an element. In `props`, a function is a listener (`onclick`), `style` is an object of CSS properties, true and
 * false are an attribute without a value, and null is none.
 */
export function h(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** Put these in place of all that an element holds. */
export function fill(element, ...children) {
  element.replaceChildren(...kept(children));
  return element;
}

/** Say something to those who listen instead of looking. */
export function announce(text) {
  document.getElementById('said').textContent = text;
}

/** Have the arrow keys, Home and End move through the buttons of a list, of which one at a time is in the tab order. */
export function roving(list) {
  const items = () => [...list.querySelectorAll('button.item')];
  list.addEventListener('keydown', (event) => {
    const all = items();
    const next = moved(event.key, all.indexOf(event.target), all.length);
    if (next === null) return;
    event.preventDefault();
    all[next].focus();
  });
  list.addEventListener('focusin', (event) => {
    if (event.target.matches('button.item')) for (const one of items()) one.tabIndex = one === event.target ? 0 : -1;
  });
  return list;
}

function moved(key, at, length) {
  if (at < 0) return null;
  const targets = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: length - 1 };
  return key in targets ? Math.max(0, Math.min(length - 1, targets[key])) : null;
}

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === 'function') element.addEventListener(name.slice(2), value);
    else if (name === 'style') for (const [key, one] of Object.entries(value)) element.style.setProperty(key, one);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...kept(children));
  return element;
}

function kept(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}
