/** How numbers, times and problems are put. */

import { h } from './dom.js';

const NUMBER = new Intl.NumberFormat('en');
const WHEN = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'short' });

export const count = (number) => NUMBER.format(number);

export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

export const when = (iso) => (iso ? WHEN.format(new Date(iso)) : '–');

/** Return seconds for people: `3 ms`, `1.25 s`, `4 min 10 s`. */
export function took(seconds) {
  if (seconds < 0.9995) return `${count(Math.round(seconds * 1000))} ms`;
  if (seconds < 60) return `${seconds.toFixed(2)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}

export const lines = ([first, last]) => (first === last ? `line ${first}` : `lines ${first}–${last}`);

/** Return a place in a file, e.g. `tools/saw.md:3-9`. */
export const place = (file, [first, last]) => `${file}:${first === last ? first : `${first}-${last}`}`;

/** Return a box that says what went wrong and what helps; `again` is offered as a button where it may help. */
export function trouble(problem, again = null) {
  if (problem.status === undefined) console.error(problem); // a fault of this page, not an answer
  return h(
    'div',
    { class: 'trouble', role: 'alert' },
    h('p', {}, h('strong', {}, title(problem)), ' ', problem.detail ?? String(problem)),
    h('p', { class: 'hint' }, ...cure(problem)),
    again && h('button', { type: 'button', onclick: again }, 'Try again'),
  );
}

/** Return a box for what is not there yet, and how it comes about. */
export function emptiness(text, command = null, ...rest) {
  return h('div', { class: 'vacant' }, h('p', {}, text), command && h('pre', {}, command), ...rest);
}

function title({ status }) {
  if (status === undefined) return 'This page failed.';
  const titles = {
    0: 'No connection.',
    401: 'A key is needed.',
    403: 'Not allowed.',
    404: 'Not there.',
    409: 'It changed.',
  };
  return titles[status] ?? (status === 429 ? 'Too much at once.' : status >= 500 ? 'The service failed.' : 'Refused.');
}

function cure({ status, code, retryAfter }) {
  if (status === undefined) return ['Load it again; if that does not help, the console of the browser says more.'];
  if (status === 0)
    return ['See that the gateway runs (', h('code', {}, 'sapwood up --gateway'), ') and can be reached from here.'];
  if (status === 401)
    return ['Give a key with the button at the top right; ', h('code', {}, 'sapwood key create'), ' makes one.'];
  if (status === 403)
    return ['Use a key with that scope: ', h('code', {}, 'sapwood key create --scope query --scope inspect'), '.'];
  if (code === 'graph_generation_changed') return ['A newer generation was published meanwhile. Load it again.'];
  if (status === 404) return ['It may have been deleted, or belong to another tenant.'];
  if (status === 429) return [`Come again in ${counted(retryAfter ?? 1, 'second')}.`];
  if (status === 503)
    return ['A server behind the gateway is away: ', h('code', {}, 'sapwood doctor'), ' says which one.'];
  if (status >= 500)
    return ['The log of the gateway says why; ', h('code', {}, 'sapwood doctor'), ' may say how to mend it.'];
  return ['Change what the message names, and send it again.'];
}
