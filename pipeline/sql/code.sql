-- name: changed_files
-- Source files that a number bore or ended; where it did both, with what they said and say.
select document_id as path, o.document_id is not null as was, n.document_id is not null as is,
    case when n.document_id is not null then o.summary end as old, case when o.document_id is not null then n.summary end as new,
    (o.chunks > 0) is distinct from (n.chunks > 0) as filled
from (select document_id, chunks, summary from document where corpus_id = $1 and born = $2 and summary is not null) as n
full join (select document_id, chunks, summary from document where corpus_id = $1 and died = $2 and summary is not null) as o
    using (document_id)
order by document_id collate "C";

-- name: source_files
-- All source files of the generation in the making, and whether there is text in them.
select document_id, chunks > 0 as filled from document
where corpus_id = $1 and died is null and summary is not null order by document_id collate "C";

-- name: readers
-- Files that looked at one of these, and what they asked there.
select document_id, read_no, asked from code_read where corpus_id = $1 and read_no = any($2::bigint[]) and died is null;

-- name: looked_at
-- What these files looked at, together.
select distinct read_no from code_read where corpus_id = $1 and document_id = any($2::text[]) and died is null;

-- name: reads
-- What these files looked at.
select document_id, read_no, asked from code_read where corpus_id = $1 and document_id = any($2::text[]) and died is null;

-- name: summaries
-- What these files say.
select document_id, summary from document
where corpus_id = $1 and document_id = any($2::text[]) and died is null and summary is not null;

-- name: handed_before
-- What these files handed to others before the number was begun.
select function, parameter, value, document_id from code_handed
where corpus_id = $1 and document_id = any($3::text[]) and born < $2 and (died is null or died >= $2);

-- name: handed_to
-- What is handed to functions in these files, and by whom.
select function, parameter, value, document_id from code_handed
where corpus_id = $1 and read_no = any($2::bigint[]) and died is null;

-- name: handed_by
-- What these files hand to others.
select document_id, receiver, function, parameter, value from code_handed
where corpus_id = $1 and document_id = any($2::text[]) and died is null;

-- name: chunk_lines
-- The chunks of these files in order, with their last lines.
select document_id, chunk_id, last_line from chunk
where corpus_id = $1 and document_id = any($2::text[]) and died is null order by document_id collate "C", ordinal;

-- name: edges
-- The edges in these chunks that came of linking. No join: of a corpus that is new, the planner knows nothing, and would
-- compare each chunk with all edges.
select chunk_id, source_no, target_no, type, (properties ->> 'line')::int as line
from fact where corpus_id = $1 and chunk_id = any($2::bigint[]) and died is null and type <> 'contains';

-- name: references
-- The entities that these chunks mention.
select chunk_id, entity_no, key from mention where corpus_id = $1 and chunk_id = any($2::bigint[]) and died is null;

-- name: links
-- What is known of these files.
select document_id, edges, unresolved from code_link
where corpus_id = $1 and document_id = any($2::text[]) and died is null;

-- name: end_edges
-- End these edges at a number.
update fact f set died = $2 from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::text[])
    as e (chunk_id, source_no, target_no, type)
where f.corpus_id = $1 and f.chunk_id = e.chunk_id and f.source_no = e.source_no and f.target_no = e.target_no
    and f.type = e.type and f.died is null and f.born < $2;

-- name: end_references
-- End these mentions at a number.
update mention m set died = $2 from unnest($3::bigint[], $4::bigint[]) as e (chunk_id, entity_no)
where m.corpus_id = $1 and m.chunk_id = e.chunk_id and m.entity_no = e.entity_no and m.died is null and m.born < $2;

-- name: renew_mentions
-- Have the mentions that these chunks keep begin anew at a number.
with old as (
    update mention set died = $2
    where corpus_id = $1 and chunk_id = any($3::bigint[]) and died is null and born < $2 returning *
)
insert into mention (
    corpus_id, chunk_id, entity_no, born, type, key, surface, char_start, char_end, origin, description, properties
)
select corpus_id, chunk_id, entity_no, $2, type, key, surface, char_start, char_end, origin, description, properties
from old;

-- name: renew_chunks
-- Have these chunks begin anew at a number: who follows generations learns of their mentions with them.
with old as (
    update chunk set died = $2
    where corpus_id = $1 and chunk_id = any($3::bigint[]) and died is null and born < $2 returning *
)
insert into chunk (
    corpus_id, chunk_id, born, document_id, ordinal, text, char_start, char_end, first_line, last_line, headings, text_hash,
    passage_hash, terms, length
)
select corpus_id, chunk_id, $2, document_id, ordinal, text, char_start, char_end, first_line, last_line, headings, text_hash,
    passage_hash, terms, length
from old;

-- name: end_links
-- End what is known of these files.
update code_link set died = $2 where corpus_id = $1 and document_id = any($3::text[]) and died is null and born < $2;

-- name: end_reads
-- End some of what files looked at.
update code_read r set died = $2 from unnest($3::text[], $4::bigint[]) as e (document_id, read_no)
where r.corpus_id = $1 and r.document_id = e.document_id and r.read_no = e.read_no and r.died is null and r.born < $2;

-- name: end_handed
-- End some of what files hand to others.
update code_handed h set died = $2 from unnest($3::text[], $4::text[], $5::text[], $6::text[])
    as e (document_id, function, parameter, value)
where h.corpus_id = $1 and h.document_id = e.document_id and h.function = e.function and h.parameter = e.parameter
    and h.value = e.value and h.died is null and h.born < $2;

-- name: figures
-- The account of a code graph, as the generation in the making has it.
select 'files' as part, language as name, count(*) as rows from document
where corpus_id = $1 and died is null and language is not null group by language
union all
select 'unread', u.key, sum(u.value::int) from document d cross join jsonb_each_text(d.metadata -> 'unread') as u
where d.corpus_id = $1 and d.died is null and d.summary is not null group by u.key
union all
select 'edges', e.key, sum(e.value::int) from code_link l cross join jsonb_each_text(l.edges) as e
where l.corpus_id = $1 and l.died is null group by e.key
union all
select 'unresolved', e.key, sum(e.value::int) from code_link l cross join jsonb_each_text(l.unresolved) as e
where l.corpus_id = $1 and l.died is null group by e.key
order by part, name;
