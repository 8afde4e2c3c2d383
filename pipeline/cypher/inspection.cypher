// What people see of a graph. Texts are ordered stored against stored, which is by code points; parameters are only looked
// for. The blocks that pick entities (a list `picked` and their `total`) are heads: `shown` follows.

// name: pick_named
// Entities by name; a type and a text are optional.
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0 AND ($kind IS NULL OR e.type = $kind)
        AND ($text = '' OR replace(replace(toLower(e.name), '_', ' '), '-', ' ') CONTAINS toLower($text))
    WITH e ORDER BY e.name, e.entity_id LIMIT $limit
    RETURN collect(e) AS picked, 0 AS total
}

// name: pick_connected
// Entities by the number of others that they have relations with.
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0
        AND ($text = '' OR replace(replace(toLower(e.name), '_', ' '), '-', ' ') CONTAINS toLower($text))
    RETURN count(e) AS total
}
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0
        AND ($text = '' OR replace(replace(toLower(e.name), '_', ' '), '-', ' ') CONTAINS toLower($text))
    WITH e ORDER BY e.degree DESC, e.name, e.entity_id LIMIT $limit
    RETURN collect(e) AS picked
}

// name: pick_members
// The members of a community of the finest level, in the same order.
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.communityId = $community AND e.no >= 0
    RETURN count(e) AS total
}
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.communityId = $community AND e.no >= 0
    WITH e ORDER BY e.degree DESC, e.name, e.entity_id LIMIT $limit
    RETURN collect(e) AS picked
}

// name: pick_id
// The entity of a public id.
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.entity_id = $entity_id
    WITH e ORDER BY e.no LIMIT 1
    RETURN collect(e) AS picked, 1 AS total
}

// name: pick_near
// Of these entities (number, distance) those of the least distance.
CALL () {
    UNWIND $near AS pair
    MATCH (e:SapwoodEntity {graph_id: $graph_id, no: pair[0]})
    WITH e, pair[1] AS distance ORDER BY distance, e.name, e.entity_id LIMIT $limit
    RETURN collect(e) AS picked, $total AS total
}

// name: shown
// What is shown of the picked entities, with the document of the first chunk by id that mentions each.
UNWIND range(0, size(picked) - 1) AS place
WITH picked[place] AS e, place, total
CALL (e) {
    MATCH (e)-[r:FROM_CHUNK]->(c:SapwoodChunk)
    WHERE r.graph_id = $graph_id AND c.graph_id = $graph_id
    WITH c ORDER BY c.id LIMIT 1
    RETURN collect(c.document) AS documents
}
RETURN properties(e) AS row, documents, total ORDER BY place

// name: ring
// Up to $room entities next to those of the frontier, in any direction, that were not seen.
UNWIND $frontier AS no
MATCH (e:SapwoodEntity {graph_id: $graph_id, no: no})-[r:RELATES]-(n:SapwoodEntity)
WHERE r.graph_id = $graph_id AND n.graph_id = $graph_id AND NOT n.no IN $seen
WITH DISTINCT n.no AS node
RETURN node ORDER BY node LIMIT $room

// name: edges
// Relations from these entities to those, or to any.
UNWIND $sources AS no
MATCH (s:SapwoodEntity {graph_id: $graph_id, no: no})-[r:RELATES]->(t:SapwoodEntity)
WHERE r.graph_id = $graph_id AND t.graph_id = $graph_id AND ($targets IS NULL OR t.no IN $targets)
RETURN s.entity_id AS source, t.entity_id AS target, properties(r) AS row ORDER BY s.no, t.no, r.type LIMIT $limit

// name: groups
// The communities of the finest level: their size, their first members and what these show.
MATCH (e:SapwoodEntity)
WHERE e.graph_id = $graph_id AND e.no >= 0 AND e.communityId IS NOT NULL
    AND ($level IS NULL OR size(e.communityPath) - 1 = $level)
WITH e, CASE WHEN e.name = '' THEN e.entity_id ELSE e.name END AS shown
ORDER BY e.degree DESC, shown, e.entity_id
WITH e.communityId AS community, size(e.communityPath) - 1 AS level, count(*) AS size,
    collect(e.entity_id)[..$members] AS members, collect(shown)[..$leaders] AS leaders
RETURN community, level, size, members, leaders ORDER BY size DESC, leaders[0], community LIMIT $limit

// name: counts
// Entities and relations by type, and how many communities of the finest level there are.
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0
    WITH e.type AS type, count(*) AS rows
    RETURN collect([type, rows]) AS entities
}
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0
    MATCH (e)-[r:RELATES]->(t:SapwoodEntity)
    WHERE r.graph_id = $graph_id AND t.graph_id = $graph_id
    WITH r.type AS type, count(*) AS rows
    RETURN collect([type, rows]) AS relations
}
CALL () {
    MATCH (e:SapwoodEntity)
    WHERE e.graph_id = $graph_id AND e.no >= 0
    RETURN count(DISTINCT e.communityId) AS communities
}
RETURN entities, relations, communities
