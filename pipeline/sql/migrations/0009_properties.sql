-- Extracted properties: scalars by name, those of a mention or fact as they were found, those of an entity or relation derived.

alter table mention add column properties jsonb;                          -- null: none
alter table fact add column properties jsonb;
alter table entity add column properties jsonb not null default '{}';
alter table relation add column properties jsonb not null default '{}';

-- Of arrays (chunk, place in it, properties) for each name the value of the first that has it, ties by value; of the first
-- `most` names by code point. Numbers keep their form: 1 and 1.0 are equal as jsonb, but not as text.
create function first_properties(given jsonb[], most int) returns jsonb
language sql immutable strict parallel safe as $$
    select jsonb_object_agg(key, value) from (
        select distinct on (p.key collate "C") p.key, p.value
        from unnest(given) as g (one), jsonb_each(g.one -> 2) as p
        order by p.key collate "C", (g.one -> 0)::bigint, (g.one -> 1)::int, p.value::text collate "C" limit most
    ) as first
$$;

-- Portable MATCH finds entities by name, however long that is; row security lets an index answer for a column as it stands.
create index entity_name on entity using hash (name);
