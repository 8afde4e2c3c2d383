// name: seeds
// The seed chunks that the graph has, and the strongest entities that they mention; one row even if there are none. Hints
// keep a plan that was made while the graph was small from scanning a large one.
CALL () {
    UNWIND $seeds AS seed
    MATCH (c:SapwoodChunk {graph_id: $graph_id, id: seed[0]}) USING INDEX SEEK c:SapwoodChunk(graph_id, id)
    WHERE c.graph_join_id = seed[2]
    RETURN collect([c, seed[1]]) AS found
}
CALL (found) {
    UNWIND found AS one
    WITH one[0] AS c, one[1] AS score
    MATCH (c)<-[:FROM_CHUNK|FROM_CHUNK_MORE]-(e)
    WITH e, max(score) AS strength
    WHERE e.graph_id = $graph_id
    ORDER BY strength DESC, e.no
    LIMIT $max_seeds
    WITH e, strength, [[e]] AS levels, [e] AS seen, [e] AS frontier, [1.0] AS paths, false AS cut

// name: hop
// One step from one seed entity: `frontier` are the entities of the last one in order, with the paths to each; the lists
// that fit are read. Doubles count paths exactly as far as anybody will ever count, and do not overflow beyond.
    CALL (seen, frontier, paths) {
        WITH seen, frontier, paths, CASE WHEN size(seen) > $cap THEN 0 ELSE reduce(
            read = [0, 0], f IN frontier |
            CASE WHEN read[0] + f.fan <= $step_edges THEN [read[0] + f.fan, read[1] + 1] ELSE [$step_edges + 1, read[1]] END
        )[1] END AS fit
        CALL (seen, frontier, paths, fit) {
            UNWIND range(0, fit - 1) AS place
            WITH seen, frontier[place] AS f, paths[place] AS ways
            MATCH (f)-[near:NEAR]->(n)
            WHERE NOT n IN seen
            WITH n, sum(ways * near.weight) AS ways
            WHERE n.graph_id = $graph_id
            WITH n, ways ORDER BY ways DESC, n.no LIMIT $cap
            RETURN collect(n) AS nodes, collect(ways) AS counts
        }
        RETURN nodes[..$cap + 1 - size(seen)] AS next, counts[..$cap + 1 - size(seen)] AS counts,
            size(seen) <= $cap AND (fit < size(frontier) OR any(f IN frontier WHERE f.degree > $fan)) AS short
    }
    WITH e, strength, levels + [next] AS levels, seen + next AS seen, next AS frontier, counts AS paths, cut OR short AS cut

// name: reached
// The entities reached, best first, as far as their lists of chunks fit.
    RETURN collect([e, strength]) AS strong, collect([strength, levels]) AS walked,
        sum(CASE WHEN cut THEN 1 ELSE 0 END) AS cut_short
}
CALL (walked) {
    UNWIND walked AS one
    UNWIND range(0, size(one[1]) - 1) AS distance
    WITH one[0] / (1.0 + distance) AS value, one[1][distance] AS level
    UNWIND level AS n
    WITH n, max(value) AS best ORDER BY best DESC, n.no
    WITH collect(n) AS nodes, collect(best) AS bests
    WITH nodes, bests, reduce(
        read = [0, 0], n IN nodes |
        CASE WHEN read[0] + n.links <= $chunk_links THEN [read[0] + n.links, read[1] + 1]
        ELSE [$chunk_links + 1, read[1]] END
    )[1] AS fit
    RETURN nodes[..fit] AS reached, bests[..fit] AS bests, size(nodes) AS resolved
}

// name: chunks
// The chunks of the best of these entities, the least score that can still be among the results (null: any), and the chunks
// of the others where they may be. The neighbour of a chunk with a score below zero scores more than that chunk.
CALL (reached, bests) {
    UNWIND range(0, size(reached[..$first]) - 1) AS place
    WITH reached[place] AS n, bests[place] AS best
    MATCH (n)-[:FROM_CHUNK]->(c)
    WITH c, max(best) AS score
    WHERE c.graph_id = $graph_id AND NOT c.id IN $seed_ids
    WITH c, score ORDER BY score DESC
    RETURN collect(c) AS first, collect(score) AS first_scores,
        collect(CASE WHEN $allowed IS NULL OR c.id IN $allowed THEN score END) AS results
}
WITH *, CASE WHEN $open_ended THEN null ELSE results[$top_k - 1] END AS least
CALL (reached, bests, least) {
    UNWIND range($first, size(reached) - 1) AS place
    WITH reached[place] AS n, bests[place] AS best
    WHERE least IS NULL OR best < 0 OR best >= least
    MATCH (n)-[:FROM_CHUNK]->(c)
    WITH c, max(best) AS score
    WHERE c.graph_id = $graph_id AND NOT c.id IN $seed_ids
    RETURN collect(c) AS others, collect(score) AS other_scores
}
WITH *, first + others AS chunks, first_scores + other_scores AS scores

// name: window
// Chunks near to those in their documents, where that may be among the results. No other chunk of a path is farther.
CALL (chunks, scores, least) {
    UNWIND range(0, size(chunks) - 1) AS place
    WITH chunks[place] AS c, scores[place] AS score, least
    WHERE least IS NULL OR score < 0 OR score / 2.0 >= least
    WITH c, score, least, c.ordinal AS ordinal
    MATCH path = (c)-[:NEXT_CHUNK*1..10]-(n)
    WHERE all(one IN nodes(path) WHERE abs(one.ordinal - ordinal) <= $window AND one.graph_id = $graph_id)
    WITH n, max(score / (1.0 + length(path))) AS shared, least
    WHERE (least IS NULL OR shared >= least) AND ($allowed IS NULL OR n.id IN $allowed) AND NOT n.id IN $seed_ids
    RETURN collect(n.id) AS near, collect(shared) AS near_scores
}

// name: communities
// The best-connected chunks of the communities of the seed entities, where they may be among the results. Conditions
// and order name all that the index on members has, or the planner might read whole communities and sort them.
CALL (strong, least) {
    UNWIND strong AS one
    WITH one[0] AS e, one[1] AS strength, least
    WITH e.communityId AS community, max(strength) / (2.0 + $max_hops) AS value, least
    WHERE community IS NOT NULL AND (least IS NULL OR value >= least)
    CALL (community) {
        MATCH (m:SapwoodEntity) USING INDEX SEEK m:SapwoodEntity(graph_id, communityId, no)
        WHERE m.graph_id = $graph_id AND m.communityId = community AND m.no >= 0
        WITH m ORDER BY m.graph_id, m.communityId, m.no LIMIT $members
        WITH collect(m) AS members
        WITH members, reduce(
            read = [0, 0], m IN members |
            CASE WHEN read[0] + m.links <= $community_links THEN [read[0] + m.links, read[1] + 1]
            ELSE [$community_links + 1, read[1]] END
        )[1] AS fit
        UNWIND members[..fit] AS m
        MATCH (m)-[:FROM_CHUNK]->(c)
        WITH c, count(*) AS connections
        WHERE c.graph_id = $graph_id AND NOT c.id IN $seed_ids
        RETURN c.id AS chunk ORDER BY connections DESC, chunk LIMIT $community_chunks
    }
    WITH chunk, max(value) AS value
    RETURN collect(chunk) AS brought, collect(value) AS values
}

// name: nothing_near
// Without a window.
WITH *, [] AS near, [] AS near_scores

// name: nothing_brought
// Without communities.
WITH *, [] AS brought, [] AS values

// name: results
// All that may be among the results, as few lists: a record costs a client more than a number.
WITH *, [
    place IN range(0, size(chunks) - 1)
    WHERE (least IS NULL OR scores[place] >= least) AND ($allowed IS NULL OR chunks[place].id IN $allowed)
] AS kept
RETURN [one IN found | one[0].id] AS found, cut_short, resolved,
    [place IN kept | chunks[place].id] AS own, [place IN kept | scores[place]] AS own_scores,
    near, near_scores, brought, values
