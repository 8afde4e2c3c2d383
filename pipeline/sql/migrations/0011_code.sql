-- Code graphs: what a source file says by itself, which belongs to its document, and what came of linking it to the others.

alter table document add column language text;      -- of source code, 'unknown' if nothing here reads it; else null
alter table document add column summary bytea;      -- what it says; null: it is no source code that is read
create index document_born on document using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

-- The newest version holds as long as nothing changes that the file looked at.
create table code_link (
    corpus_id int not null,
    document_id text not null,
    born int not null,
    died int,
    edges jsonb not null,                           -- how many, by kind
    unresolved jsonb not null,                      -- how many references have none, by reason
    primary key (corpus_id, document_id, born)
);
create index code_link_died on code_link (corpus_id, died) where died is not null;

-- What a file looked at, be it there or not: a path, a folder or a name, as a number, since text may be of any length.
create table code_read (
    corpus_id int not null,
    document_id text not null,
    read_no bigint not null,
    born int not null,
    died int
);
create index code_read_no on code_read (corpus_id, read_no);
create index code_read_document on code_read (corpus_id, document_id);
create index code_read_died on code_read (corpus_id, died) where died is not null;
create index code_read_born on code_read using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

-- What a file hands to parameters of functions in another file, the receiver; `read_no` is the number of that one's path.
create table code_handed (
    corpus_id int not null,
    document_id text not null,
    receiver text not null,
    read_no bigint not null,
    function text not null,
    parameter text not null,
    value text not null,
    born int not null,
    died int
);
create index code_handed_no on code_handed (corpus_id, read_no);
create index code_handed_document on code_handed (corpus_id, document_id);
create index code_handed_died on code_handed (corpus_id, died) where died is not null;
create index code_handed_born on code_handed using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

select secure_table(name, 'corpus_id = any ((select sapwood.tenant_corpora())::int[])')
from unnest(array['code_link', 'code_read', 'code_handed']) as name;

create or replace function versioned_tables(the_corpus int) returns table (name text, scope text)
language sql stable as $$
    select unnest(array[
        'document', 'chunk', 'mention', 'fact', 'entity', 'relation', 'membership', 'community',
        'code_link', 'code_read', 'code_handed'
    ]), format('corpus_id = %s', the_corpus)
    union all
    select c.name, 'true' from collection c where c.corpus_id = the_corpus and c.store = 'pgvector'
$$;
