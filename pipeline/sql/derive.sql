-- name: reset_derived
-- Forget what an earlier attempt derived at this number, so that deriving again starts from the same rows.
with a as (delete from entity where corpus_id = $1 and born = $2),
     b as (update entity set died = null where corpus_id = $1 and died = $2),
     c as (delete from relation where corpus_id = $1 and born = $2)
update relation set died = null where corpus_id = $1 and died = $2;

-- name: touched
-- How many mentions and facts were born or died at the number.
select
    (select count(*) from mention where corpus_id = $1 and born = $2)
    + (select count(*) from mention where corpus_id = $1 and died = $2) as mentions,
    (select count(*) from fact where corpus_id = $1 and born = $2)
    + (select count(*) from fact where corpus_id = $1 and died = $2) as facts;

-- name: changed_entities
-- Derive anew every entity numbered $3 to $4 that a mention or a relation born or dead at the number touches, once all
-- relations are derived, and return those that differ from their live version, with that version's public id. A row without
-- a name: the entity lost its last mention. The degree counts the other entities that it has relations with.
-- mode() takes the first of equally frequent values, which the collation makes the first by code point. Most entities and
-- relations have their properties from one mention or fact, which has no more of them than they may have: then there is
-- nothing to merge, which takes eight times as long.
with tied as materialized (
    select source_no as entity_no from relation where corpus_id = $1 and born = $2 and source_no between $3 and $4
    union select target_no from relation where corpus_id = $1 and born = $2 and target_no between $3 and $4
    union select source_no from relation where corpus_id = $1 and died = $2 and source_no between $3 and $4
    union select target_no from relation where corpus_id = $1 and died = $2 and target_no between $3 and $4
), touched as materialized (
    select entity_no from mention where corpus_id = $1 and born = $2 and entity_no between $3 and $4
    union select entity_no from mention where corpus_id = $1 and died = $2 and entity_no between $3 and $4
    union select entity_no from tied
), near as (
    select tied.entity_no, r.target_no as other
    from tied join relation r on r.corpus_id = $1 and r.source_no = tied.entity_no and r.died is null
    union
    select tied.entity_no, r.source_no
    from tied join relation r on r.corpus_id = $1 and r.target_no = tied.entity_no and r.died is null
), degrees as (
    select tied.entity_no, count(near.other)::int as degree
    from tied left join near on near.entity_no = tied.entity_no group by tied.entity_no
), fresh as (
    select m.entity_no, min(m.key collate "C") as key,
        coalesce(
            mode() within group (order by m.surface collate "C") filter (where m.origin = 'text'),
            mode() within group (order by m.surface collate "C")
        ) as name,
        mode() within group (order by m.type collate "C") as type,
        (array_agg(m.description order by length(m.description) desc, m.description collate "C"))[1] as description,
        count(*)::int as mentions,
        count(distinct m.chunk_id)::int as chunks,
        min(m.chunk_id) as first_chunk,
        coalesce(case count(m.properties) when 1 then min(m.properties::text) else first_properties(array_agg(
            jsonb_build_array(m.chunk_id, m.char_start, m.properties)
        ) filter (where m.properties is not null), $5)::text end, '{}') as properties
    from touched join mention m on m.corpus_id = $1 and m.entity_no = touched.entity_no and m.died is null
    group by m.entity_no
)
select touched.entity_no, e.entity_id, e.name as old_name,
    fresh.type, fresh.key, fresh.name, fresh.description, fresh.mentions, fresh.chunks, fresh.first_chunk,
    fresh.properties, coalesce(degrees.degree, e.degree, 0) as degree
from touched
left join fresh on fresh.entity_no = touched.entity_no
left join degrees on degrees.entity_no = touched.entity_no
left join entity e on e.corpus_id = $1 and e.entity_no = touched.entity_no and e.died is null
where (fresh.type, fresh.key, fresh.name, fresh.description, fresh.mentions, fresh.chunks, fresh.first_chunk)
        is distinct from (e.type, e.key, e.name, e.description, e.mentions, e.chunks, e.first_chunk)
    or fresh.properties is distinct from e.properties::text
    or coalesce(degrees.degree, e.degree) <> e.degree;

-- name: end_entities
-- End the live versions of these entities at the number.
update entity set died = $2 where corpus_id = $1 and entity_no = any($3::bigint[]) and died is null and born < $2;

-- name: derive_relations
-- Derive anew every relation of sources numbered $3 to $4 that a fact born or dead at the number touches, and write those
-- that differ; return how many rows were born and died, and whether more than properties changed. A fact about one entity
-- alone makes no edge.
with touched as materialized (
    select source_no, target_no, type from fact
    where corpus_id = $1 and born = $2 and source_no <> target_no and source_no between $3 and $4
    union
    select source_no, target_no, type from fact
    where corpus_id = $1 and died = $2 and source_no <> target_no and source_no between $3 and $4
), fresh as (
    select source_no, target_no, type, max(f.confidence) as weight, count(distinct f.chunk_id)::int as evidence,
        coalesce(case count(f.properties) when 1 then min(f.properties::text) else first_properties(array_agg(
            jsonb_build_array(f.chunk_id, f.char_start, f.properties)
        ) filter (where f.properties is not null), $5)::text end, '{}') as properties
    from touched join fact f using (source_no, target_no, type)
    where f.corpus_id = $1 and f.died is null
    group by source_no, target_no, type
), changed as materialized (
    select touched.*, fresh.weight, fresh.evidence, fresh.properties, r.born as old,
        (fresh.weight, fresh.evidence) is distinct from (r.weight, r.evidence) as edge
    from touched
    left join fresh using (source_no, target_no, type)
    left join relation r on r.corpus_id = $1 and r.source_no = touched.source_no and r.target_no = touched.target_no
        and r.type = touched.type and r.died is null
    where (fresh.weight, fresh.evidence, fresh.properties) is distinct from (r.weight, r.evidence, r.properties::text)
), ended as (
    update relation r set died = $2 from changed c
    where r.corpus_id = $1 and r.source_no = c.source_no and r.target_no = c.target_no and r.type = c.type
        and r.born = c.old
    returning 1
), written as (
    insert into relation (corpus_id, source_no, target_no, type, born, weight, evidence, properties)
    select $1, source_no, target_no, type, $2, weight, evidence, properties::jsonb from changed where evidence is not null
    order by source_no, target_no, type  -- neighbours lie together, and the indexes grow at one place
    returning 1
)
select (select count(*) from written) as born, (select count(*) from ended) as died,
    exists (select from changed where edge) as edges;
