-- What people see of a graph. `$1` is the corpus and `$2` the generation, in every statement: a row is visible when it was
-- born by then and has not died. Texts are ordered by code points, whatever the locale of the database.
-- The blocks that pick entities (entity_no, place, total) are heads: `shown` follows.

-- name: pick_named
-- Entities by name; a type and a text are optional.
with picked as (
    select entity_no, row_number() over (order by name collate "C", entity_id collate "C") as place, 0::bigint as total
    from (
        select entity_no, name, entity_id from entity
        where corpus_id = $1 and born <= $2 and (died is null or died > $2)
            and ($3::text is null or type = $3)
            and ($4::text = '' or position(lower($4::text) in translate(lower(name), '_-', '  ')) > 0)
        order by name collate "C", entity_id collate "C" limit $5
    ) as first
);

-- name: pick_connected
-- Entities by the number of others that they have relations with.
with matching as materialized (
    select entity_no, degree, name, entity_id from entity
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and ($3::text = '' or position(lower($3::text) in translate(lower(name), '_-', '  ')) > 0)
), picked as (
    select entity_no, row_number() over (order by degree desc, name collate "C", entity_id collate "C") as place,
        (select count(*) from matching) as total
    from (select * from matching order by degree desc, name collate "C", entity_id collate "C" limit $4) as first
);

-- name: pick_members
-- The members of a community of the finest level, in the same order.
with picked as (
    select e.entity_no, count(*) over () as total, row_number() over (
        order by e.degree desc, e.name collate "C", e.entity_id collate "C"
    ) as place
    from membership m
    join entity e on e.corpus_id = $1 and e.entity_no = m.entity_no and e.born <= $2 and (e.died is null or e.died > $2)
    where m.corpus_id = $1 and m.born <= $2 and (m.died is null or m.died > $2) and m.community = $3
    order by place limit $4
);

-- name: pick_number
-- The entity of a number, if it has the public id too.
with picked as (
    select entity_no, 1 as place, 1::bigint as total from entity
    where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no = $3 and entity_id = $4
);

-- name: pick_id
-- The entity of a public id that no number follows from.
with picked as (
    select entity_no, 1 as place, 1::bigint as total from entity
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and entity_id = $3
    order by entity_no limit 1
);

-- name: pick_near
-- Of these entities those of the least distance.
with picked as (
    select e.entity_no, 0::bigint as total, row_number() over (
        order by n.distance, e.name collate "C", e.entity_id collate "C"
    ) as place
    from unnest($3::bigint[], $4::int[]) as n (entity_no, distance)
    join entity e on e.corpus_id = $1 and e.entity_no = n.entity_no and e.born <= $2 and (e.died is null or e.died > $2)
    order by place limit $5
);

-- name: shown
-- What is shown of the picked entities, with the document of the first chunk by id that mentions each.
select e.entity_no, e.entity_id, e.type, e.key, e.name, e.description, e.mentions, e.chunks, e.properties,
    coalesce(m.path, '{}') as path, c.document_id as document, p.total
from picked p
join entity e on e.corpus_id = $1 and e.entity_no = p.entity_no and e.born <= $2 and (e.died is null or e.died > $2)
left join membership m on m.corpus_id = $1 and m.entity_no = p.entity_no
    and m.born <= $2 and (m.died is null or m.died > $2)
left join chunk c on c.corpus_id = $1 and c.chunk_id = e.first_chunk and c.born <= $2 and (c.died is null or c.died > $2)
order by p.place;

-- name: ring
-- Up to $5 entities next to those of $3, in any direction, that are not among $4.
select node from (
    select target_no as node from relation
    where corpus_id = $1 and born <= $2 and (died is null or died > $2) and source_no = any($3::bigint[])
    union
    select source_no from relation
    where corpus_id = $1 and born <= $2 and (died is null or died > $2) and target_no = any($3::bigint[])
) as near
where not exists (select from unnest($4::bigint[]) as seen (node) where seen.node = near.node)
order by node limit $5;

-- name: edges
-- Relations from these entities to those, or to any.
select s.entity_id as source, t.entity_id as target, r.type, r.weight, r.evidence, r.properties
from (
    select source_no, target_no, type, weight, evidence, properties from relation
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and source_no = any($3::bigint[]) and ($4::bigint[] is null or target_no in (select unnest($4::bigint[])))
    order by source_no, target_no, type collate "C" limit $5
) as r
join entity s on s.corpus_id = $1 and s.entity_no = r.source_no and s.born <= $2 and (s.died is null or s.died > $2)
join entity t on t.corpus_id = $1 and t.entity_no = r.target_no and t.born <= $2 and (t.died is null or t.died > $2)
order by r.source_no, r.target_no, r.type collate "C";

-- name: groups
-- The communities of the finest level: their size, their first members and what these show. Only those that may be among
-- the first $4 by size have their members looked up.
with sized as materialized (
    select community, cardinality(path) - 1 as level, count(*) as size, array_agg(entity_no) as numbers
    from membership
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and cardinality(path) > 0 and ($3::int is null or cardinality(path) - 1 = $3)
    group by community, cardinality(path)
)
select s.community, s.level, s.size, m.members[:$5] as members, m.leaders[:$6] as leaders
from sized s cross join lateral (
    select array_agg(e.entity_id order by e.degree desc, e.shown collate "C", e.entity_id collate "C") as members,
        array_agg(e.shown order by e.degree desc, e.shown collate "C", e.entity_id collate "C") as leaders
    from (
        select entity_id, degree, coalesce(nullif(name, ''), entity_id) as shown from entity
        where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no = any(s.numbers)
    ) as e
) as m
where s.size >= coalesce((select size from sized order by size desc offset $4 - 1 limit 1), 0)
order by s.size desc, m.leaders[1] collate "C", s.community limit $4;

-- name: entity_types
-- Entities by type.
select type, count(*) as rows from entity
where corpus_id = $1 and born <= $2 and (died is null or died > $2) group by type;

-- name: relation_types
-- Relations by type.
select type, count(*) as rows from relation
where corpus_id = $1 and born <= $2 and (died is null or died > $2) group by type;

-- name: group_count
-- How many communities of the finest level there are.
select count(distinct community) from membership
where corpus_id = $1 and born <= $2 and (died is null or died > $2);

-- name: sources
-- The chunks that mention an entity, each once.
select c.chunk_id, c.document_id, c.first_line, c.last_line, c.text, d.metadata
from (
    select distinct chunk_id from mention
    where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no = $3
) as n
join chunk c on c.corpus_id = $1 and c.chunk_id = n.chunk_id and c.born <= $2 and (c.died is null or c.died > $2)
join document d on d.corpus_id = $1 and d.document_id = c.document_id
    and d.born <= $2 and (d.died is null or d.died > $2)
order by c.document_id collate "C", c.ordinal, c.chunk_id offset $4 limit $5;

-- name: document_totals
-- How many documents there are, and how many chunks.
select count(*) as documents, coalesce(sum(chunks), 0)::bigint as chunks from document
where corpus_id = $1 and born <= $2 and (died is null or died > $2);
