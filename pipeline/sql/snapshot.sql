-- name: begin_load
-- Every statement of a load sees the same rows. Plans are made for the actual numbers: a generic plan would walk the
-- whole corpus by chunk id to find the few rows of one generation.
set transaction isolation level repeatable read, read only;
set local plan_cache_mode = force_custom_plan;

-- name: readable
-- Which of these generations still has all its rows.
select number from generation where corpus_id = $1 and number = any($2::int[]) and state in ('current', 'superseded');

-- name: sizes
-- How many rows begin after $2 and are visible to $3, which decides the number of pages. Each entity has a membership.
select
    (select count(*) from chunk
     where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)) as chunks,
    (select count(*) from membership
     where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)) as entities,
    (select count(*) from relation
     where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)) as relations;

-- name: born_chunks
-- A page of the new chunks. Numbers leave as packed big-endian columns: no Python object is made for any of them.
select
    coalesce(string_agg(int8send(chunk_id) || int4send(ordinal) || int4send(length), ''::bytea), '') as numbers,
    coalesce(array_agg(document_id), '{}') as documents,
    coalesce(array_agg(terms), '{}') as terms
from chunk
where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)
    and chunk_id >= $4 and chunk_id <= $5;

-- name: born_mentions
-- The mentions of the same page, and whether each was carried in from a title or heading; they die with their chunk.
select coalesce(
    string_agg(int8send(chunk_id) || int8send(entity_no) || int2send((origin <> 'text')::int::int2), ''::bytea), ''
)
from mention
where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)
    and chunk_id >= $4 and chunk_id <= $5;

-- name: born_entities
-- A page of the entities of $3 of which the row or the membership changed, each with its finest community. An entity with an
-- id of its own has its name as well, by which it is asked for.
select
    coalesce(string_agg(int8send(e.entity_no) || int8send(coalesce(m.path[cardinality(m.path)], -1)), ''::bytea), '')
        as numbers,
    coalesce(array_agg(e.key), '{}') as keys,
    coalesce(array_agg(case when e.key ~ '[.:]' then e.name end), '{}') as names
from (
    select entity_no from entity where corpus_id = $1 and born > $2 and born <= $3
    union select entity_no from entity where corpus_id = $1 and died > $2 and died <= $3
    union select entity_no from membership where corpus_id = $1 and born > $2 and born <= $3
    union select entity_no from membership where corpus_id = $1 and died > $2 and died <= $3
) as changed
join entity e on e.corpus_id = $1 and e.entity_no = changed.entity_no
    and e.born <= $3 and (e.died is null or e.died > $3)
left join membership m on m.corpus_id = $1 and m.entity_no = changed.entity_no
    and m.born <= $3 and (m.died is null or m.died > $3)
where changed.entity_no >= $4 and changed.entity_no <= $5;

-- name: born_relations
-- A page of the new relations, one row for each type.
select type, string_agg(int8send(source_no) || int8send(target_no) || float4send(weight), ''::bytea) as numbers
from relation
where corpus_id = $1 and born > $2 and born <= $3 and (died is null or died > $3)
    and source_no >= $4 and source_no <= $5
group by type
order by type collate "C";

-- name: dead_chunks
-- Chunks that $2 can see and $3 cannot, or that were rewritten in between.
select coalesce(string_agg(int8send(chunk_id), ''::bytea), '')
from chunk where corpus_id = $1 and born <= $2 and died > $2 and died <= $3;

-- name: dead_entities
-- The entities of $2 of which the row or the membership changed by $3: `born_entities` brings back those that live on.
select coalesce(string_agg(int8send(e.entity_no), ''::bytea), '')
from (
    select entity_no from entity where corpus_id = $1 and died > $2 and died <= $3
    union select entity_no from membership where corpus_id = $1 and born > $2 and born <= $3
    union select entity_no from membership where corpus_id = $1 and died > $2 and died <= $3
) as changed
join entity e on e.corpus_id = $1 and e.entity_no = changed.entity_no
    and e.born <= $2 and (e.died is null or e.died > $2);

-- name: dead_relations
-- Relations that $2 can see and that end by $3, one row for each type.
select type, string_agg(int8send(source_no) || int8send(target_no) || float4send(weight), ''::bytea) as numbers
from relation where corpus_id = $1 and born <= $2 and died > $2 and died <= $3
group by type
order by type collate "C";
