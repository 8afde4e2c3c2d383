/** The frame of the page: which room is shown for which corpus is in the address, after the `#`. */

import { get } from './api.js';
import { corporaRoom } from './corpora.js';
import { guardDoor } from './door.js';
import { fill, h } from './dom.js';
import { graphRoom } from './graph.js';
import { queryRoom } from './console.js';
import { emptiness, trouble } from './words.js';

const ROOMS = {
  corpora: { title: 'Corpora', show: corporaRoom },
  graph: { title: 'Graph', show: graphRoom, ofCorpus: true },
  ask: { title: 'Ask', show: queryRoom, ofCorpus: true },
};

const main = document.getElementById('main');
const pick = document.getElementById('pick');
const select = document.getElementById('corpus');
let left = new AbortController();
let shown = null;

/** Return what an address shows: {room, corpus, params}. */
function read(hash) {
  const [path, query = ''] = hash.replace(/^#\/?/, '').split('?');
  const [room, corpus = ''] = path.split('/');
  return { room: room in ROOMS ? room : 'corpora', corpus: decoded(corpus), params: new URLSearchParams(query) };
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

const address = (room, corpus) => `#/${room}${corpus ? `/${encodeURIComponent(corpus)}` : ''}`;

async function show() {
  const { room, corpus: wanted, params } = read(location.hash);
  left.abort();
  left = new AbortController();
  const { signal } = left;
  const moved = shown !== null;
  fill(main, h('p', { class: 'waiting' }, 'Loading …'));
  try {
    const corpora = await get('v1/corpora', {}, signal);
    const corpus =
      wanted || shown?.corpus || corpora.find((one) => one.generation !== null)?.name || corpora[0]?.name || '';
    shown = { room, corpus };
    frame(room, corpus, corpora);
    if (ROOMS[room].ofCorpus && !corpus) fill(main, NOTHING());
    else await ROOMS[room].show({ main, corpora, corpus, params, signal });
    if (moved) main.focus({ preventScroll: true });
  } catch (error) {
    if (signal.aborted) return;
    frame(room, wanted, []);
    fill(main, h('section', { class: 'page' }, h('h1', {}, ROOMS[room].title), trouble(error, show)));
  }
}

const NOTHING = () =>
  h(
    'section',
    { class: 'page' },
    h('h1', {}, 'Nothing here yet'),
    emptiness('There is no corpus. Make one out of a folder of documents:', 'sapwood index NAME FOLDER'),
  );

function frame(room, corpus, corpora) {
  document.title = `${ROOMS[room].title}${corpus ? ` – ${corpus}` : ''} · Sapwood explorer`;
  fill(
    document.getElementById('rooms'),
    Object.entries(ROOMS).map(([name, { title }]) =>
      h('a', { href: address(name, corpus), 'aria-current': name === room ? 'page' : null }, title),
    ),
  );
  pick.hidden = !ROOMS[room].ofCorpus || corpora.length === 0;
  fill(
    select,
    corpora.map(({ name }) => h('option', { value: name, selected: name === corpus }, name)),
  );
}

select.addEventListener('change', () => {
  location.hash = address(read(location.hash).room, select.value);
});
window.addEventListener('hashchange', show);
guardDoor(document.getElementById('key'), show);
await show();
