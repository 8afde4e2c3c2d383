// name: entities
// A page of entities by number.
MATCH (e:SapwoodEntity)
WHERE e.graph_id = $graph_id AND e.no > $after
RETURN properties(e) AS row ORDER BY e.no LIMIT $limit

// name: relations
// All relations between the ends of the cursor, and a page of those of later ends by source, target and type. The cursor's
// type is for the client to compare: the server orders stored texts by code points, but a parameter's by UTF-16.
CALL () {
    MATCH (s:SapwoodEntity {graph_id: $graph_id, no: $source})-[r:RELATES]->(t:SapwoodEntity {graph_id: $graph_id, no: $target})
    WHERE r.graph_id = $graph_id
    RETURN s, r, t
  UNION ALL
    MATCH (s:SapwoodEntity)
    WHERE s.graph_id = $graph_id AND s.no >= $source
    MATCH (s)-[r:RELATES]->(t:SapwoodEntity)
    WHERE r.graph_id = $graph_id AND t.graph_id = $graph_id AND (s.no > $source OR t.no > $target)
    RETURN s, r, t ORDER BY s.no, t.no, r.type LIMIT $limit
}
RETURN s.no AS source, t.no AS target, properties(r) AS row

// name: paths
// A page of community paths by entity.
MATCH (e:SapwoodEntity)
WHERE e.graph_id = $graph_id AND e.no > $after AND e.communityPath IS NOT NULL
RETURN e.no AS no, e.communityPath AS path ORDER BY e.no LIMIT $limit
