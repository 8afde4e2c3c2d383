-- name: one_snapshot
-- Everything that follows is read as of one moment; nothing that is reclaimed meanwhile is missed.
set transaction isolation level repeatable read, read only;

-- name: header
-- The generation that is exported.
select c.name, g.manifest from generation g join corpus c using (corpus_id)
where g.corpus_id = $1 and g.number = $2 and g.state in ('current', 'superseded');

-- name: documents
-- Documents by id; not where they lie, nor when they were read.
select document_id, encode(content_hash, 'hex') as content_hash, media_type, title, metadata, chars, chunks
from document where corpus_id = $1 and born <= $2 and (died is null or died > $2)
order by document_id collate "C";

-- name: chunks
-- Chunks by document and place, with hashes of their terms and of their vectors as they are stored.
select c.document_id, c.ordinal, c.chunk_id, c.text, c.char_start, c.char_end, c.first_line, c.last_line, c.headings,
    encode(c.text_hash, 'hex') as text_hash, c.length, left(encode(sha256(c.terms), 'hex'), 16) as terms, v.hash as vector
from chunk c left join vector_hashes($3, $2) v on v.chunk_id = c.chunk_id
where c.corpus_id = $1 and c.born <= $2 and (c.died is null or c.died > $2)
order by c.document_id collate "C", c.ordinal;

-- name: mentions
-- Mentions by chunk and all that they say.
select chunk_id, char_start, char_end, entity_no, type, key, surface, origin, description, properties
from mention where corpus_id = $1 and born <= $2 and (died is null or died > $2)
order by chunk_id, char_start, char_end, entity_no, type collate "C", surface collate "C", origin collate "C",
    description collate "C", properties::text collate "C";

-- name: facts
-- Facts by chunk and all that they say.
select chunk_id, char_start, char_end, source_no, target_no, type, confidence, properties
from fact where corpus_id = $1 and born <= $2 and (died is null or died > $2)
order by chunk_id, char_start, char_end, source_no, target_no, type collate "C", confidence, properties::text collate "C";

-- name: entities
-- Entities by number.
select entity_no, entity_id, type, key, name, description, mentions, chunks, properties
from entity where corpus_id = $1 and born <= $2 and (died is null or died > $2) order by entity_no;

-- name: relations
-- Relations by ends and type.
select source_no, target_no, type, weight, evidence, properties
from relation where corpus_id = $1 and born <= $2 and (died is null or died > $2)
order by source_no, target_no, type collate "C";

-- name: memberships
-- The path of each entity from the coarsest community to the finest.
select entity_no, path from membership
where corpus_id = $1 and born <= $2 and (died is null or died > $2) order by entity_no;

-- name: communities
-- Communities by level and id.
select community_id, level, parent, size, name, summary
from community where corpus_id = $1 and born <= $2 and (died is null or died > $2) order by level, community_id;

-- name: sources
-- Source code by path, with the hash of what it says.
select document_id, language, encode(sha256(summary), 'hex') as summary from document
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and language is not null
order by document_id collate "C";

-- name: links
-- What linking the source files counted, looked at and handed on.
select l.document_id, l.edges, l.unresolved,
    (select encode(sha256(coalesce(string_agg(int8send(r.read_no) || r.asked, '' order by r.read_no), '')), 'hex') from code_read r
     where r.corpus_id = $1 and r.document_id = l.document_id and r.born <= $2 and (r.died is null or r.died > $2)) as reads,
    (select coalesce(jsonb_agg(jsonb_build_array(h.function, h.parameter, h.value)
        order by h.function collate "C", h.parameter collate "C", h.value collate "C"), '[]') from code_handed h
     where h.corpus_id = $1 and h.document_id = l.document_id and h.born <= $2 and (h.died is null or h.died > $2)) as handed
from code_link l where l.corpus_id = $1 and l.born <= $2 and (l.died is null or l.died > $2)
order by l.document_id collate "C";
