/** The room of the graph: it begins with the largest communities and the best connected, and grows where one looks. */

import { get } from './api.js';
import { Canvas } from './canvas.js';
import { BEGIN, layout, listenForSlash } from './desk.js';
import { announce, fill, h, roving } from './dom.js';
import { showEntity } from './entity.js';
import { MARKED, markOf, picture, placed } from './marks.js';
import { communityOf, connected, Model, MOST, nameOf } from './model.js';
import { count, counted, emptiness, trouble } from './words.js';

const FIRST = 50;
const GROUPS = 8;
const MEMBERS = 12;
const NEAR = 25;
const MOST_NEAR = 200;
const FOUND = 30;
const STACKED = matchMedia('(max-width: 44rem)'); // as in app.css

/** Show the room for a corpus; `params` may name an `entity`. */
export async function graphRoom({ main, corpora, corpus, params, signal }) {
  const known = corpora.find((one) => one.name === corpus);
  if (known?.generation === null) {
    fill(
      main,
      h(
        'section',
        { class: 'page' },
        h('h1', {}, 'Graph'),
        emptiness('Nothing is published yet. Index a folder into this corpus:', `sapwood index ${corpus} FOLDER`),
      ),
    );
    return;
  }
  const room = new Room(main, corpus, signal);
  await room.begin();
  if (params.get('entity')) await room.go(params.get('entity'));
}

class Room {
  #model = new Model();

  #hidden = new Set();

  #chosen = null;

  #places = new Map();

  constructor(main, corpus, signal) {
    this.corpus = corpus;
    this.signal = signal;
    this.parts = layout(this);
    fill(main, this.parts.page);
    this.canvas = new Canvas(this.parts.canvas, (id) => this.go(id));
    signal.addEventListener('abort', () => this.canvas.destroy());
    this.parts.canvas.pointOf = (id) => this.canvas.pointOf(id);
    listenForSlash(this.parts.search, signal);
  }

  #ask(path, params) {
    return get(`api/graph/${encodeURIComponent(this.corpus)}/${path}`, params, this.signal);
  }

  /** Show the largest communities and the best-connected entities. */
  async begin() {
    await this.#guarded(
      () => this.begin(),
      async () => {
        const [best, groups] = await Promise.all([this.#ask('subgraph', { limit: FIRST }), this.#groups()]);
        this.#model.clear();
        this.canvas.clear();
        this.#hidden.clear();
        this.#chosen = null;
        for (const part of [...groups, best]) this.#model.add(connected(part));
        this.#draw();
        fill(
          this.parts.panel,
          ...(best.entities.length
            ? BEGIN
            : [
                emptiness(
                  'This generation has no entities. Ask what its documents hold:',
                  `sapwood query ${this.corpus} "…"`,
                ),
              ]),
        );
        this.#tell(
          `${count(this.#model.entities.size)} of ${counted(best.total_matched, 'entity', 'entities')}: ` +
            'the largest communities and the best connected.',
        );
      },
    );
  }

  /** Return the best-connected members of the largest communities. */
  async #groups() {
    const found = await this.#ask('communities', { limit: GROUPS });
    return Promise.all(
      found
        .filter((one) => one.member_ids.length > 1)
        .map(({ community_id: id }) => this.#ask(`community/${id}/subgraph`, { limit: MEMBERS })),
    );
  }

  /** Choose an entity: its neighbours join the drawing, and its panel is shown. */
  async go(id, limit = NEAR) {
    await this.#guarded(
      () => this.go(id, limit),
      async () => {
        this.#chosen = id;
        const part = await this.#ask('entity/neighbors', { entity_id: id, max_hops: 1, limit: limit + 1 });
        if (this.#chosen !== id) return; // another was chosen meanwhile
        const { added, refused } = this.#model.add(part);
        this.#draw(this.#model.entities.has(id) ? id : null);
        const [entity] = part.entities;
        const missing = part.total_matched - part.entities.length;
        this.#tell(joined(nameOf(entity), added.length, missing, refused));
        await showEntity(this.parts.panel, {
          corpus: this.corpus,
          part,
          signal: this.signal,
          go: (other) => this.pick(other),
          community: this.#community(entity),
          more: missing > 0 && limit < MOST_NEAR ? () => this.go(id, Math.min(limit * 4, MOST_NEAR)) : null,
        });
      },
    );
  }

  /** Choose an entity from a list: where the panel is further down the page, the page goes there. */
  async pick(id) {
    await this.go(id);
    if (STACKED.matches) this.parts.panel.scrollIntoView({ block: 'start' });
  }

  /** List the entities whose names match. */
  async find(text) {
    const { results } = this.parts;
    if (!text.trim()) return void fill(results);
    try {
      const found = await this.#ask('entities', { q: text, limit: FOUND });
      if (this.parts.search.value !== text) return undefined; // it was typed on meanwhile
      fill(
        results,
        found.length === 0 && h('p', { class: 'hint' }, `No entity is called like “${text}”.`),
        roving(
          h(
            'ul',
            { class: 'list' },
            found.map((one, at) => h('li', {}, this.#button(one, at === 0, one.entity_type))),
          ),
        ),
      );
      announce(
        `${counted(found.length, 'entity', 'entities')} found${found.length === FOUND ? ', there may be more' : ''}.`,
      );
    } catch (error) {
      if (!this.signal.aborted) fill(results, trouble(error));
    }
    return undefined;
  }

  #community(entity) {
    const id = communityOf(entity);
    const place = this.#model.communities().findIndex((one) => one.id === id);
    return { name: place < 0 ? id : this.#model.communities()[place].name, mark: markOf(this.#places.get(id) ?? -1) };
  }

  #draw(around = null) {
    this.#places = placed(this.#places, this.#model.communities());
    this.canvas.draw(this.#model, this.#places, around);
    this.#legend();
    this.#filtered();
    if (this.#chosen) this.canvas.select(this.#chosen);
  }

  #filtered() {
    const shown = (id) => !this.#hidden.has(this.#groupOf(this.#model.entities.get(id)));
    this.canvas.filter(shown);
    const degrees = this.#model.degrees();
    const ids = [...this.#model.entities.keys()]
      .filter(shown)
      .sort(
        (a, b) =>
          degrees.get(b) - degrees.get(a) ||
          nameOf(this.#model.entities.get(a)).localeCompare(nameOf(this.#model.entities.get(b))),
      );
    const focused = document.activeElement?.closest('#nodes') ? document.activeElement.dataset.id : null;
    const first = ids.includes(focused) ? focused : ids.includes(this.#chosen) ? this.#chosen : ids[0];
    fill(
      this.parts.nodes,
      ids.map((id) =>
        h(
          'li',
          {},
          this.#button(this.#model.entities.get(id), id === first, degrees.get(id) ? String(degrees.get(id)) : ''),
        ),
      ),
    );
    if (focused !== null) this.parts.nodes.querySelector('button[tabindex="0"]')?.focus();
    fill(
      this.parts.total,
      counted(ids.length, 'entity', 'entities'),
      ` · ${counted(this.#model.relations.size, 'relation')}`,
    );
  }

  #button(entity, first, note) {
    return h(
      'button',
      {
        type: 'button',
        class: 'item',
        tabindex: first ? 0 : -1,
        'data-id': entity.entity_id,
        'aria-current': entity.entity_id === this.#chosen ? 'true' : null,
        onclick: () => this.pick(entity.entity_id),
      },
      picture(markOf(this.#places.get(communityOf(entity)) ?? -1)),
      h('span', { class: 'name' }, nameOf(entity)),
      h('span', { class: 'hint' }, note),
    );
  }

  #groupOf(entity) {
    const place = this.#places.get(communityOf(entity)) ?? -1;
    return place >= 0 && place < MARKED ? communityOf(entity) : '';
  }

  #legend() {
    const all = this.#model.communities();
    const marked = all.filter((one) => this.#groupOf({ properties: { communityId: one.id } }) !== '');
    const rest = all.filter((one) => !marked.includes(one)).reduce((sum, one) => sum + one.size, 0);
    const rows = [...marked, ...(rest ? [{ id: '', name: 'all others', size: rest }] : [])];
    fill(
      this.parts.legend,
      rows.map(({ id, name, size }) => {
        const box = h('input', { type: 'checkbox', checked: !this.#hidden.has(id) });
        box.addEventListener('change', () => {
          if (box.checked) this.#hidden.delete(id);
          else this.#hidden.add(id);
          this.#filtered();
        });
        return h(
          'li',
          {},
          h(
            'label',
            { class: 'check' },
            box,
            picture(markOf(id ? this.#places.get(id) : -1)),
            h('span', { class: 'name' }, name),
            h('span', { class: 'hint' }, count(size)),
          ),
        );
      }),
    );
  }

  #tell(text) {
    fill(this.parts.status, text);
    announce(text);
  }

  async #guarded(again, work) {
    try {
      await work();
    } catch (error) {
      if (!this.signal.aborted) fill(this.parts.panel, trouble(error, again));
    }
  }
}

/** Return in words how many entities joined the drawing, how many were not asked for, and how many found no room. */
function joined(name, added, missing, refused) {
  return [
    `${name}: ${added ? `${counted(added, 'entity', 'entities')} joined.` : 'nothing new joined.'}`,
    missing > 0 && `${counted(missing, 'more neighbour')} can be shown.`,
    refused > 0 && `${count(refused)} found no room: ${count(MOST)} is the most. Start over to see them.`,
  ]
    .filter(Boolean)
    .join(' ');
}
