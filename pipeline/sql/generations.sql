-- name: lock_corpus
-- The corpus under its row lock, which promotions, rollbacks, new builds and the dropping of collections take in turn.
select c.name, c.current_generation, c.last_generation, g.manifest from corpus c
left join generation g on g.corpus_id = c.corpus_id and g.number = c.current_generation
where c.corpus_id = $1 for update of c;

-- name: open_builds
-- Generations that were begun and neither published nor aborted.
select number, run_id from generation where corpus_id = $1 and state = 'building' order by number;

-- name: begin_generation
-- Take the next number, which is never used again.
with next as (
    update corpus set last_generation = last_generation + 1 where corpus_id = $1 returning last_generation
)
insert into generation (corpus_id, number, state, run_id) select $1, last_generation, 'building', $2 from next
returning number;

-- name: ensure_collection
-- Make the physical dense table where it is missing.
select ensure_collection($1, $2, $3, $4);

-- name: outside_collection
-- The part of a corpus's name in other stores that is unique everywhere, and the collection of its current generation if
-- that lies in this store and was embedded alike.
select encode(uuid_send(c.uid), 'hex') as uid, case
    when g.manifest ->> 'dense_store' = $2 and g.manifest ->> 'embedding' = $3 then g.manifest ->> 'collection'
end as current
from corpus c left join generation g on g.corpus_id = c.corpus_id and g.number = c.current_generation
where c.corpus_id = $1;

-- name: note_collection
-- Note a collection that another store has.
select note_collection($1, $2, $3, $4, $5);

-- name: changes
-- By how much a number changed the rows of each store, and the sum of the hashes of their ids.
select 'documents' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(document_id, content_hash), 0)::numeric as h
    from document where corpus_id = $1 and (born = $2 or died = $2)) as documents
union all
select 'chunks' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(chunk_id), 0)::numeric as h
    from chunk where corpus_id = $1 and (born = $2 or died = $2)) as chunks
union all
select 'mentions' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(chunk_id, entity_no), 0)::numeric as h
    from mention where corpus_id = $1 and (born = $2 or died = $2)) as mentions
union all
select 'facts' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(chunk_id, source_no, target_no, type), 0)::numeric as h
    from fact where corpus_id = $1 and (born = $2 or died = $2)) as facts
union all
select 'entities' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(entity_no), 0)::numeric as h
    from entity where corpus_id = $1 and (born = $2 or died = $2)) as entitys
union all
select 'relations' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(source_no, target_no, type), 0)::numeric as h
    from relation where corpus_id = $1 and (born = $2 or died = $2)) as relations
union all
select 'memberships' as store, coalesce(sum(s), 0)::bigint as rows, coalesce(sum(s * h), 0) as total from (
    select case when born = $2 then 1 else -1 end as s, hash_record_extended(row(entity_no), 0)::numeric as h
    from membership where corpus_id = $1 and (born = $2 or died = $2)) as memberships
union all
select 'dense', v.rows, v.total from vector_changes($3, $2) as v;

-- name: totals
-- The rows of each store that a generation sees, and the sum of the hashes of their ids.
select 'documents' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(document_id, content_hash), 0)), 0) as total
from document where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'chunks' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(chunk_id), 0)), 0) as total
from chunk where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'mentions' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(chunk_id, entity_no), 0)), 0) as total
from mention where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'facts' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(chunk_id, source_no, target_no, type), 0)), 0) as total
from fact where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'entities' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(entity_no), 0)), 0) as total
from entity where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'relations' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(source_no, target_no, type), 0)), 0) as total
from relation where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'memberships' as store, count(*) as rows, coalesce(sum(hash_record_extended(row(entity_no), 0)), 0) as total
from membership where corpus_id = $1 and born <= $2 and (died is null or died > $2)
union all
select 'dense', v.rows, v.total from vector_total($3, $2) as v;

-- name: dense_total
-- The same of one collection.
select v.rows, v.total from vector_total($2, $1) as v;

-- name: violations
-- What must not be, looked for where the number changed something: entities without a live mention, dead chunks that are
-- mentioned, dead entities that are related, entities that are live twice.
with touched as materialized (
    select entity_no from mention where corpus_id = $1 and (born = $2 or died = $2)
    union select entity_no from entity where corpus_id = $1 and (born = $2 or died = $2)
), live as materialized (
    select e.entity_no, count(*) as versions from touched
    join entity e on e.corpus_id = $1 and e.entity_no = touched.entity_no and e.died is null group by e.entity_no
), ended as materialized (
    select t.entity_no from touched t where not exists (select 1 from live where live.entity_no = t.entity_no)
)
select
    (select count(*) from live where not exists (
        select 1 from mention m where m.corpus_id = $1 and m.entity_no = live.entity_no and m.died is null
    )) as without_mention,
    (select count(*) from (
        select distinct chunk_id from mention where corpus_id = $1 and born = $2 and died is null
    ) as named where not exists (
        select 1 from chunk c where c.corpus_id = $1 and c.chunk_id = named.chunk_id and c.died is null
    )) + (select count(*) from chunk c
        join mention m on m.corpus_id = $1 and m.chunk_id = c.chunk_id and m.died is null and m.born < $2
        where c.corpus_id = $1 and c.died = $2
    ) as stray_mentions,
    (select count(*) from (
        select source_no as entity_no from relation where corpus_id = $1 and born = $2 and died is null
        union select target_no from relation where corpus_id = $1 and born = $2 and died is null
    ) as ends where not exists (
        select 1 from entity e where e.corpus_id = $1 and e.entity_no = ends.entity_no and e.died is null
    )) + (select count(*) from ended where exists (
        select 1 from relation r where r.corpus_id = $1 and r.source_no = ended.entity_no and r.died is null
    )) + (select count(*) from ended where exists (
        select 1 from relation r where r.corpus_id = $1 and r.target_no = ended.entity_no and r.died is null
    )) as stray_relations,
    (select count(*) from live where versions > 1) as duplicates;

-- name: community_figures
-- How many communities there are, on how many levels.
select count(*)::int as communities, coalesce(max(level) + 1, 0)::int as levels
from community where corpus_id = $1 and died is null;

-- name: database_time
-- Now, by the database's clock.
select clock_timestamp();

-- name: move_corpus
-- Make a generation current if the corpus has not moved since.
update corpus set current_generation = $2 where corpus_id = $1 and current_generation is not distinct from $3;

-- name: supersede
-- The previous generation stays readable until it is reclaimed.
update generation set state = 'superseded' where corpus_id = $1 and state = 'current';

-- name: publish
-- The generation with its manifest.
update generation set state = 'current', manifest = $3, published_at = $4
where corpus_id = $1 and number = $2 and state = 'building';

-- name: hold_generation
-- A retained generation, kept from being reclaimed until the end of this transaction.
select manifest from generation where corpus_id = $1 and number = $2 and state = 'superseded' for share;

-- name: versioned_tables
-- All tables that hold versions of this corpus.
select name from versioned_tables($1);

-- name: revert_rows
-- Make what a new number sees of a table equal to what an earlier generation sees.
select revert_rows($1, $2, $3, $4);

-- name: get_manifest
-- The manifest of a generation that can still be read.
select manifest from generation where corpus_id = $1 and number = $2 and state in ('current', 'superseded');

-- name: list_generations
-- All generations of a corpus, newest first, with how many readers hold them.
select g.number, g.state, g.run_id, g.created_at, g.published_at, g.manifest,
    (select count(*) from pin p where p.corpus_id = g.corpus_id and p.number = g.number
        and p.lease_until > clock_timestamp())::int as pins
from generation g where g.corpus_id = $1 order by g.number desc;

-- name: list_documents
-- A page of the documents of a generation, by id.
select document_id, title, media_type, chars, chunks, metadata from document
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and document_id collate "C" > $3
order by document_id collate "C" limit $4;
