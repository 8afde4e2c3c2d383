/** The room of questions: ask, watch the events as they come, stop, read the answer. */

import { open } from './api.js';
import { announce, fill, h } from './dom.js';
import { answer } from './hits.js';
import { events } from './sse.js';
import { Timeline } from './timeline.js';
import { counted, emptiness, trouble } from './words.js';

const STRATEGIES = [
  ['hybrid', 'Hybrid: keyword, vectors and graph'],
  ['semantic', 'Semantic: vectors'],
  ['keyword', 'Keyword'],
  ['graph', 'Graph'],
  ['hierarchical', 'Hierarchical: communities and sections first'],
  ['temporal', 'Temporal: what is newer counts more'],
  ['multi_query', 'Several phrasings (needs a model)'],
  ['reasoning', 'Reasoning over headings (needs a model)'],
];

/** Show the room for a corpus; `params` may hold a question `q`. */
export async function queryRoom({ main, corpora, corpus, params, signal }) {
  const title = h('h1', {}, 'Ask ', h('em', {}, corpus));
  if (corpora.find((one) => one.name === corpus)?.generation === null) {
    fill(
      main,
      h(
        'section',
        { class: 'page' },
        title,
        emptiness('Nothing is published yet. Index a folder into this corpus:', `sapwood index ${corpus} FOLDER`),
      ),
    );
    return;
  }
  const form = question(params.get('q') ?? '');
  const outcome = h(
    'section',
    { class: 'outcome-of', 'aria-label': 'Answer' },
    h('p', { class: 'hint' }, 'The events of the question appear here as they come.'),
  );
  fill(main, h('div', { class: 'page ask' }, h('section', { class: 'panel' }, title, form.element), outcome));
  form.element.addEventListener('submit', (event) => {
    event.preventDefault();
    ask(corpus, form, outcome, signal);
  });
  form.text.focus({ preventScroll: true });
}

function question(text) {
  const field = (id, label, input, hint) =>
    h('div', { class: 'field' }, h('label', { for: id }, label), input, hint && h('span', { class: 'hint' }, hint));
  const parts = {
    text: h(
      'textarea',
      { id: 'text', rows: 2, required: true, maxlength: 20000, placeholder: 'Who may use the laser cutter?' },
      text,
    ),
    strategy: h(
      'select',
      { id: 'strategy' },
      STRATEGIES.map(([value, label]) => h('option', { value }, label)),
    ),
    top: h('input', { id: 'top', type: 'number', min: 1, max: 1000, value: 5, required: true }),
    deadline: h('input', {
      id: 'deadline',
      type: 'number',
      min: 0.1,
      max: 3600,
      step: 'any',
      value: 10,
      required: true,
    }),
    partial: h('input', { id: 'partial', type: 'checkbox', checked: true }),
    cache: h('input', { id: 'cache', type: 'checkbox' }),
    send: h('button', { type: 'submit', class: 'main' }, 'Ask'),
    cancel: h('button', { type: 'button', disabled: true, id: 'cancel' }, 'Cancel'),
  };
  parts.text.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    parts.element.requestSubmit();
  });
  parts.element = h(
    'form',
    { class: 'question' },
    h('label', { for: 'text' }, 'Question'),
    parts.text,
    h(
      'div',
      { class: 'fields' },
      field('strategy', 'Legs', parts.strategy),
      field('top', 'Hits', parts.top),
      field('deadline', 'Deadline, seconds', parts.deadline),
    ),
    h(
      'div',
      { class: 'row wrap' },
      h('label', { class: 'check' }, parts.partial, 'Take what was found at the deadline'),
      h('label', { class: 'check' }, parts.cache, 'Take a kept answer'),
    ),
    h(
      'p',
      { class: 'row' },
      parts.send,
      parts.cancel,
      h('span', { class: 'hint wide' }, 'Enter asks, Escape cancels.'),
    ),
  );
  return parts;
}

function order(form) {
  return {
    text: form.text.value,
    strategy: form.strategy.value,
    top_k: form.top.valueAsNumber,
    deadline: form.deadline.valueAsNumber,
    partial: form.partial.checked,
    cache: form.cache.checked,
  };
}

async function ask(corpus, form, outcome, left) {
  if (form.send.disabled) return;
  const wanted = order(form);
  const stop = new AbortController();
  const cancel = () => stop.abort();
  const onEscape = (event) => event.key === 'Escape' && cancel();
  left.addEventListener('abort', cancel);
  form.cancel.addEventListener('click', cancel);
  document.addEventListener('keydown', onEscape);
  form.send.disabled = true;
  form.cancel.disabled = false;
  const timeline = new Timeline(wanted.strategy, wanted.deadline);
  const hits = h('div', { class: 'hits', id: 'hits' });
  fill(outcome, timeline.element, hits);
  try {
    const result = await listen(corpus, wanted, timeline, stop.signal);
    if (result) fill(hits, answer(result));
    announce(
      result ? `${counted(result.hits.length, 'hit')}, ${result.complete ? 'complete' : 'incomplete'}.` : timeline.said,
    );
  } catch (error) {
    if (stop.signal.aborted) timeline.end('cancelled', 'Cancelled: the gateway stops a question whose asker leaves.');
    else {
      timeline.end('failed', '');
      fill(
        hits,
        trouble(error, () => form.element.requestSubmit()),
      );
    }
    if (stop.signal.aborted) announce('Cancelled.');
  } finally {
    timeline.stop();
    form.send.disabled = false;
    if (document.activeElement === form.cancel) form.send.focus();
    form.cancel.disabled = true;
    document.removeEventListener('keydown', onEscape);
    left.removeEventListener('abort', cancel);
    form.cancel.removeEventListener('click', cancel);
  }
}

/** Draw the events of a question and return its result; null where it has none. */
async function listen(corpus, wanted, timeline, signal) {
  const response = await open(`v1/corpora/${encodeURIComponent(corpus)}/query`, {
    method: 'POST',
    body: wanted,
    headers: { Accept: 'text/event-stream' },
    signal,
  });
  for await (const event of events(response)) {
    const body = JSON.parse(event.data);
    timeline.tell(body);
    if (body.type === 'completed' || body.type === 'expired') return body.result ?? null;
    if (body.type === 'failed') return null;
  }
  timeline.end('failed', 'The connection ended before the answer. Ask again.');
  return null;
}
