-- name: surplus
-- Superseded generations beyond the newest `$2` readable ones that nobody holds.
select number from (
    select number, state, row_number() over (order by (state = 'current') desc, number desc) as place
    from generation where corpus_id = $1 and state in ('current', 'superseded')
) as readable
where state = 'superseded' and place > $2 and not exists (
    select 1 from pin p where p.corpus_id = $1 and p.number = readable.number and p.lease_until > clock_timestamp()
)
order by number;

-- name: lock_generation
-- A superseded generation under its row lock: no new pin can be taken until this transaction ends.
select number from generation where corpus_id = $1 and number = $2 and state = 'superseded' for update skip locked;

-- name: reclaim_generation
-- Close the generation to readers unless somebody pinned it meanwhile. This is a statement after the one that locked the
-- row, so that it sees every pin that was taken before the lock.
update generation set state = 'reclaimed' where corpus_id = $1 and number = $2 and not exists (
    select 1 from pin p where p.corpus_id = $1 and p.number = $2 and p.lease_until > clock_timestamp()
);

-- name: expired_pins
-- Forget pins whose lease ended.
delete from pin where corpus_id = $1 and lease_until <= clock_timestamp();

-- name: kept
-- Numbers whose rows must stay, and the last number there is.
select c.last_generation, coalesce(array_agg(g.number) filter (where g.number is not null), '{}') as numbers
from corpus c
left join generation g on g.corpus_id = c.corpus_id and g.state in ('current', 'superseded', 'building')
where c.corpus_id = $1 group by c.corpus_id;

-- name: versioned_tables
-- All tables that hold versions of this corpus.
select name from versioned_tables($1);

-- name: reclaim_rows
-- Delete a batch of versions that no kept generation sees.
select reclaim_rows($1, $2, $3::int[], $4, $5);

-- name: quiet
-- The corpus under its row lock, if its newest number is current: then no build runs, and none was left to be tried again.
select current_generation from corpus where corpus_id = $1 and current_generation = last_generation for update skip locked;

-- name: unused_collections
-- Collections that no readable generation names.
select name, store from collection c where corpus_id = $1 and not exists (
    select 1 from generation g
    where g.corpus_id = $1 and g.state in ('current', 'superseded') and g.manifest ->> 'collection' = c.name
);

-- name: drop_collection
-- Drop a dense table.
select drop_collection($1, $2);

-- name: unused_vectors
-- Forget cached vectors of texts that no version of a chunk has any more.
delete from embedding_cache e where corpus_id = $1 and not exists (
    select 1 from chunk c where c.corpus_id = $1 and c.passage_hash = e.text_hash
);

-- name: unused_extractions
-- Forget cached extractions of texts that no version of a chunk has any more.
delete from extraction_cache e where corpus_id = $1 and not exists (
    select 1 from chunk c where c.corpus_id = $1 and c.text_hash = e.text_hash
);

-- name: unused_contexts
-- Forget cached contexts of passages that no version of a chunk is any more.
delete from context_cache e where corpus_id = $1 and not exists (
    select 1 from chunk c where c.corpus_id = $1 and c.passage_hash = e.passage_hash
);

-- name: orphans
-- Open builds whose run has ended without closing them.
select g.number from generation g left join run r on r.run_id = g.run_id
where g.corpus_id = $1 and g.state = 'building'
    and (r.run_id is null or r.state in ('completed', 'failed', 'cancelled', 'expired'))
order by g.number;

-- name: building
-- Whether this number is an open build.
select 1 from generation where corpus_id = $1 and number = $2 and state = 'building';

-- name: undo_rows
-- Undo a batch of a table's rows of an open build.
select undo_rows($1, $2, $3, $4);

-- name: close_aborted
-- The build is undone; its number is never used again.
update generation set state = 'aborted' where corpus_id = $1 and number = $2 and state = 'building';

-- name: all_corpora
-- Every corpus with how many generations it keeps, and for how many days its runs.
select corpus_id,
    coalesce((settings -> 'retention' ->> 'generations')::int, 2) as keep,
    coalesce((settings -> 'retention' ->> 'event_days')::float8, 7.0) as days
from corpus order by corpus_id;

-- name: short_locks
-- Rather try again later than make readers queue behind a table that waits to be dropped.
set local lock_timeout = '1s';
