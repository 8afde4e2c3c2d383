/** The room of corpora: what each holds, where it came from, and what became of every document of its last runs. */

import { get } from './api.js';
import { fill, h, roving } from './dom.js';
import { runRow } from './runs.js';
import { count, counted, emptiness, trouble, when } from './words.js';

const RUNS = 8;

/** Show the room; `corpus` is the one that is looked at. */
export async function corporaRoom({ main, corpora, corpus, signal }) {
  const detail = h('section', { class: 'panel detail', 'aria-label': `Corpus ${corpus}` });
  const title = h('h1', {}, 'Corpora');
  if (!corpora.length) {
    fill(
      main,
      h(
        'section',
        { class: 'page' },
        title,
        emptiness(
          'There is no corpus yet. Make one out of a folder of documents:',
          'sapwood index NAME FOLDER',
          h('p', { class: 'hint' }, 'Then load this page again.'),
        ),
      ),
    );
    return;
  }
  fill(
    main,
    h(
      'div',
      { class: 'page split' },
      h(
        'section',
        {},
        title,
        h('p', { class: 'hint' }, counted(corpora.length, 'corpus', 'corpora')),
        list(corpora, corpus),
      ),
      detail,
    ),
  );
  await look(
    detail,
    corpora.find((one) => one.name === corpus),
    corpus,
    signal,
  );
}

function list(corpora, chosen) {
  return h(
    'ul',
    { class: 'cards' },
    corpora.map((one) =>
      h(
        'li',
        {},
        h(
          'a',
          {
            class: 'card',
            href: `#/corpora/${encodeURIComponent(one.name)}`,
            'aria-current': one.name === chosen ? 'true' : null,
          },
          h('strong', {}, one.name),
          h(
            'span',
            { class: 'hint' },
            one.generation === null
              ? 'nothing published yet'
              : `generation ${one.generation} · ${counted(one.counts.documents ?? 0, 'document')} · ` +
                  `${counted(one.counts.entities ?? 0, 'entity', 'entities')}`,
          ),
        ),
      ),
    ),
  );
}

async function look(detail, summary, name, signal) {
  if (summary === undefined) {
    fill(detail, trouble({ status: 404, detail: `There is no corpus “${name}”.` }));
    return;
  }
  const path = `v1/corpora/${encodeURIComponent(name)}`;
  const again = () => look(detail, summary, name, signal);
  fill(detail, h('h2', {}, name), h('p', { class: 'waiting' }, 'Loading …'));
  try {
    const [view, generations, runs] = await Promise.all([
      get(path, {}, signal),
      get(`${path}/generations`, {}, signal),
      get(`${path}/runs`, { limit: 50 }, signal),
    ]);
    const current = generations.find((one) => one.number === view.generation);
    fill(
      detail,
      h('div', { class: 'head' }, h('h2', {}, name), links(name, view.generation)),
      view.generation === null
        ? emptiness('Nothing is published yet. Index a folder into it:', `sapwood index ${name} FOLDER`)
        : figures(view, current?.manifest, summary.counts),
      current?.manifest && account(current),
      sources(view.sources),
      history(runs, signal),
    );
  } catch (error) {
    if (!signal.aborted) fill(detail, h('h2', {}, name), trouble(error, again));
  }
}

function links(name, generation) {
  const to = encodeURIComponent(name);
  return (
    generation !== null &&
    h(
      'p',
      { class: 'row' },
      h('a', { class: 'button', href: `#/graph/${to}` }, 'Open its graph'),
      h('a', { class: 'button', href: `#/ask/${to}` }, 'Ask it'),
    )
  );
}

function figures(view, manifest, counts) {
  const shown = [
    ['generation', view.generation],
    ['documents', counts.documents],
    ['chunks', counts.chunks],
    ['entities', counts.entities],
    ['relations', counts.relations],
    ['communities', manifest?.communities],
  ];
  return h(
    'dl',
    { class: 'figures' },
    shown.map(([what, number]) =>
      h('div', {}, h('dt', {}, what), h('dd', {}, number === undefined ? '–' : count(number))),
    ),
  );
}

function account({ manifest, published_at: published }) {
  const rows = [
    ['Published', when(published)],
    ['Vectors', `${manifest.embedding} in ${manifest.dense_store}`],
    ['Graph', `${manifest.extraction} in ${manifest.graph_store}`],
    ['Communities', `${counted(manifest.levels, 'level')}, modularity ${manifest.modularity.toFixed(2)}`],
    manifest.rolled_back_from !== null && ['Rolled back', `from generation ${manifest.rolled_back_from}`],
    (manifest.contexts || manifest.failed_contexts) && [
      'Contexts of chunks',
      `${count(manifest.contexts ?? 0)} written, ${count(manifest.failed_contexts ?? 0)} failed`,
    ],
    manifest.input_tokens > 0 && [
      'Model tokens',
      `${count(manifest.input_tokens)} in, ${count(manifest.output_tokens)} out`,
    ],
  ];
  return h(
    'dl',
    { class: 'facts' },
    rows.filter(Boolean).map(([what, value]) => [h('dt', {}, what), h('dd', {}, value)]),
  );
}

function sources(given) {
  return [
    h('h3', {}, 'Sources'),
    given.length
      ? h(
          'ul',
          { class: 'plain' },
          given.map(({ kind, location }) =>
            h('li', {}, h('span', { class: 'tag' }, kind), ' ', h('code', {}, location)),
          ),
        )
      : h('p', { class: 'hint' }, 'None.'),
  ];
}

function history(runs, signal) {
  const indexed = runs.filter((run) => run.kind === 'index').slice(0, RUNS);
  return [
    h('h3', {}, 'Last index runs'),
    indexed.length
      ? roving(
          h(
            'ul',
            { class: 'runs' },
            indexed.map((run, at) => runRow(run, at === 0, signal)),
          ),
        )
      : h('p', { class: 'hint' }, 'None yet.'),
  ];
}
