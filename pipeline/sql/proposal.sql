-- name: entity_types
-- The most frequent types of entities of a generation.
select type, count(*) as rows from entity
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
group by type order by count(*) desc, type collate "C" limit $3;

-- name: relation_types
-- The most frequent types of relations.
select type, count(*) as rows from relation
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
group by type order by count(*) desc, type collate "C" limit $3;

-- name: properties
-- What is extracted about entities of the types $3 and relations of the types $4: how often, of which JSON type, and how many
-- of the texts have the form of a date ($6) or of a date with its time ($7).
with owned as (
    select 'node' as kind, type, properties from entity
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and type = any($3::text[]) and properties <> '{}'
    union all
    select 'edge', type, properties from relation
    where corpus_id = $1 and born <= $2 and (died is null or died > $2)
        and type = any($4::text[]) and properties <> '{}'
)
select o.kind, o.type as owner, p.key as name, count(*) as rows,
    count(*) filter (where jsonb_typeof(p.value) = 'boolean') as booleans,
    count(*) filter (where jsonb_typeof(p.value) = 'number') as numbers,
    count(*) filter (where jsonb_typeof(p.value) = 'number' and p.value::text ~ '^-?[0-9]{1,18}$') as integers,
    count(*) filter (where jsonb_typeof(p.value) = 'string' and p.value #>> '{}' ~ $6) as dates,
    count(*) filter (where jsonb_typeof(p.value) = 'string' and p.value #>> '{}' ~ $7) as datetimes,
    left(min((p.value #>> '{}') collate "C"), 100) as example
from owned o cross join lateral jsonb_each(o.properties) as p (key, value)
group by o.kind, o.type, p.key order by count(*) desc, o.kind, o.type collate "C", p.key collate "C" limit $5;

-- name: relation_ends
-- Of each of these types of relations the most frequent pair of types that it goes between.
select distinct on (pair.type) pair.type, pair.source, pair.target, pair.rows
from (
    select r.type, s.type as source, t.type as target, count(*) as rows
    from relation r
    join entity s on s.corpus_id = $1 and s.entity_no = r.source_no and s.born <= $2 and (s.died is null or s.died > $2)
    join entity t on t.corpus_id = $1 and t.entity_no = r.target_no and t.born <= $2 and (t.died is null or t.died > $2)
    where r.corpus_id = $1 and r.born <= $2 and (r.died is null or r.died > $2) and r.type = any($3::text[])
    group by r.type, s.type, t.type
) as pair
order by pair.type, pair.rows desc, pair.source collate "C", pair.target collate "C";
