// Communities by the Leiden procedure of the Graph Data Science library. Names of procedures are theirs.

// name: has_gds
// Whether the library is there at all; asking for its version would not compile without it.
SHOW FUNCTIONS YIELD name WHERE name = 'gds.version' RETURN name;

// name: gds_version
// Its version.
RETURN gds.version() AS version;

// name: eligible
// How many entities have a relation to another one.
MATCH (e:SapwoodEntity) USING INDEX e:SapwoodEntity(graph_id, no)
WHERE e.graph_id = $graph_id AND e.no >= 0
  AND EXISTS { MATCH (e)-[:RELATES]-(n:SapwoodEntity) WHERE n.graph_id = $graph_id AND n <> e }
RETURN count(e) AS eligible;

// name: project
// Project pairs of related entities, their evidence added up over types and directions. The order of the pairs decides in
// which order the procedure visits nodes and neighbours, so it is that of the entities' numbers.
MATCH (a:SapwoodEntity)-[r:RELATES]->(b:SapwoodEntity) USING INDEX a:SapwoodEntity(graph_id, no)
WHERE a.graph_id = $graph_id AND a.no >= 0 AND b.graph_id = $graph_id AND a <> b
WITH CASE WHEN a.no < b.no THEN a.no ELSE b.no END AS low, CASE WHEN a.no < b.no THEN b.no ELSE a.no END AS high, r
WITH low, high, toFloat(sum(r.evidence)) AS weight ORDER BY low, high
WITH gds.graph.project(
  $name, low, high, {relationshipProperties: {weight: weight}}, {undirectedRelationshipTypes: ['*'], readConcurrency: 1}
) AS projected
RETURN projected.nodeCount AS nodes;

// name: leiden
// Find communities on several levels, each kept; modularity is that of the last and coarsest.
CALL gds.leiden.mutate($name, {
  mutateProperty: 'levels',
  randomSeed: $seed,
  concurrency: 1,
  relationshipWeightProperty: 'weight',
  includeIntermediateCommunities: true
}) YIELD modularity
RETURN modularity;

// name: levels
// The clusters of each entity, from the finest level to the coarsest.
CALL gds.graph.nodeProperty.stream($name, 'levels') YIELD nodeId, propertyValue
RETURN nodeId AS no, propertyValue AS levels;

// name: drop_projection
// Give the projection's memory back; one that is not there is no error.
CALL gds.graph.drop($name, false) YIELD graphName
RETURN graphName AS name;

// name: stale_projections
// Projections of workers that are gone: ours, by the form of the name, and old.
CALL gds.graph.list() YIELD graphName, creationTime
WHERE graphName =~ 'sapwood_[0-9a-f]{32}' AND creationTime < datetime() - duration({seconds: $seconds})
RETURN graphName AS name;
