-- name: identity
-- What a corpus is called in other stores.
select encode(uuid_send(uid), 'hex') as uid, name from corpus where corpus_id = $1;

-- name: void
-- Numbers below this one that were begun not long ago and never published.
select number from generation
where corpus_id = $1 and number < $2 and state = 'aborted' and created_at > clock_timestamp() - interval '1 day'
order by number;

-- name: chunks
-- A page of the chunks that a number sees, by id.
select chunk_id, document_id, ordinal from chunk
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and chunk_id > $3
order by chunk_id limit $4;

-- name: entities
-- A page of its entities, by number.
select entity_no, entity_id, type, key, name, description, mentions, chunks, properties from entity
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no > $3
order by entity_no limit $4;

-- name: relations
-- A page of its relations, by source, target and type.
select source_no, target_no, type, weight, evidence, properties from relation
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
    and source_no >= $3 and (source_no, target_no, type collate "C") > ($3, $4, $5::text collate "C")
order by source_no, target_no, type collate "C" limit $6;

-- name: mentions
-- A page of who is mentioned where, by chunk and entity.
select distinct chunk_id, entity_no from mention
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
    and chunk_id >= $3 and (chunk_id, entity_no) > ($3, $4)
order by chunk_id, entity_no limit $5;

-- name: sizes
-- How many rows a projection has to copy, about.
select
    (select coalesce(sum(chunks), 0) from document
        where corpus_id = $1 and born <= $2 and (died is null or died > $2))::bigint as chunks,
    (select count(*) from entity where corpus_id = $1 and born <= $2 and (died is null or died > $2)) as entities,
    (select count(*) from relation where corpus_id = $1 and born <= $2 and (died is null or died > $2)) as relations;

-- name: ended_documents
-- Documents that ended at a number and did not begin anew.
select distinct document_id from document d
where corpus_id = $1 and died = $2 and not exists (
    select from document n where n.corpus_id = $1 and n.document_id = d.document_id and n.born = $2
);

-- name: kept
-- What must stay of a corpus in other stores: the graphs that retained manifests name or that are being built, the numbers
-- whose rows somebody may still read, the numbers of the last day that were given up, and its collections there.
select c.name, encode(uuid_send(c.uid), 'hex') as uid, c.last_generation as last,
    coalesce((
        select array_agg(coalesce(g.manifest ->> 'graph_id', encode(uuid_send(c.uid), 'hex') || '-' || g.number))
        from generation g where g.corpus_id = $1 and g.state in ('current', 'superseded', 'building')
    ), '{}') as graph_ids,
    array(
        select distinct store from (
            select g.manifest ->> 'graph_store' as store from generation g where g.corpus_id = $1
            union all
            select r.payload #>> '{settings,graph_storage,backend}'
            from generation g join run r on r.run_id = g.run_id where g.corpus_id = $1
        ) as used where store <> 'postgres'
    ) as graph_stores,
    coalesce((
        select array_agg(g.number order by g.number)
        from generation g where g.corpus_id = $1 and g.state in ('current', 'superseded', 'building')
    ), '{}') as numbers,
    coalesce((
        select array_agg(g.number order by g.number) from generation g
        where g.corpus_id = $1 and g.state = 'aborted' and g.created_at > clock_timestamp() - interval '1 day'
    ), '{}') as void,
    coalesce((
        select jsonb_object_agg(k.name, k.store) from collection k where k.corpus_id = $1 and k.store <> 'pgvector'
    ), '{}') as collections
from corpus c where c.corpus_id = $1;

-- name: buried
-- What deleted corpora may have left behind; after a day no worker can write more.
select encode(uuid_send(uid), 'hex') as uid, name, collections, graph_stores,
    buried_at < clock_timestamp() - interval '1 day' as cold
from buried order by buried_at limit 100;

-- name: forget_buried
-- All of it is gone, and every worker that might have written more is too.
delete from buried where uid = $1::text::uuid;
