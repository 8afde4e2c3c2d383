/** Server-sent events over fetch, which unlike EventSource can send a key and a body. */

import { open, Problem } from './api.js';

/** Yield {id, event, data} of a response as they come; `hints.retry` becomes the pause in ms the server asks for. */
export async function* events(response, hints = {}) {
  let rest = '';
  let fields = {};
  for await (const text of parts(response)) {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const [name, value] = field(line);
      if (name === 'retry') hints.retry = Number(value) || hints.retry;
      else if (line !== '') fields[name] = value;
      else if (fields.data !== undefined) {
        yield { id: fields.id ?? '', event: fields.event ?? 'message', data: fields.data };
        fields = {};
      }
    }
  }
}

/**
 * Follow a run from event `after` to its final event, coming back with Last-Event-ID whenever the connection is lost.
 * `told` gets each event once. Throws Problem for what coming back does not mend; returns early when `signal` says so.
 */
export async function follow(path, { after = 0, told, signal }) {
  const hints = { retry: 1000 };
  let last = after;
  while (!signal.aborted) {
    try {
      const headers = { Accept: 'text/event-stream', 'Last-Event-ID': String(last) };
      const response = await open(path, { headers, signal });
      if (response.status === 204) return;
      for await (const event of events(response, hints)) {
        if (event.event === 'reset') throw new Problem(410, 'EventsExpired', JSON.parse(event.data).detail);
        if (Number(event.id) > last) {
          last = Number(event.id);
          told(JSON.parse(event.data));
        }
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && !passing(error)) throw error;
    }
    await pause(hints.retry, signal);
  }
}

const passing = ({ status }) => status === 0 || status === 429 || status >= 500;

function field(line) {
  const at = line.indexOf(':');
  return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1).replace(/^ /, '')];
}

async function* parts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    reader.cancel().catch(() => {}); // it has ended, or nobody wants the rest
  }
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}
