/** What the room of the graph is made of: the search, the lists, the drawing and the panel. */

import { h, roving } from './dom.js';

const PAUSE = 200;

/** What the panel says while nothing is chosen. */
export const BEGIN = [
  h('h2', {}, 'Nothing chosen'),
  h(
    'p',
    { class: 'hint' },
    'Press an entity, in a list or in the drawing: its neighbours join, and its relations and evidence are shown here.',
  ),
  h(
    'p',
    { class: 'hint' },
    'The drawing is a part of the graph: until an entity was chosen, relations of it may be missing there.',
  ),
];

/** Return the parts of the page; `room` does what its controls ask for. */
export function layout(room) {
  const search = h('input', {
    type: 'search',
    id: 'search',
    placeholder: 'Find an entity',
    autocomplete: 'off',
    spellcheck: 'false',
    'aria-keyshortcuts': '/',
  });
  const parts = {
    search,
    results: h('div', { class: 'results', id: 'results' }),
    legend: h('ul', { class: 'plain legend', id: 'legend' }),
    nodes: roving(h('ul', { class: 'list', id: 'nodes' })),
    total: h('span', { class: 'hint' }),
    status: h('p', { class: 'hint', id: 'status' }),
    canvas: h('div', {
      class: 'canvas',
      id: 'canvas',
      role: 'img',
      'aria-label': 'Drawing of the graph; the list of entities holds the same.',
    }),
    panel: h('section', { class: 'panel', id: 'panel', 'aria-label': 'Chosen entity' }),
  };
  let timer = 0;
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => room.find(search.value), PAUSE);
  });
  search.addEventListener('keydown', (event) => {
    if (event.key !== 'ArrowDown' && event.key !== 'Enter') return;
    event.preventDefault();
    parts.results.querySelector('button.item')?.focus();
  });
  const tool = (name, shown, act) =>
    h('button', { type: 'button', 'aria-label': name, title: name, onclick: act }, shown);
  const find = h(
    'section',
    { class: 'panel find', 'aria-label': 'Find' },
    h('label', { for: 'search', class: 'sr' }, 'Find an entity'),
    search,
    parts.results,
  );
  const lists = h(
    'section',
    { class: 'panel lists', 'aria-label': 'Communities and entities' },
    h('details', { open: true }, h('summary', {}, 'Communities'), parts.legend),
    h('details', { open: true }, h('summary', {}, 'Entities ', parts.total), parts.nodes),
  );
  const middle = h(
    'section',
    { class: 'middle', 'aria-label': 'Drawing' },
    parts.canvas,
    h(
      'div',
      { class: 'tools' },
      tool('Zoom in', '+', () => room.canvas.zoom(1.3)),
      tool('Zoom out', '−', () => room.canvas.zoom(1 / 1.3)),
      tool('Show all', 'Fit', () => room.canvas.fit()),
      tool('Start over', 'Start over', () => room.begin()),
    ),
    parts.status,
  );
  return {
    ...parts,
    page: h(
      'div',
      { class: 'page graph' },
      h('h1', { class: 'sr' }, `Graph of ${room.corpus}`),
      find,
      lists,
      middle,
      parts.panel,
    ),
  };
}

/** Have `/` lead to the search, wherever nothing is typed into. */
export function listenForSlash(search, signal) {
  document.addEventListener(
    'keydown',
    (event) => {
      if (
        event.key !== '/' ||
        event.ctrlKey ||
        event.metaKey ||
        event.target.closest('input, textarea, select, dialog')
      )
        return;
      event.preventDefault();
      search.focus();
    },
    { signal },
  );
}
