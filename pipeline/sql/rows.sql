-- name: any_rows
-- Whether these documents have rows that must end: most batches write documents that are new.
select exists (
    select from chunk where corpus_id = $1 and document_id = any($3::text[]) and (died is null or born = $2)
) or exists (
    select from document where corpus_id = $1 and document_id = any($3::text[]) and (died is null or born = $2)
);

-- name: kill_documents
-- End the versions of these documents and of all that belongs to them at a number, and return their chunks.
-- What the number itself bore (a batch that is written again) is deleted.
with gone as (
    delete from chunk where corpus_id = $1 and document_id = any($3::text[]) and born = $2 returning chunk_id
), a as (
    delete from document where corpus_id = $1 and document_id = any($3::text[]) and born = $2
), b as (
    delete from mention m using gone where m.corpus_id = $1 and m.chunk_id = gone.chunk_id and m.born = $2
), c as (
    delete from fact f using gone where f.corpus_id = $1 and f.chunk_id = gone.chunk_id and f.born = $2
), d as (
    update document set died = $2
    where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2
), dead as (
    update chunk set died = $2
    where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2
    returning chunk_id
), e as (
    update mention m set died = $2 from dead
    where m.corpus_id = $1 and m.chunk_id = dead.chunk_id and m.died is null and m.born < $2
), f as (
    update fact f set died = $2 from dead
    where f.corpus_id = $1 and f.chunk_id = dead.chunk_id and f.died is null and f.born < $2
), g as (
    update code_link set died = $2
    where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2
), h as (
    update code_read set died = $2
    where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2
), i as (
    update code_handed set died = $2
    where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2
)
select coalesce(array_agg(chunk_id), '{}') from (select chunk_id from gone union select chunk_id from dead) as both_kinds;

-- name: kill_vectors
-- End the vectors of these chunks at a number, in every collection of the corpus.
select kill_vectors($1, $2, $3::bigint[]);
