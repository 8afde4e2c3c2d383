/**
 * The caller's key. It is kept in memory, or for this tab where the box is ticked; it goes into the Authorization
 * header and nowhere else.
 */

import { fill, h } from './dom.js';

const PLACE = 'sapwood-key';

let key = sessionStorage.getItem(PLACE);
let asking = null;

/** Return the key, or null. */
export function currentKey() {
  return key;
}

/**
 * Have a key given in place of `refused` (null: there was none). Returns false where the caller will not give one. Any
 * number of requests that were refused at once wait for the same answer.
 */
export function askForKey(refused) {
  if (key !== refused) return Promise.resolve(true);
  asking ??= shown(refused === null ? WANTED : WRONG).finally(() => {
    asking = null;
  });
  return asking;
}

/** Have the button show whether there is a key; `changed` is called after a key was given or forgotten. */
export function guardDoor(button, changed) {
  const name = () => {
    button.textContent = key === null ? 'Key' : 'Key: set';
  };
  name();
  document.addEventListener('keychange', name);
  button.addEventListener('click', async () => {
    if (await shown(key === null ? UNASKED : REPLACE)) changed();
  });
}

const WANTED = 'This gateway asks for a key.';
const WRONG = 'This key is not known here: it may be mistyped, expired or revoked.';
const UNASKED = 'On the machine it runs on a gateway usually needs none.';
const REPLACE = 'A key is set. Give another one, or have it forgotten.';

function keep(value, remember) {
  key = value;
  if (value !== null && remember) sessionStorage.setItem(PLACE, value);
  else sessionStorage.removeItem(PLACE);
  document.dispatchEvent(new Event('keychange'));
}

function shown(why) {
  const dialog = document.getElementById('door');
  const given = h('input', {
    type: 'password',
    id: 'door-key',
    autocomplete: 'off',
    spellcheck: 'false',
    required: true,
  });
  const remember = h('input', { type: 'checkbox', id: 'door-remember' });
  return new Promise((resolve) => {
    let done = false;
    const end = (changed) => {
      done ||= (resolve(changed), true);
      dialog.close();
    };
    const submit = (event) => {
      event.preventDefault();
      if (!given.value.trim()) return;
      keep(given.value.trim(), remember.checked);
      end(true);
    };
    const forget = () => {
      keep(null, false);
      end(true);
    };
    fill(
      dialog,
      h(
        'form',
        { class: 'door', onsubmit: submit },
        h('h2', { id: 'door-title' }, 'Your key'),
        h('p', { class: 'why' }, why),
        h('label', { for: 'door-key' }, 'Key'),
        given,
        h('label', { class: 'check' }, remember, 'Remember it until this tab is closed'),
        h(
          'p',
          { class: 'hint' },
          'Whoever runs the gateway makes one with ',
          h('code', {}, 'sapwood key create --scope query --scope inspect'),
          '.',
        ),
        h(
          'p',
          { class: 'row' },
          h('button', { type: 'submit', class: 'main' }, 'Use this key'),
          key !== null && h('button', { type: 'button', onclick: forget }, 'Forget it'),
          h('button', { type: 'button', class: 'quiet', onclick: () => end(false) }, 'Not now'),
        ),
      ),
    );
    dialog.addEventListener('close', () => end(false), { once: true });
    if (!dialog.open) dialog.showModal();
    given.focus();
  });
}
