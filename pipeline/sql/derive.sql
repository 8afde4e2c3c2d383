-- name: reset_derived
-- Forget what an earlier attempt derived at this number, so that deriving again starts from the same rows.
with a as (delete from entity where corpus_id = $1 and born = $2),
     b as (update entity set died = null where corpus_id = $1 and died = $2),
     c as (delete from relation where corpus_id = $1 and born = $2)
update relation set died = null where corpus_id = $1 and died = $2;

-- name: changed_entities
-- Derive anew every entity that a mention born or dead at the number touches, and return those that differ from their
-- live version, with that version's public id. A row without a name: the entity lost its last mention.
-- mode() takes the first of equally frequent values, which the collation makes the first by code point.
with touched as materialized (
    select entity_no from mention where corpus_id = $1 and born = $2
    union
    select entity_no from mention where corpus_id = $1 and died = $2
), fresh as (
    select m.entity_no, min(m.key collate "C") as key,
        coalesce(
            mode() within group (order by m.surface collate "C") filter (where m.origin = 'text'),
            mode() within group (order by m.surface collate "C")
        ) as name,
        mode() within group (order by m.type collate "C") as type,
        (array_agg(m.description order by length(m.description) desc, m.description collate "C"))[1] as description,
        count(*)::int as mentions,
        count(distinct m.chunk_id)::int as chunks
    from touched join mention m on m.corpus_id = $1 and m.entity_no = touched.entity_no and m.died is null
    group by m.entity_no
)
select touched.entity_no, e.entity_id, e.name as old_name,
    fresh.type, fresh.key, fresh.name, fresh.description, fresh.mentions, fresh.chunks
from touched
left join fresh on fresh.entity_no = touched.entity_no
left join entity e on e.corpus_id = $1 and e.entity_no = touched.entity_no and e.died is null
where (fresh.type, fresh.key, fresh.name, fresh.description, fresh.mentions, fresh.chunks)
    is distinct from (e.type, e.key, e.name, e.description, e.mentions, e.chunks);

-- name: end_entities
-- End the live versions of these entities at the number.
update entity set died = $2 where corpus_id = $1 and entity_no = any($3::bigint[]) and died is null and born < $2;

-- name: derive_relations
-- Derive anew every relation that a fact born or dead at the number touches, and write those that differ; return how many
-- rows were born and died. A fact about one entity alone makes no edge.
with touched as materialized (
    select source_no, target_no, type from fact where corpus_id = $1 and born = $2 and source_no <> target_no
    union
    select source_no, target_no, type from fact where corpus_id = $1 and died = $2 and source_no <> target_no
), fresh as (
    select source_no, target_no, type, max(f.confidence) as weight, count(distinct f.chunk_id)::int as evidence
    from touched join fact f using (source_no, target_no, type)
    where f.corpus_id = $1 and f.died is null
    group by source_no, target_no, type
), changed as materialized (
    select touched.*, fresh.weight, fresh.evidence, r.born as old
    from touched
    left join fresh using (source_no, target_no, type)
    left join relation r on r.corpus_id = $1 and r.source_no = touched.source_no and r.target_no = touched.target_no
        and r.type = touched.type and r.died is null
    where (fresh.weight, fresh.evidence) is distinct from (r.weight, r.evidence)
), ended as (
    update relation r set died = $2 from changed c
    where r.corpus_id = $1 and r.source_no = c.source_no and r.target_no = c.target_no and r.type = c.type
        and r.born = c.old
    returning 1
), written as (
    insert into relation (corpus_id, source_no, target_no, type, born, weight, evidence)
    select $1, source_no, target_no, type, $2, weight, evidence from changed where evidence is not null
    order by source_no, target_no, type  -- neighbours lie together, and the indexes grow at one place
    returning 1
)
select (select count(*) from written) as born, (select count(*) from ended) as died;
