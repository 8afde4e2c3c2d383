-- name: publish
-- Publish a graph under a name, or replace what is published there; the secret of the first time stays. No row if there is no
-- such corpus, or the tenant has as many as it may have.
insert into knowledge_source (tenant, name, corpus_id, description, graph_schema, limits, demand_disclosure, secret)
select $1, $2, c.corpus_id, $4, $5, $6, $7, $8 from corpus c
where c.tenant = $1 and c.name = $3
    and (select count(*) from knowledge_source s where s.tenant = $1 and s.name <> $2) < $9
on conflict (tenant, name) do update
set corpus_id = excluded.corpus_id, description = excluded.description, graph_schema = excluded.graph_schema,
    limits = excluded.limits, demand_disclosure = excluded.demand_disclosure, updated_at = clock_timestamp()
returning name;

-- name: sources
-- The published graphs of a tenant by name, or the one of this name.
select s.name, s.corpus_id, c.name as corpus, s.description, s.graph_schema, s.limits, s.demand_disclosure, s.secret,
    s.created_at, s.updated_at
from knowledge_source s join corpus c on c.corpus_id = s.corpus_id
where s.tenant = $1 and ($2::text is null or s.name = $2) order by s.name collate "C";

-- name: remove
-- Publish a graph no longer.
delete from knowledge_source where tenant = $1 and name = $2;

-- name: retained
-- The manifests of the generations of a corpus that can be read, newest first.
select manifest from generation
where corpus_id = $1 and state in ('current', 'superseded') order by number desc;
