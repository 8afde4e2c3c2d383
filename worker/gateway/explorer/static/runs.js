/** One index run: its state, what became of its documents, and its events while it is under way. */

import { get } from './api.js';
import { fill, h } from './dom.js';
import { follow } from './sse.js';
import { count, counted, took, trouble, when } from './words.js';

const OUTCOMES = ['indexed', 'unchanged', 'removed', 'empty', 'skipped', 'failed'];
const NOTABLE = ['failed', 'skipped', 'empty'];
const OPEN = ['queued', 'running', 'waiting'];
const PAGE = 50;

/** Return a run as an item of a list; pressing it shows the documents that were not simply indexed. */
export function runRow(run, first, signal) {
  const outcomes = h('div', { class: 'outcomes' });
  const more = h('div', { class: 'more', hidden: true });
  const state = h('span', { class: `state ${run.state}` }, run.state);
  const button = h(
    'button',
    { type: 'button', class: 'item run', 'aria-expanded': 'false', tabindex: first ? 0 : -1 },
    state,
    h('span', {}, when(run.created_at)),
    h('span', { class: 'hint' }, told(run)),
  );
  button.addEventListener('click', async () => {
    more.hidden = !more.hidden;
    button.setAttribute('aria-expanded', String(!more.hidden));
    if (!more.hidden && !more.hasChildNodes()) await documents(more, run, signal);
  });
  if (OPEN.includes(run.state)) watch(run, state, outcomes, signal);
  else account(run, outcomes, signal);
  return h('li', {}, button, outcomes, more);
}

function told(run) {
  const seconds = run.finished_at ? (new Date(run.finished_at) - new Date(run.created_at)) / 1000 : null;
  const parts = [
    run.generation && `generation ${run.generation}`,
    seconds !== null && took(seconds),
    run.crash_count > 0 && counted(run.crash_count, 'crash', 'crashes'),
  ];
  return parts.filter(Boolean).join(' · ');
}

async function account(run, outcomes, signal) {
  try {
    fill(outcomes, bar((await get(`v1/runs/${run.run_id}/documents`, { limit: 1 }, signal)).counts));
  } catch (error) {
    if (!signal.aborted) fill(outcomes, trouble(error));
  }
}

/** Return how many documents ended how, as a bar and in words. */
function bar(counts) {
  const found = OUTCOMES.filter((name) => counts[name] > 0);
  const total = found.reduce((sum, name) => sum + counts[name], 0);
  return [
    h(
      'div',
      { class: 'stack', 'aria-hidden': 'true' },
      found.map((name) => h('span', { class: `outcome ${name}`, style: { 'flex-grow': String(counts[name]) } })),
    ),
    h(
      'p',
      { class: 'hint' },
      total === 0
        ? 'no documents'
        : found.map((name) =>
            h('span', { class: 'count' }, h('i', { class: `dot outcome ${name}` }), `${count(counts[name])} ${name} `),
          ),
    ),
  ];
}

async function documents(more, run, signal) {
  const error = run.error && h('p', { class: 'trouble' }, run.error);
  fill(more, 'Loading …');
  try {
    const pages = await Promise.all(
      NOTABLE.map((outcome) => get(`v1/runs/${run.run_id}/documents`, { outcome, limit: PAGE }, signal)),
    );
    const rows = pages.flatMap((page) => page.documents);
    fill(
      more,
      error,
      h('p', { class: 'hint' }, 'Run ', h('code', {}, run.run_id)),
      rows.length === 0 && h('p', { class: 'hint' }, 'Every document was indexed, unchanged or removed.'),
      rows.length > 0 &&
        h(
          'ul',
          { class: 'plain' },
          rows.map((one) =>
            h(
              'li',
              {},
              h('span', { class: `tag outcome ${one.outcome}` }, one.outcome),
              ' ',
              h('code', {}, one.document_id),
              ' ',
              one.reason,
            ),
          ),
        ),
      pages.some((page) => page.next) && h('p', { class: 'hint' }, `The first ${PAGE} of each outcome are shown.`),
    );
  } catch (problem) {
    if (!signal.aborted) fill(more, error, trouble(problem));
  }
}

async function watch(run, state, outcomes, signal) {
  const counts = {};
  const line = h('p', { class: 'hint', role: 'status' }, 'waiting for a worker');
  const tell = ({ body }) => {
    if (body.type === 'documents')
      for (const [name, more] of Object.entries(body.counts)) counts[name] = (counts[name] ?? 0) + more;
    fill(line, said(body));
    const known = body.outcomes ?? counts;
    fill(outcomes, Object.keys(known).length > 0 && bar(known), line);
  };
  fill(outcomes, line);
  try {
    await follow(`v1/runs/${run.run_id}/events`, { told: tell, signal });
    const ended = await get(`v1/runs/${run.run_id}`, {}, signal);
    state.className = `state ${ended.state}`;
    fill(state, ended.state);
  } catch (error) {
    if (!signal.aborted) fill(outcomes, trouble(error));
  }
}

function said(body) {
  switch (body.type) {
    case 'planned':
      return `planned: ${counted(body.to_do, 'document')} to do, ${count(body.unchanged)} unchanged`;
    case 'progress':
      return `${body.stage}: ${body.total ? `${count(body.done)} of ${count(body.total)}` : 'under way'}`;
    case 'promoted':
      return `generation ${body.generation} is current; load the page again to see it`;
    case 'failed':
      return `failed: ${body.message}`;
    case 'cancelled':
      return `cancelled ${body.reason}`;
    default:
      return body.type;
  }
}
