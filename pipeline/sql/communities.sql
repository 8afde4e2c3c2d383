-- name: graph_entities
-- The entities that the generation in the making sees, as packed big-endian numbers: one value, quick to read.
select coalesce(string_agg(int8send(entity_no), ''), '') from entity where corpus_id = $1 and died is null;

-- name: labels
-- What some of them are called, ascending.
select entity_no, entity_id, name, left(description, 300) as description
from entity where corpus_id = $1 and died is null and entity_no = any($2::bigint[]) order by entity_no;

-- name: graph_touched
-- Entities that came, went or have another name or degree at a number, and those whose relations it bore or ended, packed
-- likewise.
select coalesce(string_agg(int8send(entity_no), ''), '') from (
    select entity_no from (select entity_no, name, degree from entity where corpus_id = $1 and born = $2) as born
    full join (select entity_no, name, degree from entity where corpus_id = $1 and died = $2) as died using (entity_no)
    where (born.name, born.degree) is distinct from (died.name, died.degree)
    union select source_no from relation where corpus_id = $1 and born = $2
    union select target_no from relation where corpus_id = $1 and born = $2
    union select source_no from relation where corpus_id = $1 and died = $2
    union select target_no from relation where corpus_id = $1 and died = $2
) as touched;

-- name: grouped_alike
-- Whether the current generation was made by a run that groups as these settings say; no row if that is not known. Of what a
-- run was asked for and noted, that counts which is asked about.
select jsonb_build_object(
    'graph_indexing', r.payload #> '{settings,graph_indexing}', 'graph_storage', r.payload #> '{settings,graph_storage}',
    'clustering', r.result -> 'clustering'
) @> $2::jsonb
from corpus c
join generation g on g.corpus_id = c.corpus_id and g.number = c.current_generation
join run r on r.run_id = g.run_id
where c.corpus_id = $1;

-- name: changed_nodes
-- Entities that came, went or have another name at the number, and whether any relation touches them.
select entity_no,
    exists (select from relation r where r.corpus_id = $1 and r.source_no = entity_no and r.died is null)
    or exists (select from relation r where r.corpus_id = $1 and r.target_no = entity_no and r.died is null) as related
from (select entity_no, name from entity where corpus_id = $1 and born = $2) as born
full join (select entity_no, name from entity where corpus_id = $1 and died = $2) as died using (entity_no)
where born.name is distinct from died.name;

-- name: graph_edges
-- All relations that it sees, packed likewise: source, target, evidence.
select coalesce(string_agg(int8send(source_no) || int8send(target_no) || int8send(evidence), ''), '')
from relation where corpus_id = $1 and died is null;

-- name: stored_paths
-- Memberships as they were before this number was begun: each path with who has it, packed likewise.
select path, string_agg(int8send(entity_no), '') as entities from membership
where corpus_id = $1 and born < $2 and (died is null or died >= $2) group by path;

-- name: paths_among
-- The same of a few.
select path, string_agg(int8send(entity_no), '') as entities from membership
where corpus_id = $1 and born < $2 and (died is null or died >= $2) and entity_no = any($3::bigint[]) group by path;

-- name: communities_among
-- The same of these communities.
select community_id, level, parent, size, name, summary from community
where corpus_id = $1 and born < $2 and (died is null or died >= $2) and community_id = any($3::bigint[]);

-- name: stored_communities
-- Communities as they were before this number was begun.
select community_id, level, parent, size, name, summary from community
where corpus_id = $1 and born < $2 and (died is null or died >= $2);

-- name: reset_communities
-- Forget what an earlier attempt wrote at this number.
with a as (delete from membership where corpus_id = $1 and born = $2),
     b as (update membership set died = null where corpus_id = $1 and died = $2),
     c as (delete from community where corpus_id = $1 and born = $2)
update community set died = null where corpus_id = $1 and died = $2;

-- name: end_memberships
-- End the live memberships of these entities.
update membership set died = $2 where corpus_id = $1 and entity_no = any($3::bigint[]) and died is null;

-- name: end_communities
-- End the live versions of these communities.
update community c set died = $2 from unnest($3::bigint[], $4::int[]) as e (community_id, level)
where c.corpus_id = $1 and c.community_id = e.community_id and c.level = e.level and c.died is null;
