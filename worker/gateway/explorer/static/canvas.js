/** Draws a model with cytoscape. All that can be done here with a mouse can be done in the list beside it, too. */

import cytoscape from './vendor/cytoscape.esm.min.mjs';
import { markOf } from './marks.js';
import { keyOf, nameOf } from './model.js';

const STILL = matchMedia('(prefers-reduced-motion: reduce)');
const DARK = matchMedia('(prefers-color-scheme: dark)');
const LONGEST_LABEL = 28;
const LABEL_PX = 11;
const LABEL_AREA = 7000;
const MARGIN = 0.12;
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

/** A drawing in `container`; `picked` gets the id of an entity that is pressed. */
export class Canvas {
  #cy;

  #looks = () => this.#cy.style(styles(this.#cy.zoom()));

  constructor(container, picked) {
    this.#cy = cytoscape({
      container,
      style: styles(1),
      minZoom: 0.15,
      maxZoom: 3,
      selectionType: 'single',
      boxSelectionEnabled: false,
    });
    this.#cy.on('tap', 'node', ({ target }) => picked(target.id()));
    this.#cy.on('zoom', this.#looks);
    DARK.addEventListener('change', this.#looks);
  }

  /** Show a model, with the places of its communities by size. `around` is the entity beside which new ones appear. */
  draw(model, places, around = null) {
    const degrees = model.degrees();
    const before = this.#cy.nodes().length;
    const fresh = [...model.entities.values()].filter((one) => this.#cy.getElementById(one.entity_id).empty());
    const centre = this.#centre(around);
    this.#cy.batch(() => {
      this.#cy.add(
        fresh.map((one, at) => ({ group: 'nodes', data: { id: one.entity_id }, position: spot(centre, at) })),
      );
      const known = [...model.relations.values()].filter((one) => this.#cy.getElementById(keyOf(one)).empty());
      this.#cy.add(
        known.map((one) => ({
          group: 'edges',
          data: {
            id: keyOf(one),
            source: one.source_id,
            target: one.target_id,
            label: one.relation_type,
            weight: one.weight,
          },
        })),
      );
      for (const one of model.entities.values()) this.#dress(one, degrees, places);
      const ranked = this.#cy.nodes().sort((a, b) => degrees.get(b.id()) - degrees.get(a.id()));
      const room = (this.#cy.width() * this.#cy.height()) / LABEL_AREA;
      ranked.forEach((node, rank) => node.toggleClass('quiet', rank >= room));
    });
    if (fresh.length) this.#arrange(before === 0, around);
  }

  /** Return where new entities appear: beside the one they belong to, else in the middle of what is seen. */
  #centre(around) {
    const node = this.#cy.getElementById(around ?? '');
    const { x1, x2, y1, y2 } = this.#cy.extent();
    return node.nonempty() ? { ...node.position() } : { x: (x1 + x2) / 2, y: (y1 + y2) / 2 };
  }

  #dress(entity, degrees, places) {
    const { colour, shape } = markOf(places.get(entity.properties.communityId ?? '') ?? -1);
    this.#cy.getElementById(entity.entity_id).data({
      label: shortened(nameOf(entity)),
      colour,
      shape,
      size: 20 + 8 * Math.sqrt(degrees.get(entity.entity_id)),
    });
  }

  #arrange(first, around) {
    const options = {
      name: 'cose',
      randomize: false,
      fit: first,
      padding: 40,
      numIter: first ? 1500 : 400,
      initialTemp: first ? 400 : 60,
      nodeRepulsion: () => 250_000,
      idealEdgeLength: () => 64,
      gravity: 1.5,
      componentSpacing: 50,
      nodeOverlap: 24,
      animate: first || STILL.matches ? false : 'end',
      animationDuration: 300,
      stop: () => around !== null && this.#show(around),
    };
    this.#cy.elements().layout(options).run();
  }

  /** Mark an entity and what is next to it, and have it in sight. */
  select(id) {
    this.#cy.elements().removeClass('chosen near');
    const node = this.#cy.getElementById(id);
    if (node.empty()) return;
    node.addClass('chosen').closedNeighborhood().addClass('near');
    this.#show(id);
  }

  /** Move the drawing where an entity is not in sight. */
  #show(id) {
    const node = this.#cy.getElementById(id);
    const sight = this.#cy.extent();
    const { x, y } = node.position();
    const [dx, dy] = [sight.w * MARGIN, sight.h * MARGIN];
    const seen = x > sight.x1 + dx && x < sight.x2 - dx && y > sight.y1 + dy && y < sight.y2 - dy;
    if (!seen) this.#cy.animate({ center: { eles: node }, duration: STILL.matches ? 0 : 250 });
  }

  /** Show only the entities that `wanted` says yes to. */
  filter(wanted) {
    this.#cy.batch(() => {
      for (const node of this.#cy.nodes()) node.toggleClass('hidden', !wanted(node.id()));
    });
  }

  /** Return where on the page the centre of an entity is drawn, in CSS pixels; null while it is not. */
  pointOf(id) {
    const node = this.#cy.getElementById(id);
    if (node.empty() || node.hasClass('hidden')) return null;
    const box = this.#cy.container().getBoundingClientRect();
    const { x, y } = node.renderedPosition();
    return { x: box.x + x, y: box.y + y };
  }

  zoom(factor) {
    const middle = { x: this.#cy.width() / 2, y: this.#cy.height() / 2 };
    this.#cy.zoom({ level: this.#cy.zoom() * factor, renderedPosition: middle });
  }

  fit() {
    this.#cy.fit(this.#cy.nodes().not('.hidden'), 36);
  }

  clear() {
    this.#cy.elements().remove();
  }

  destroy() {
    DARK.removeEventListener('change', this.#looks);
    this.#cy.destroy();
  }
}

/** Return the place of the n-th of many around a centre, evenly spread; the same each time. */
function spot(centre, n) {
  const radius = 26 * Math.sqrt(n + 1);
  return { x: centre.x + radius * Math.cos(n * GOLDEN), y: centre.y + radius * Math.sin(n * GOLDEN) };
}

const shortened = (text) => (text.length > LONGEST_LABEL ? `${text.slice(0, LONGEST_LABEL - 1)}…` : text);

const resolved = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();

/** Return the style for a zoom: labels are as large at any, and where it is crowded some entities have none. */
function styles(zoom) {
  const px = (size) => size / Math.max(zoom, 0.3);
  const [text, ground, line, accent] = ['--text', '--ground', '--edge', '--accent'].map(resolved);
  return [
    {
      selector: 'node',
      style: {
        width: 'data(size)',
        height: 'data(size)',
        shape: 'data(shape)',
        label: 'data(label)',
        'background-color': (node) => resolved(node.data('colour') ?? '--mark-rest'),
        'border-width': 1.5,
        'border-color': ground,
        color: text,
        'font-family': 'system-ui, sans-serif',
        'font-size': px(LABEL_PX),
        'text-valign': 'bottom',
        'text-margin-y': px(2),
        'text-outline-color': ground,
        'text-outline-width': px(2),
      },
    },
    {
      selector: 'edge',
      style: {
        width: (edge) => 0.8 + 1.4 * edge.data('weight'),
        'line-color': line,
        'target-arrow-color': line,
        'target-arrow-shape': 'triangle',
        'arrow-scale': 0.7,
        'curve-style': 'bezier',
      },
    },
    ...(zoom < 1.2 ? [{ selector: 'node.quiet', style: { label: '' } }] : []),
    { selector: 'node.near', style: { label: 'data(label)' } },
    {
      selector: 'node.chosen',
      style: {
        'border-width': 3,
        'border-color': accent,
        'font-weight': 'bold',
        'font-size': px(LABEL_PX + 2),
        'z-index': 9,
      },
    },
    {
      selector: 'edge.near',
      style: {
        'line-color': accent,
        'target-arrow-color': accent,
        label: 'data(label)',
        color: text,
        'font-size': px(LABEL_PX - 2),
        'font-family': 'system-ui, sans-serif',
        'text-rotation': 'autorotate',
        'text-outline-color': ground,
        'text-outline-width': px(2),
      },
    },
    { selector: '.hidden', style: { display: 'none' } },
  ];
}
