-- name: allowed_chunks
-- The chunks of a generation whose documents pass a filter, ascending, packed as big-endian numbers. Containment finds
-- them by the index; equality of each key then makes the match exact where a value is itself a list or an object.
select coalesce(string_agg(int8send(c.chunk_id), ''::bytea order by c.chunk_id), '')
from document d
join chunk c on c.corpus_id = d.corpus_id and c.document_id = d.document_id
    and c.born <= $2 and (c.died is null or c.died > $2)
where d.corpus_id = $1 and d.born <= $2 and (d.died is null or d.died > $2)
    and ($3::text is null or d.document_id = $3)
    and ($4::text is null or d.source_location = $4)
    and d.metadata @> $5::jsonb
    and not exists (select 1 from jsonb_each($5::jsonb) f where d.metadata -> f.key is distinct from f.value);

-- name: chunks
-- What an answer shows of these chunks, as the generation sees them.
select c.chunk_id, c.document_id, c.ordinal, c.text, c.text_hash, c.first_line, c.last_line, c.headings, d.title, d.metadata
from chunk c
join document d on d.corpus_id = c.corpus_id and d.document_id = c.document_id
    and d.born <= $2 and (d.died is null or d.died > $2)
where c.corpus_id = $1 and c.chunk_id = any($3::bigint[]) and c.born <= $2 and (c.died is null or c.died > $2);

-- name: neighbors
-- The chunks of the same documents within a window of these places, in document order; those at the places included.
select distinct on (c.document_id collate "C", c.ordinal)
    c.chunk_id, c.document_id, c.ordinal, c.text, c.text_hash, c.first_line, c.last_line, c.headings, d.title, d.metadata
from unnest($3::text[], $4::int[]) as p (document_id, ordinal)
join chunk c on c.corpus_id = $1 and c.document_id = p.document_id and c.ordinal between p.ordinal - $5 and p.ordinal + $5
    and c.born <= $2 and (c.died is null or c.died > $2)
join document d on d.corpus_id = c.corpus_id and d.document_id = c.document_id
    and d.born <= $2 and (d.died is null or d.died > $2)
order by c.document_id collate "C", c.ordinal;

-- name: outlines
-- Where the first chunks of these documents stand, in the order of documents and of their text.
select c.chunk_id, c.document_id, d.title, c.headings
from chunk c
join document d on d.corpus_id = c.corpus_id and d.document_id = c.document_id
    and d.born <= $2 and (d.died is null or d.died > $2)
where c.corpus_id = $1 and c.document_id = any($3::text[]) and c.born <= $2 and (c.died is null or c.died > $2)
order by c.document_id collate "C", c.ordinal
limit $4;

-- name: values
-- The text or number under one key of the metadata of each document that has one.
select document_id, metadata -> $3::text as value
from document
where corpus_id = $1 and born <= $2 and (died is null or died > $2)
    and jsonb_typeof(metadata -> $3::text) in ('string', 'number');
