-- What a run was asked for, so that its idempotency key is not taken for another request. A table of its own: programs of
-- the version before hold prepared statements on `run`, which a new column would break while both are at work.

create table request (
    run_id text primary key references run on delete cascade,
    corpus_id int not null references corpus on delete cascade,
    digest bytea not null check (length(digest) = 32)   -- SHA-256 of the request in canonical JSON
);

select secure_table('request', 'corpus_id = any ((select sapwood.tenant_corpora())::int[])');
