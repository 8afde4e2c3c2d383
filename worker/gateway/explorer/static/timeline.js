/** A question under way: its deadline running down, its legs as bars, its events as a list. */

import { fill, h } from './dom.js';
import { counted, took } from './words.js';

const LEGS = { hybrid: ['keyword', 'dense', 'graph'], semantic: ['dense'], keyword: ['keyword'], graph: ['graph'] };
const LEAST = 0.02;

/** What a leg is called: a strategy that searches several times says which search it belongs to. */
const named = (report) => (report.of ? `${report.of}.${report.leg}` : report.leg);

const STATES = {
  running: 'Running',
  complete: 'Complete',
  partial: 'Partial',
  expired: 'Expired',
  cancelled: 'Cancelled',
  failed: 'Failed',
};

/** Draws from its making until `stop`; times are seconds since then. */
export class Timeline {
  said = '';

  #begun = performance.now();

  #seconds = null;

  #frame = 0;

  #rows = new Map();

  constructor(strategy, deadline) {
    this.deadline = deadline;
    this.left = h('span', { class: 'left' });
    this.fuse = h('div', { class: 'fuse' });
    this.state = h('span', { class: 'state running', id: 'state' }, STATES.running);
    this.words = h('span', { class: 'words' });
    this.legs = h('div', { class: 'legs', id: 'legs' });
    this.list = h('ol', { class: 'events', id: 'events' });
    for (const leg of LEGS[strategy] ?? []) this.#row(leg);
    this.element = h(
      'div',
      { class: 'panel timeline' },
      h('div', { class: 'row' }, this.state, this.words, h('span', { class: 'grow' }), this.left),
      h(
        'div',
        {
          class: 'deadline',
          role: 'progressbar',
          'aria-label': 'Time left until the deadline',
          'aria-valuemin': 0,
          'aria-valuemax': deadline,
        },
        this.fuse,
      ),
      this.legs,
      h('details', { open: true }, h('summary', {}, 'Events'), this.list),
    );
    this.#draw();
  }

  /** Take the next event. */
  tell(body) {
    this.list.append(
      h(
        'li',
        {},
        h('span', { class: 'at' }, `+${took(this.#now())}`),
        h('b', {}, body.type),
        ' ',
        this.#describe(body),
      ),
    );
  }

  /** Note how it ended; `words` say more. */
  end(state, words) {
    this.said = words || STATES[state];
    this.#seconds ??= this.#now();
    this.state.className = `state ${state}`;
    fill(this.state, STATES[state]);
    fill(this.words, words);
    const unfinished = { cancelled: 'cancelled', failed: 'not done' }[state] ?? 'missing';
    for (const row of this.#rows.values()) if (row.state === 'running') this.#mark(row, unfinished, '');
    this.#scale();
  }

  /** Draw no more. */
  stop() {
    cancelAnimationFrame(this.#frame);
    this.#seconds ??= this.#now();
    this.#scale();
  }

  #now() {
    return (performance.now() - this.#begun) / 1000;
  }

  #describe(body) {
    switch (body.type) {
      case 'pinned':
        return `generation ${body.generation}`;
      case 'leg':
        return this.#leg(body.report);
      case 'completed':
        return this.#result(body.result, 'complete');
      case 'expired':
        if (body.result) return this.#result(body.result, 'complete');
        this.end('expired', 'The deadline passed, and a part of an answer was not wanted. Give it more time.');
        return '';
      case 'failed':
        this.end('failed', `${body.message} (${body.code})`);
        return body.message;
      default:
        return '';
    }
  }

  #leg(report) {
    const name = named(report);
    const row = this.#rows.get(name) ?? this.#row(name);
    const late = report.state === 'missing';
    row.seconds = late ? this.#now() : report.seconds;
    const words = report.error || (late ? 'not done in time' : counted(report.hits, 'hit'));
    this.#mark(row, report.state, words);
    this.#scale();
    return `${name} ${report.state}, ${words}${late ? '' : `, ${took(report.seconds)}`}`;
  }

  #result(result, state) {
    for (const report of result.legs) if (this.#rows.get(named(report))?.state === 'running') this.#leg(report);
    if (result.cached)
      for (const row of this.#rows.values())
        if (row.state === 'running') this.#mark(row, 'not run', 'the answer was kept');
    if (result.graph_stream === 'not_claimed') this.#drop('graph');
    this.#seconds = Math.max(result.seconds, ...result.legs.map((one) => one.seconds));
    const words = result.cached ? `a kept answer, ${took(result.seconds)}` : `in ${took(result.seconds)}`;
    if (result.complete) this.end(state, words);
    else this.end('partial', `${words}; missing: ${result.missing.join(', ')}`);
    return `${counted(result.hits.length, 'hit')}${result.complete ? '' : `, without ${result.missing.join(' and ')}`}`;
  }

  #row(leg) {
    const bar = h('div', { class: 'bar running' });
    const words = h('span', { class: 'hint' }, 'running');
    const row = { state: 'running', seconds: null, bar, words };
    row.element = h(
      'div',
      { class: 'leg', 'data-leg': leg },
      h('span', { class: 'name' }, leg),
      h('div', { class: 'track' }, bar),
      words,
    );
    this.legs.append(row.element);
    this.#rows.set(leg, row);
    return row;
  }

  #drop(leg) {
    this.#rows.get(leg)?.element.remove();
    this.#rows.delete(leg);
  }

  #mark(row, state, words) {
    row.state = state;
    row.seconds ??= this.#now();
    row.bar.className = `bar ${state === 'completed' ? state : 'lacking'}`;
    const said = state === 'completed' ? words : [state, words].filter(Boolean).join(': ');
    fill(row.words, `${said} · ${took(row.seconds)}`);
  }

  /** The longest bar fills its track; one that is still running is as long as the time that has passed. */
  #scale() {
    const now = this.#seconds ?? this.#now();
    const whole = Math.max(LEAST, now, ...[...this.#rows.values()].map((row) => row.seconds ?? 0));
    for (const row of this.#rows.values())
      row.bar.style.setProperty('width', `${Math.max(0.5, (100 * (row.seconds ?? now)) / whole)}%`);
    const left = Math.max(0, this.deadline - now);
    this.fuse.style.setProperty('width', `${(100 * left) / this.deadline}%`);
    const words =
      this.#seconds === null ? `${left.toFixed(1)} s left of ${this.deadline} s` : `${took(now)} of ${this.deadline} s`;
    if (this.left.textContent === words) return;
    fill(this.left, words);
    this.fuse.parentElement?.setAttribute('aria-valuenow', left.toFixed(1));
  }

  #draw = () => {
    if (this.#seconds !== null) return;
    this.#scale();
    this.#frame = requestAnimationFrame(this.#draw);
  };
}
