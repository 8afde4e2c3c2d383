-- Portable MATCH: what the statements that are made for each query (graphtools/sql.py) leave to ask. $1 is the corpus and $2
-- the generation.

-- name: read_only
-- One snapshot for the query and for what its rows show; a plan for these very values; and nothing by which equal questions
-- could find their matches in another order.
set transaction isolation level repeatable read, read only;
set local synchronize_seqscans = off;
set local max_parallel_workers_per_gather = 0;
set local cursor_tuple_fraction = 1;
set local plan_cache_mode = force_custom_plan;

-- name: nodes
-- Entities by number.
select entity_no, entity_id, type, name, description, mentions, chunks, properties from entity
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no = any($3::bigint[]);

-- name: edges
-- Relations by the place of their row, which is theirs while the transaction lasts.
select ctid as tid, source_no, target_no, type, weight::float8 as weight, evidence, properties from relation
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and ctid = any($3::tid[]);
