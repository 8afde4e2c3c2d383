// One property graph for each generation, every node and relationship stamped with its graph_id.
// Extracted types and properties are data: labels, relationship types and statements never hold any of them.
// An index of several keys is of use only if all of them are asked for, so all nodes of a graph are those with a number.

// name: graph_key
// One registry node for each graph.
CREATE CONSTRAINT sapwood_graph IF NOT EXISTS FOR (g:SapwoodGraph) REQUIRE g.graph_id IS UNIQUE;

// name: entity_key
// One node for each entity of a graph.
CREATE CONSTRAINT sapwood_entity IF NOT EXISTS FOR (e:SapwoodEntity) REQUIRE (e.graph_id, e.no) IS UNIQUE;

// name: chunk_key
// One node for each chunk of a graph.
CREATE CONSTRAINT sapwood_chunk IF NOT EXISTS FOR (c:SapwoodChunk) REQUIRE (c.graph_id, c.id) IS UNIQUE;

// name: graph_uid
// The graphs of a corpus.
CREATE INDEX sapwood_graph_uid IF NOT EXISTS FOR (g:SapwoodGraph) ON (g.uid);

// name: entity_type
// Entities by type.
CREATE INDEX sapwood_entity_type IF NOT EXISTS FOR (e:SapwoodEntity) ON (e.graph_id, e.type);

// name: entity_community
// The members of a community of the finest level, by number: a walk reads the first of them.
CREATE INDEX sapwood_entity_community IF NOT EXISTS FOR (e:SapwoodEntity) ON (e.graph_id, e.communityId, e.no);

// name: entity_id
// Entities by public id.
CREATE INDEX sapwood_entity_id IF NOT EXISTS FOR (e:SapwoodEntity) ON (e.graph_id, e.entity_id);

// name: entity_name
// Entities by the start of their name: a whole one may be too long for an index.
CREATE INDEX sapwood_entity_name IF NOT EXISTS FOR (e:SapwoodEntity) ON (e.graph_id, e.name_start);

// name: chunk_place
// A chunk's neighbours in its document.
CREATE INDEX sapwood_chunk_place IF NOT EXISTS FOR (c:SapwoodChunk) ON (c.graph_id, c.document, c.ordinal);

// name: await_schema
// Wait until the indexes are of use.
CALL db.awaitIndexes($seconds);

// name: open
// Begin a graph or take it over; no row if a later fence has it or it is being dropped. The lock comes before the look.
MERGE (g:SapwoodGraph {graph_id: $graph_id})
ON CREATE SET g.uid = $uid, g.corpus = $corpus, g.generation = $generation, g.fence = $fence, g.state = 'open'
SET g.held = true
WITH g WHERE g.fence <= $fence AND g.state = 'open'
SET g.fence = $fence
RETURN g.fence AS fence;

// name: hold
// The head of every fenced write: no row, and so no write, if somebody else has the graph. The lock comes before the look,
// and by way of a property of its own, since what is read before the lock must not be written after it.
MATCH (g:SapwoodGraph {graph_id: $graph_id})
SET g.held = true
WITH g WHERE g.fence = $fence AND g.state = 'open';

// name: write
// Add rows, after `hold`: all of them, or none if one refers to an entity or chunk that is not there, and then return the
// least of those. A type is a property, so that there may be any number. What `demote_links` moved stays where it is.
CALL () {
  UNWIND $entity_ends AS no
  WITH no WHERE NOT EXISTS { MATCH (:SapwoodEntity {graph_id: $graph_id, no: no}) }
  RETURN min(no) AS entity
}
CALL () {
  UNWIND $chunk_ends AS id
  WITH id WHERE NOT EXISTS { MATCH (:SapwoodChunk {graph_id: $graph_id, id: id}) }
  RETURN min(id) AS chunk
}
CALL (entity, chunk) {
  WITH entity, chunk WHERE entity IS NULL AND chunk IS NULL
  CALL () {
    UNWIND $chunks AS row
    MERGE (c:SapwoodChunk {graph_id: $graph_id, id: row.id})
    ON CREATE SET c += row
  }
  CALL () {
    UNWIND $entities AS row
    MERGE (e:SapwoodEntity {graph_id: $graph_id, no: row.no})
    ON CREATE SET e += row
  }
  CALL () {
    UNWIND $relations AS row
    MATCH (s:SapwoodEntity {graph_id: $graph_id, no: row.source})
    MATCH (t:SapwoodEntity {graph_id: $graph_id, no: row.target})
    MERGE (s)-[r:RELATES {type: row.columns.type}]->(t)
    ON CREATE SET r += row.columns
  }
  CALL () {
    UNWIND $mentions AS row
    MATCH (e:SapwoodEntity {graph_id: $graph_id, no: row[0]})
    MATCH (c:SapwoodChunk {graph_id: $graph_id, id: row[1]})
    WITH e, c WHERE NOT EXISTS { (e)-[:FROM_CHUNK_MORE]->(c) }
    MERGE (e)-[r:FROM_CHUNK]->(c)
    ON CREATE SET r.graph_id = $graph_id
  }
}
RETURN entity, chunk;

// name: seal_chunks
// Join a page of chunks to their next ones; after `hold`. Returns the page's last chunk, null after the end.
CALL () {
  MATCH (c:SapwoodChunk) USING INDEX c:SapwoodChunk(graph_id, id)
  WHERE c.graph_id = $graph_id AND c.id > $after
  WITH c ORDER BY c.graph_id, c.id LIMIT $page
  OPTIONAL MATCH (n:SapwoodChunk {graph_id: $graph_id, document: c.document, ordinal: c.ordinal + 1})
  CALL (c, n) {
    WITH c, n WHERE n IS NOT NULL
    MERGE (c)-[r:NEXT_CHUNK]->(n)
    ON CREATE SET r.graph_id = $graph_id
  }
  RETURN max(c.id) AS last
}
RETURN last;

// name: many_links
// Entities with more chunks than a walk reads.
MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
WHERE e.graph_id = $graph_id AND e.no >= 0
  AND (COUNT { (e)-[:FROM_CHUNK]->() } > $most OR EXISTS { (e)-[:FROM_CHUNK_MORE]->() })
RETURN e.no AS no ORDER BY no;

// name: last_link
// The last chunk of an entity that a walk reads; no row if it reads all.
MATCH (e:SapwoodEntity {graph_id: $graph_id, no: $no})-[:FROM_CHUNK|FROM_CHUNK_MORE]->(c:SapwoodChunk)
RETURN c.id AS id ORDER BY id SKIP $most - 1 LIMIT 1;

// name: demote_links
// Move the chunks of an entity after the last one that a walk reads out of its way, some at a time; after `hold`.
CALL () {
  MATCH (e:SapwoodEntity {graph_id: $graph_id, no: $no})-[r:FROM_CHUNK]->(c:SapwoodChunk) WHERE c.id > $id
  WITH e, r, c LIMIT $page
  CREATE (e)-[:FROM_CHUNK_MORE {graph_id: $graph_id}]->(c)
  DELETE r
  RETURN count(*) AS moved
}
RETURN moved;

// name: promote_links
// Move back those that came among the first again, since earlier ones turned out to be later; after `hold`.
CALL () {
  MATCH (e:SapwoodEntity {graph_id: $graph_id, no: $no})-[r:FROM_CHUNK_MORE]->(c:SapwoodChunk) WHERE c.id <= $id
  WITH e, r, c LIMIT $page
  CREATE (e)-[:FROM_CHUNK {graph_id: $graph_id}]->(c)
  DELETE r
  RETURN count(*) AS moved
}
RETURN moved;

// name: seal_entities
// Give a page of entities their lists of neighbours and their counts; after `hold`. Returns the page's last entity, null
// after the end.
CALL () {
  MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
  WHERE e.graph_id = $graph_id AND e.no > $after
  WITH e ORDER BY e.graph_id, e.no LIMIT $page
  CALL (e) {
    MATCH (e)-[old:NEAR]->()
    DELETE old
  }
  CALL (e) {
    MATCH (e)-[r:RELATES]-(n:SapwoodEntity) WHERE n <> e
    WITH n, count(r) AS weight ORDER BY weight DESC, n.no
    RETURN collect([n, weight]) AS near
  }
  SET e.degree = size(near), e.fan = size(near[..$fan]), e.links = COUNT { (e)-[:FROM_CHUNK]->() }
  WITH e, near
  CALL (e, near) {
    UNWIND range(0, e.fan - 1) AS rank
    WITH rank, near[rank][0] AS n, near[rank][1] AS weight
    CREATE (e)-[:NEAR {graph_id: $graph_id, weight: weight, rank: rank}]->(n)
  }
  RETURN max(e.no) AS last
}
RETURN last;

// name: seal_names
// Tell the registry whether all entities have the start of their name; after `hold`.
CALL () {
  MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
  WHERE e.graph_id = $graph_id AND e.no >= 0 AND e.name_start IS NULL
  RETURN count(e) AS lacking
}
SET g.has_name_starts = lacking = 0
RETURN lacking;

// name: totals_entities
// Count a page of entities, what begins at them, and what is tied to them and should not be. Returns the page's last entity,
// null after the end. A relationship counts at its start, one with
// another graph at the end that is ours.
MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
WHERE e.graph_id = $graph_id AND e.no > $after
WITH e ORDER BY e.graph_id, e.no LIMIT $page
CALL (e) {
  MATCH (e)-[r]-(o)
  WITH e, r, o, coalesce(o.graph_id <> $graph_id, true) AS foreign, coalesce(r.graph_id <> $graph_id, true) AS stray
  WHERE foreign OR stray AND startNode(r) = e
  RETURN count(DISTINCT r) AS stray, collect(CASE WHEN foreign THEN elementId(o) END) AS foreign
}
RETURN max(e.no) AS last, count(e) AS entities, count(e.communityId) AS placed,
  sum(COUNT { (e)-[:RELATES]->() }) AS relations,
  sum(COUNT { (e)-[:FROM_CHUNK]->() } + COUNT { (e)-[:FROM_CHUNK_MORE]->() }) AS mentions,
  sum(stray) AS stray_relations, collect(CASE WHEN foreign <> [] THEN foreign END) AS foreign;

// name: totals_chunks
// The same for chunks.
MATCH (c:SapwoodChunk) USING INDEX c:SapwoodChunk(graph_id, id)
WHERE c.graph_id = $graph_id AND c.id > $after
WITH c ORDER BY c.graph_id, c.id LIMIT $page
CALL (c) {
  MATCH (c)-[r]-(o)
  WITH c, r, o, coalesce(o.graph_id <> $graph_id, true) AS foreign, coalesce(r.graph_id <> $graph_id, true) AS stray
  WHERE foreign OR stray AND startNode(r) = c
  RETURN count(DISTINCT r) AS stray, collect(CASE WHEN foreign THEN elementId(o) END) AS foreign
}
RETURN max(c.id) AS last, count(c) AS chunks,
  sum(stray) AS stray_relations, collect(CASE WHEN foreign <> [] THEN foreign END) AS foreign;

// name: count_entities
// How many entities a graph has; after `hold`.
CALL () {
  MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
  WHERE e.graph_id = $graph_id AND e.no >= 0
  RETURN count(e) AS entities
}
RETURN entities;

// name: place
// Give entities their communities; after `hold`.
CALL () {
  UNWIND $rows AS row
  MATCH (e:SapwoodEntity {graph_id: $graph_id, no: row[0]})
  SET e.communityPath = row[1], e.communityId = row[1][-1]
  RETURN count(*) AS written
}
RETURN written;

// name: graphs
// All graphs of a corpus, whatever their state. The uid decides: one corpus's name may begin like another's.
MATCH (g:SapwoodGraph {uid: $uid})
RETURN g.graph_id AS graph_id ORDER BY g.generation;

// name: drop_chunks
// Mark a graph as going and delete some relationships of a page of its chunks, and those that have none left. The page is
// read by itself: a limit behind a write would read to the end.
MATCH (g:SapwoodGraph {graph_id: $graph_id})
SET g.state = 'dropping'
WITH g
CALL () {
  MATCH (n:SapwoodChunk) USING INDEX n:SapwoodChunk(graph_id, id)
  WHERE n.graph_id = $graph_id AND n.id >= 0
  WITH n LIMIT $page
  RETURN collect(n) AS nodes
}
CALL (nodes) {
  UNWIND nodes AS n
  MATCH (n)-[r]-()
  WITH r LIMIT $ties
  RETURN collect(DISTINCT r) AS ties
}
FOREACH (r IN ties | DELETE r)
WITH nodes
UNWIND nodes AS n
WITH n, COUNT { (n)--() } AS left
FOREACH (lone IN CASE WHEN left = 0 THEN [n] ELSE [] END | DELETE lone)
RETURN count(*) AS seen, sum(CASE WHEN left = 0 THEN 1 ELSE 0 END) AS removed;

// name: drop_entities
// The same for entities.
MATCH (g:SapwoodGraph {graph_id: $graph_id})
SET g.state = 'dropping'
WITH g
CALL () {
  MATCH (n:SapwoodEntity) USING INDEX n:SapwoodEntity(graph_id, no)
  WHERE n.graph_id = $graph_id AND n.no >= 0
  WITH n LIMIT $page
  RETURN collect(n) AS nodes
}
CALL (nodes) {
  UNWIND nodes AS n
  MATCH (n)-[r]-()
  WITH r LIMIT $ties
  RETURN collect(DISTINCT r) AS ties
}
FOREACH (r IN ties | DELETE r)
WITH nodes
UNWIND nodes AS n
WITH n, COUNT { (n)--() } AS left
FOREACH (lone IN CASE WHEN left = 0 THEN [n] ELSE [] END | DELETE lone)
RETURN count(*) AS seen, sum(CASE WHEN left = 0 THEN 1 ELSE 0 END) AS removed;

// name: forget
// Take an empty graph out of the registry.
MATCH (g:SapwoodGraph {graph_id: $graph_id})
DELETE g;
