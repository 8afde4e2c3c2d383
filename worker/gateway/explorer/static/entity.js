/** The panel of one entity: what it is, what it is related to, and the passages that speak of it. */

import { get } from './api.js';
import { fill, h } from './dom.js';
import { picture } from './marks.js';
import { nameOf } from './model.js';
import { count, counted, lines, place, trouble } from './words.js';

const PAGE = 5;
const OURS = new Set(['mentions', 'chunks', 'communityId', 'communityPath']);

/**
 * Fill the panel. `part` is the neighbourhood of the entity, itself first; `community` is {name, mark}; `go` shows
 * another entity; `more` loads more neighbours, or is null where all are there.
 */
export function showEntity(panel, { corpus, part, community, go, more, signal }) {
  const [entity, ...others] = part.entities;
  const evidence = h('div', { class: 'evidence' });
  fill(
    panel,
    h('h2', { tabindex: '-1' }, nameOf(entity)),
    h(
      'p',
      { class: 'row wrap' },
      h('span', { class: 'tag' }, entity.entity_type),
      h('span', { class: 'hint' }, picture(community.mark), ` community ${community.name}`),
    ),
    entity.description && h('p', {}, entity.description),
    facts(entity, part.total_matched - 1),
    h('h3', {}, 'Relations'),
    relations(entity, others, part.relationships, go),
    more &&
      h(
        'p',
        { class: 'hint' },
        `${count(others.length)} of ${counted(part.total_matched - 1, 'neighbour')} are shown. `,
        h('button', { type: 'button', onclick: more }, 'Show more'),
      ),
    h('h3', {}, 'Evidence'),
    evidence,
  );
  return pages(evidence, corpus, entity, signal);
}

function facts(entity, neighbours) {
  const { mentions, chunks } = entity.properties;
  const own = Object.entries(entity.properties).filter(([name]) => !OURS.has(name));
  const rows = [
    ['Neighbours', count(neighbours)],
    ['Mentions', `${count(mentions ?? 0)} in ${counted(chunks ?? 0, 'chunk')}`],
    entity.file_path && ['File', h('code', {}, entity.file_path)],
    ['Id', h('code', {}, entity.entity_id)],
    ...own.map(([name, value]) => [name, typeof value === 'string' ? value : JSON.stringify(value)]),
  ];
  return h(
    'dl',
    { class: 'facts' },
    rows.filter(Boolean).map(([what, value]) => [h('dt', {}, what), h('dd', {}, value)]),
  );
}

function relations(entity, others, all, go) {
  const known = new Map([entity, ...others].map((one) => [one.entity_id, one]));
  const own = all.filter((one) => one.source_id === entity.entity_id || one.target_id === entity.entity_id);
  if (own.length === 0) return h('p', { class: 'hint' }, 'None: it is mentioned, and that is all.');
  return h(
    'ul',
    { class: 'relations' },
    own.map((one) => {
      const out = one.source_id === entity.entity_id;
      const other = known.get(out ? one.target_id : one.source_id);
      const stated = one.properties.evidence;
      return h(
        'li',
        {},
        h('span', { class: 'sr' }, out ? 'to ' : 'from '),
        h('span', { 'aria-hidden': 'true' }, out ? '→' : '←'),
        ' ',
        h('span', { class: 'verb' }, one.relation_type),
        ' ',
        h('button', { type: 'button', class: 'link', onclick: () => go(other.entity_id) }, nameOf(other)),
        stated > 1 && h('span', { class: 'hint' }, ` · ${counted(stated, 'chunk')}`),
      );
    }),
  );
}

async function pages(box, corpus, entity, signal) {
  const list = h('ol', { class: 'passages' });
  const foot = h('div', {});
  fill(box, list, foot);
  let run = null;
  const load = async (offset) => {
    fill(foot, h('p', { class: 'waiting' }, 'Loading …'));
    try {
      const params = { entity_id: entity.entity_id, limit: PAGE, offset, run_id: run };
      const page = await get(`api/graph/${encodeURIComponent(corpus)}/entity/sources`, params, signal);
      run = page.run_id;
      list.append(...page.sources.map((one) => passage(one, nameOf(entity))));
      fill(
        foot,
        page.next_offset !== null &&
          h('button', { type: 'button', onclick: () => load(page.next_offset) }, 'More evidence'),
        !list.hasChildNodes() && h('p', { class: 'hint' }, 'No passage mentions it.'),
      );
    } catch (error) {
      if (!signal.aborted)
        fill(
          foot,
          trouble(error, () => pages(box, corpus, entity, signal)),
        );
    }
  };
  await load(0);
}

function passage(source, name) {
  const range = [source.start_line, source.end_line];
  return h(
    'li',
    {},
    h('p', { class: 'place' }, h('code', { title: lines(range) }, place(source.file_path, range))),
    h('blockquote', {}, marked(source.content, name)),
  );
}

/** Return a text with each occurrence of a name in it marked. */
export function marked(text, name) {
  const found = [];
  const [where, what] = [text.toLowerCase(), name.toLowerCase()];
  let begin = 0;
  for (let at = where.indexOf(what); what && at >= 0 && where.length === text.length; at = where.indexOf(what, begin)) {
    found.push(text.slice(begin, at), h('mark', {}, text.slice(at, at + what.length)));
    begin = at + what.length;
  }
  return [...found, text.slice(begin)];
}
