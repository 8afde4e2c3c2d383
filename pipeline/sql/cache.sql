-- name: vectors
-- Which of these texts have a vector of this model.
select text_hash, vector from embedding_cache
where corpus_id = $1 and fingerprint = $2 and text_hash = any($3::bytea[]);

-- name: put_vectors
-- Keep vectors; the first one of a text stays. Sorted, so that two writers lock rows in one order.
insert into embedding_cache (corpus_id, fingerprint, text_hash, vector)
select $1, $2, new.text_hash, new.vector from unnest($3::bytea[], $4::bytea[]) as new (text_hash, vector)
order by new.text_hash
on conflict do nothing;

-- name: extractions
-- Which of these texts were read by this extractor.
select text_hash, extraction::text as extraction from extraction_cache
where corpus_id = $1 and fingerprint = $2 and text_hash = any($3::bytea[]);

-- name: put_extractions
-- Keep extractions; the first one of a text stays. Sorted as above.
insert into extraction_cache (corpus_id, fingerprint, text_hash, extraction)
select $1, $2, new.text_hash, new.extraction::jsonb
from unnest($3::bytea[], $4::text[]) as new (text_hash, extraction)
order by new.text_hash
on conflict do nothing;

-- name: contexts
-- Which of these places were described by this model.
select place_hash, context from context_cache
where corpus_id = $1 and fingerprint = $2 and place_hash = any($3::bytea[]);

-- name: put_context
-- Keep what was said of a place; the first answer stays.
insert into context_cache (corpus_id, fingerprint, place_hash, passage_hash, context)
values ($1, $2, $3, $4, $5)
on conflict do nothing;
