-- Graphs that agents may ask: a name of a tenant, the corpus behind it, and the allow-list through which it is seen.

create table knowledge_source (
    tenant text not null references tenant on delete cascade,
    name text not null,
    corpus_id int not null references corpus on delete cascade,
    description text not null,
    graph_schema jsonb not null,
    limits jsonb not null,
    demand_disclosure boolean not null,
    secret bytea not null check (length(secret) >= 16),     -- proves that types were described; the same in all processes
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    primary key (tenant, name)
);
create index knowledge_source_corpus on knowledge_source (corpus_id);

select secure_table('knowledge_source', 'tenant = current_setting(''sapwood.tenant'', true)'
    ' and corpus_id = any ((select sapwood.tenant_corpora())::int[])');
