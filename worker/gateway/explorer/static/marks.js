/**
 * How communities are told apart: by colour and by shape, so that no eye depends on the colour. The colours are custom
 * properties of the style sheet, for light and for dark, chosen to stay apart for the common kinds of colour blindness.
 */

import { svg } from './dom.js';

const SHAPES = ['ellipse', 'rectangle', 'triangle', 'diamond', 'hexagon', 'star', 'pentagon', 'vee'];

const POINTS = {
  rectangle: '2,2 14,2 14,14 2,14',
  triangle: '8,1 15,15 1,15',
  diamond: '8,0 16,8 8,16 0,8',
  hexagon: '4,1 12,1 16,8 12,15 4,15 0,8',
  star: '8,0 10,5.6 16,5.8 11.3,9.4 13,15 8,11.7 3,15 4.7,9.4 0,5.8 6,5.6',
  pentagon: '8,0 16,6 13,15.5 3,15.5 0,6',
  vee: '8,0 15.5,15.5 8,11 0.5,15.5',
};

/** Communities beyond these share one mark. */
export const MARKED = SHAPES.length;

/** Return the mark of the community with this place by size: {colour, shape}. */
export function markOf(place) {
  const own = place >= 0 && place < MARKED;
  return { colour: own ? `--mark-${place + 1}` : '--mark-rest', shape: own ? SHAPES[place] : 'ellipse' };
}

/** Return a mark as a small picture. */
export function picture({ colour, shape }) {
  const style = { fill: `var(${colour})` };
  return svg(
    'svg',
    { class: 'mark', viewBox: '-1 -1 18 18', width: 14, height: 14, 'aria-hidden': 'true' },
    shape === 'ellipse'
      ? svg('circle', { cx: 8, cy: 8, r: 7.5, style })
      : svg('polygon', { points: POINTS[shape], style }),
  );
}

/** Return the places of communities for their marks: one that has a mark keeps it, new ones take what is free. */
export function placed(before, communities) {
  const kept = new Map(
    communities.filter(({ id }) => (before.get(id) ?? MARKED) < MARKED).map(({ id }) => [id, before.get(id)]),
  );
  const taken = new Set(kept.values());
  const free = Array.from({ length: MARKED }, (_, place) => place).filter((place) => !taken.has(place));
  for (const { id } of communities) if (!kept.has(id)) kept.set(id, free.shift() ?? MARKED);
  return kept;
}
