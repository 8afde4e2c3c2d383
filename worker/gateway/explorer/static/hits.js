/** The answer: its hits in order, each with where it stands and what found it. */

import { h } from './dom.js';
import { emptiness, place } from './words.js';

const STREAMS = { bm25: 'keyword', vector: 'dense', graph: 'graph' };

/** Return the hits of a result as elements. */
export function answer(result) {
  return [
    !result.complete &&
      h(
        'p',
        { class: 'notice', role: 'note' },
        `This is a part of the answer: ${result.missing.join(' and ')} did not take part. More time may bring it.`,
      ),
    result.graph_stream === 'missing' &&
      h('p', { class: 'hint' }, 'The graph was to be searched, but was late or failed.'),
    result.hits.length === 0
      ? emptiness(
          'Nothing was found.',
          null,
          h(
            'p',
            { class: 'hint' },
            'Use other words, more legs, or look into the graph for the names that the documents use.',
          ),
        )
      : h('ol', { class: 'answers' }, result.hits.map(hit)),
  ];
}

function hit(one, at) {
  const range = [one.lines[0], one.lines[1]];
  const path = one.headings.length ? one.headings.join(' › ') : one.title;
  return h(
    'li',
    { class: 'panel hit' },
    h(
      'div',
      { class: 'row wrap' },
      h('b', { class: 'rank' }, String(at + 1)),
      h('code', { class: 'place' }, place(one.document, range)),
      path && h('span', { class: 'hint' }, path),
      h('span', { class: 'grow' }),
      h(
        'span',
        { class: 'score', title: `score ${one.score.toFixed(4)} of 1` },
        h(
          'span',
          { class: 'track' },
          h('span', { class: 'bar completed', style: { width: `${Math.round(one.score * 100)}%` } }),
        ),
        one.score.toFixed(3),
      ),
    ),
    h('blockquote', {}, one.text),
    h(
      'p',
      { class: 'row wrap hint' },
      one.neighbor_of !== null && h('span', { class: 'tag' }, 'neighbour of a hit'),
      one.streams.map((stream) =>
        h(
          'span',
          { class: 'tag leg-tag', 'data-leg': STREAMS[stream] ?? stream },
          STREAMS[stream] ?? stream,
          one.ranks[stream] ? ` #${one.ranks[stream]}` : '',
        ),
      ),
      one.graph_source && h('span', {}, `graph by ${one.graph_source}`),
    ),
  );
}
