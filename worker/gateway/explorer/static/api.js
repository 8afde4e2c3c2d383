/** Talks to the gateway that served this page: JSON, problems in words, and the caller's key where one is asked for. */

import { askForKey, currentKey } from './door.js';

const ROOT = new URL('../', import.meta.url);

/** What the gateway, or the way to it, answered instead. Status 0: it did not answer at all. */
export class Problem extends Error {
  constructor(status, code, detail, retryAfter = null) {
    super(detail);
    Object.assign(this, { status, code, detail, retryAfter });
  }
}

/** Return the JSON of a path; `params` that are null are left out. Throws Problem. */
export async function get(path, params = {}, signal = undefined) {
  return (await open(path, { params, signal })).json();
}

/** Return the response to a request that was granted. Throws Problem, or AbortError when `signal` says so. */
export async function open(path, { method = 'GET', params = {}, body = null, headers = {}, signal } = {}) {
  const url = new URL(path, ROOT);
  for (const [name, value] of Object.entries(params)) if (value !== null) url.searchParams.set(name, value);
  for (;;) {
    const key = currentKey();
    const response = await sent(url, {
      method,
      signal,
      body: body === null ? undefined : JSON.stringify(body),
      headers: {
        ...headers,
        ...(body === null ? {} : { 'Content-Type': 'application/json' }),
        ...(key === null ? {} : { Authorization: `Bearer ${key}` }),
      },
      cache: 'no-store',
      credentials: 'omit',
    });
    if (response.ok) return response;
    const problem = await problemOf(response);
    if (response.status !== 401 || !(await askForKey(key))) throw problem;
  }
}

async function sent(url, request) {
  try {
    return await fetch(url, request);
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new Problem(0, 'Unreachable', 'The gateway does not answer.');
  }
}

async function problemOf(response) {
  const seconds = Number(response.headers.get('Retry-After')) || null;
  const said = await response.json().catch(() => ({}));
  return new Problem(response.status, said.code ?? response.statusText, said.detail ?? response.statusText, seconds);
}
