-- name: has_tenant
-- Whether there is a tenant of this name.
select exists (select from tenant where name = $1);

-- name: create_corpus
-- Make a corpus where it is missing; a second call changes nothing.
insert into corpus (tenant, name, settings) values ($1, $2, $3)
on conflict (tenant, name) do nothing;

-- name: get_corpus
-- One corpus of a tenant by name.
select corpus_id, name, settings, current_generation, created_at from corpus where tenant = $1 and name = $2;

-- name: list_corpora
-- All corpora of a tenant by name, with the counts of their current generations.
select c.name, c.current_generation, c.created_at, g.manifest
from corpus c
left join generation g on g.corpus_id = c.corpus_id and g.number = c.current_generation
where c.tenant = $1
order by c.name;

-- name: set_settings
-- Replace the settings; a run that is under way keeps those it started with.
update corpus set settings = $3 where tenant = $1 and name = $2;

-- name: bury
-- Remember what a corpus that is being deleted may have left in other stores; nothing, if it never used one.
insert into buried (uid, name, collections, graph_stores)
select uid, name, collections, graph_stores from (
    select c.uid, c.name,
        coalesce((
            select jsonb_object_agg(k.name, k.store) from collection k where k.corpus_id = $1 and k.store <> 'pgvector'
        ), '{}') as collections,
        array(
            select distinct store from (
                select g.manifest ->> 'graph_store' as store from generation g where g.corpus_id = $1
                union all
                select r.payload #>> '{settings,graph_storage,backend}' from run r where r.corpus_id = $1
            ) as used where store <> 'postgres'
        ) as graph_stores
    from corpus c where c.corpus_id = $1
) as left_behind where collections <> '{}' or graph_stores <> '{}'
on conflict do nothing;

-- name: delete_corpus
-- Forget the corpus itself; runs, events, outcomes, sources, generations and collections go with it by cascade.
delete from corpus where corpus_id = $1;

-- name: delete_rows
-- Forget every versioned and cached row of a corpus, and its pins.
with a as (delete from document where corpus_id = $1),
     b as (delete from chunk where corpus_id = $1),
     c as (delete from mention where corpus_id = $1),
     d as (delete from fact where corpus_id = $1),
     e as (delete from entity where corpus_id = $1),
     f as (delete from relation where corpus_id = $1),
     g as (delete from membership where corpus_id = $1),
     h as (delete from community where corpus_id = $1),
     i as (delete from embedding_cache where corpus_id = $1),
     j as (delete from extraction_cache where corpus_id = $1),
     k as (delete from code_link where corpus_id = $1),
     l as (delete from code_read where corpus_id = $1),
     m as (delete from code_handed where corpus_id = $1),
     n as (delete from context_cache where corpus_id = $1)
delete from pin where corpus_id = $1;

-- name: drop_collections
-- Drop the physical dense tables of a corpus; the names come from the catalogue of collections, quoted by %I.
select sapwood.drop_collections($1);

-- name: get_sources
-- The remembered sources of a corpus, in the order in which they were given.
select kind, location, include, exclude from source where corpus_id = $1 order by ordinal;

-- name: clear_sources
-- Forget the sources, before the new list is written.
delete from source where corpus_id = $1;

-- name: add_source
-- Remember a source.
insert into source (corpus_id, ordinal, kind, location, include, exclude) values ($1, $2, $3, $4, $5, $6);

-- name: known_documents
-- What the current generation knows of its documents: enough to tell which of them changed.
select d.document_id, d.content_hash, d.recipe, d.size, d.mtime_ns, d.locator, d.chunks
from corpus c
join document d on d.corpus_id = c.corpus_id
    and d.born <= c.current_generation and (d.died is null or d.died > c.current_generation)
where c.corpus_id = $1;

-- name: known_some
-- The same for a few documents.
select d.document_id, d.content_hash, d.recipe, d.size, d.mtime_ns, d.locator, d.chunks
from corpus c
join document d on d.corpus_id = c.corpus_id
    and d.born <= c.current_generation and (d.died is null or d.died > c.current_generation)
where c.corpus_id = $1 and d.document_id = any($2::text[]);

-- name: restat
-- Note the new size and time of files whose content did not change, so that they are not read again next time.
update document d
set size = s.size, mtime_ns = s.mtime_ns, locator = s.locator
from unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[]) as s (document_id, size, mtime_ns, locator)
where d.corpus_id = $1 and d.document_id = s.document_id and d.died is null;

-- name: add_outcomes
-- Account for documents of a run; a document has one outcome.
insert into outcome (run_id, document_id, outcome, reason, chunks)
select $1, o.* from unnest($2::text[], $3::text[], $4::text[], $5::int[]) as o
on conflict (run_id, document_id) do update
set outcome = excluded.outcome, reason = excluded.reason, chunks = excluded.chunks;

-- name: outcome_counts
-- How many documents of a run ended how. Those that its plan found unchanged are one number in its result, so that
-- accounting for them costs nothing; those that a batch found unchanged have rows.
select outcome, sum(documents)::int as documents from (
    select outcome, count(*) as documents from outcome where run_id = $1 group by outcome
    union all
    select 'unchanged', (result ->> 'unchanged')::int from run where run_id = $1 and (result ->> 'unchanged')::int > 0
) as counted group by outcome order by outcome;

-- name: notable_outcomes
-- The documents of a run that were not simply indexed or unchanged, by id.
select document_id, outcome, reason from outcome
where run_id = $1 and (outcome not in ('indexed', 'unchanged') or reason <> '')
order by document_id collate "C" limit $2;

-- name: outcomes
-- A page of the accounting of a run, by document id, perhaps of one outcome only.
select document_id, outcome, reason, chunks from outcome
where run_id = $1 and document_id collate "C" > $2 and ($3::text is null or outcome = $3)
order by document_id collate "C" limit $4;

-- name: set_result
-- Keep what a unit found out beside its rows.
update run set result = $2 where run_id = $1;

-- name: batch_results
-- What the batches of an index run found out.
select result from run where root_id = $1 and run_id <> $1 and result is not null;

-- name: run_result
-- What a run found out.
select result from run where run_id = $1;

-- name: repositories
-- Where the repositories lie that are sources of a corpus, or of an index run that has not ended (busy).
with unended as materialized (
    select corpus_id, payload -> 'sources' as sources from run
    where kind = 'index' and state in ('queued', 'running', 'waiting')
)
select location, bool_or(busy) as busy from (
    select s.location, exists (select from unended u where u.corpus_id = s.corpus_id) as busy from source s
    where s.kind = 'git'
    union all
    select one ->> 'location', true from unended, jsonb_path_query(sources, '$[*] ? (@.kind == "git")') as one
) as named group by location;

-- name: current_manifest
-- The manifest of the generation that readers of a corpus see now.
select g.manifest from corpus c join generation g on g.corpus_id = c.corpus_id and g.number = c.current_generation
where c.corpus_id = $1;

-- name: touched
-- Whether a generation in the making differs from the current one, or is the first.
select c.current_generation is null
    or exists (select from document where corpus_id = $1 and born = $2)
    or exists (select from document where corpus_id = $1 and died = $2)
from corpus c where c.corpus_id = $1;

-- name: withdraw
-- Give up a generation that would be the same as the current one.
update generation set state = 'aborted' where corpus_id = $1 and number = $2 and state = 'building';

-- name: live_chunks
-- How many chunks the newest rows of a corpus hold, from its documents.
select coalesce(sum(chunks), 0)::int from document where corpus_id = $1 and died is null;

-- name: communities
-- The communities of a generation, largest first.
select community_id, level, size, name, summary from community
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
order by size desc, name collate "C", community_id limit $3;

-- name: expect_many
-- If at least $3 chunks were born at the number, have this transaction hash and sort rather than look up row by row: the
-- planner's guesses about rows that it has not seen yet, above all of a new corpus, are so low that it would compare each
-- with each. Returns a row where that is so.
select set_config('enable_nestloop', 'off', true)
where (select count(*) from (select from chunk where corpus_id = $1 and born = $2 limit $3) as found) >= $3;

-- name: analyze
-- Tell the planner about the rows that a run wrote.
analyze (skip_locked) document, chunk, mention, fact, entity, relation, code_read;
