// name: name_starts
// Whether entities of a graph can be looked up by the start of their name.
MATCH (g:SapwoodGraph {graph_id: $graph_id, has_name_starts: true})
RETURN count(g) > 0 AS has
