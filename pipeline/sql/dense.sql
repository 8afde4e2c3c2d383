-- name: collection
-- What the catalogue knows of a collection. Only a name that stands here is ever put in the place of `dense_collection`.
select corpus_id, embedding, dimension from collection where name = $1;

-- name: exact
-- The nearest visible chunks by a scan of all; `+ 0` keeps the planner from asking the approximate index. A vector of zeros
-- has no cosine, and is as far away as one at a right angle.
select chunk_id, 1 - distance as similarity
from (
    select chunk_id, coalesce(nullif(embedding <=> $1::halfvec, 'NaN'), 1) as distance
    from dense_collection where born <= $2 and (died is null or died > $2)
)
order by distance + 0, chunk_id limit $3;

-- name: exact_among
-- The same among the chunks that pass a filter.
select chunk_id, 1 - distance as similarity
from (
    select chunk_id, coalesce(nullif(embedding <=> $1::halfvec, 'NaN'), 1) as distance
    from dense_collection where born <= $2 and (died is null or died > $2) and chunk_id = any($4::bigint[])
)
order by distance + 0, chunk_id limit $3;

-- name: set_scan
-- How the index is searched in this transaction: on and on until enough visible rows are found, nearest first.
select set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', $1, true);

-- name: nearest
-- The nearest visible chunks by the index.
select chunk_id, 1 - (embedding <=> $1::halfvec) as similarity
from dense_collection where born <= $2 and (died is null or died > $2)
order by embedding <=> $1::halfvec, chunk_id limit $3;

-- name: nearest_among
-- The same among the chunks that pass a filter.
select chunk_id, 1 - (embedding <=> $1::halfvec) as similarity
from dense_collection where born <= $2 and (died is null or died > $2) and chunk_id = any($4::bigint[])
order by embedding <=> $1::halfvec, chunk_id limit $3;

-- name: similarities
-- How similar these chunks are to a vector; one that the generation does not see is left out.
select chunk_id, 1 - (embedding <=> $1::halfvec) as similarity
from dense_collection where born <= $2 and (died is null or died > $2) and chunk_id = any($3::bigint[]);

-- name: more_than
-- Whether a collection has more rows, of all generations, than this.
select count(*) > $1::int from (select 1 from dense_collection limit $1::int + 1);

-- name: index_state
-- Whether the index is there and whole, and whether somebody is making it now.
select
    exists (select 1 from pg_index where indexrelid = to_regclass($1) and indisvalid) as ready,
    exists (select 1 from pg_stat_progress_create_index where index_relid = to_regclass($1)) as under_way;

-- name: set_build
-- Memory for the build of an index, which needs a multiple of the default to be fast.
set maintenance_work_mem = '512MB';

-- name: drop_index
-- Remove what a build that broke off left behind.
drop index concurrently if exists dense_collection_hnsw;

-- name: create_index
-- Build the index beside all reading and writing.
create index concurrently if not exists dense_collection_hnsw on dense_collection using hnsw (embedding halfvec_cosine_ops);
