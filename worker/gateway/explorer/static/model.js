/** The part of a graph that is on the screen: plain data, without a screen. */

/** How many entities are shown at most: beyond that nobody sees anything. */
export const MOST = 400;

/** Entities and relations by id, in the order in which they came. */
export class Model {
  entities = new Map();

  relations = new Map();

  /** Add what a route returned, as far as there is room. Returns the ids `added`, and how many were `refused`. */
  add({ entities, relationships }) {
    const added = [];
    let refused = 0;
    for (const one of entities) {
      if (this.entities.has(one.entity_id)) continue;
      if (this.entities.size >= MOST) refused += 1;
      else {
        this.entities.set(one.entity_id, one);
        added.push(one.entity_id);
      }
    }
    for (const one of relationships) {
      if (this.entities.has(one.source_id) && this.entities.has(one.target_id)) this.relations.set(keyOf(one), one);
    }
    return { added, refused };
  }

  clear() {
    this.entities.clear();
    this.relations.clear();
  }

  /** Return, by entity, how many others on the screen it is related to. */
  degrees() {
    const near = new Map([...this.entities.keys()].map((id) => [id, new Set()]));
    for (const { source_id: from, target_id: to } of this.relations.values()) {
      if (from === to) continue;
      near.get(from).add(to);
      near.get(to).add(from);
    }
    return new Map([...near].map(([id, others]) => [id, others.size]));
  }

  /** Return the communities on the screen, largest first: {id, size, name}, named by the best-connected member here. */
  communities() {
    const degrees = this.degrees();
    const groups = new Map();
    for (const [id, entity] of this.entities) {
      const key = communityOf(entity);
      groups.set(key, [...(groups.get(key) ?? []), id]);
    }
    return [...groups]
      .map(([id, members]) => {
        const leader = members.reduce((best, one) => (degrees.get(one) > degrees.get(best) ? one : best));
        return { id, size: members.length, name: nameOf(this.entities.get(leader)) };
      })
      .sort((a, b) => b.size - a.size || a.name.localeCompare(b.name));
  }
}

/** Return what people see of an entity: its name, or its id where it has none. */
export const nameOf = (entity) => entity.name || entity.entity_id;

/** Return the id of the finest community of an entity; empty where it has none. */
export const communityOf = (entity) => entity.properties.communityId ?? '';

/** Return a part without the entities that nothing there is related to, unless none is related. */
export function connected(part) {
  const used = new Set(part.relationships.flatMap((one) => [one.source_id, one.target_id]));
  return used.size === 0 ? part : { ...part, entities: part.entities.filter((one) => used.has(one.entity_id)) };
}

/** Return what tells a relation from others. */
export const keyOf = (one) => JSON.stringify([one.source_id, one.relation_type, one.target_id]);
