-- The core: corpora, sources, runs with their event log, generations with their pins, and the versioned rows of a corpus.
-- A versioned row is visible to generation g when born <= g and (died is null or died > g).

create table corpus (
    corpus_id int generated always as identity primary key,
    tenant text not null default 'default',
    name text not null check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
    settings jsonb not null default '{}',
    current_generation int,
    last_generation int not null default 0,
    event_floor bigint not null default 0,      -- the highest corpus_seq that retention has removed
    created_at timestamptz not null default now(),
    unique (tenant, name)
);

create table source (
    corpus_id int not null references corpus on delete cascade,
    ordinal int not null,
    kind text not null,
    location text not null,
    include text[] not null default '{}',
    exclude text[] not null default '{}',
    primary key (corpus_id, ordinal)
);

create table run (
    run_id text primary key,
    root_id text not null,
    corpus_id int not null references corpus on delete cascade,
    kind text not null,
    state text not null default 'queued',
    fence bigint not null default 1,
    owner text not null default '',
    lease_until timestamptz,
    step int not null default 0,
    pending int not null default 0,             -- batches of an index run that are not done yet
    generation int,
    building boolean not null default false,    -- an index run between its first claim and its end
    payload jsonb not null default '{}',
    result jsonb,
    error text not null default '',
    idempotency_key text,
    deadline_at timestamptz,
    cancel_requested boolean not null default false,
    cancel_reason text not null default '',
    doom text not null default '',              -- the final state a run is bound for once its last batch has stopped
    retry_count int not null default 0,
    crash_count int not null default 0,
    shutdown_count int not null default 0,
    seq bigint not null default 0,              -- the last event; dense, taken under this row's lock
    published_seq bigint not null default 0,    -- the last event the relay copied to the stream
    queued_at timestamptz not null default now(),   -- not to be claimed before
    created_at timestamptz not null default now(),
    finished_at timestamptz
);
create index run_sweep on run (state, lease_until) where state in ('queued', 'running');
create index run_root on run (root_id, state);
create index run_due on run (queued_at) where state = 'queued';
create index run_deadline on run (deadline_at) where deadline_at is not null and state in ('queued', 'waiting');
create index run_doomed on run (run_id) where state = 'waiting' and doom <> '';
create index run_stopping on run (run_id) where state = 'queued' and cancel_requested;
create index run_corpus on run (corpus_id, created_at desc);
create index run_unpublished on run (run_id) where seq > published_seq;
create unique index run_one_build on run (corpus_id) where building;
create unique index run_idempotency on run (corpus_id, idempotency_key) where idempotency_key is not null;

create table event (
    run_id text not null references run on delete cascade,
    seq bigint not null,
    corpus_id int not null,
    -- (transaction id << 20) + ordinal: readers stay below the oldest open transaction, so none is ever skipped
    corpus_seq bigint not null,
    at timestamptz not null default clock_timestamp(),
    body jsonb not null,
    primary key (run_id, seq)
);
create index event_corpus on event (corpus_id, corpus_seq);

create table outcome (
    run_id text not null references run on delete cascade,
    document_id text not null,
    outcome text not null,
    reason text not null default '',
    chunks int not null default 0,
    primary key (run_id, document_id)
);

create table generation (
    corpus_id int not null references corpus on delete cascade,
    number int not null,
    state text not null,                        -- building, current, superseded, aborted, reclaimed
    run_id text not null,
    manifest jsonb,
    created_at timestamptz not null default now(),
    published_at timestamptz,
    primary key (corpus_id, number)
);

create table pin (
    corpus_id int not null,
    number int not null,
    holder text not null,
    lease_until timestamptz not null,
    primary key (corpus_id, number, holder)
);

create table document (
    corpus_id int not null,
    document_id text not null,
    born int not null,
    died int,
    source_location text not null,
    locator text not null,
    content_hash bytea not null,
    recipe bytea not null,
    size bigint,
    mtime_ns bigint,
    media_type text not null,
    title text not null,
    metadata jsonb not null default '{}',
    chars int not null,
    chunks int not null,
    primary key (corpus_id, document_id, born)
);
create index document_died on document (corpus_id, died) where died is not null;
create index document_metadata on document using gin (metadata jsonb_path_ops);

create table chunk (
    corpus_id int not null,
    chunk_id bigint not null,
    born int not null,
    died int,
    document_id text not null,
    ordinal int not null,
    text text not null,
    char_start int not null,
    char_end int not null,
    first_line int not null,
    last_line int not null,
    headings text[] not null default '{}',
    text_hash bytea not null,                   -- of the text: the key of its extraction
    passage_hash bytea not null,                -- of the text below title and headings: the key of its vector
    terms bytea not null,
    length int not null,
    primary key (corpus_id, chunk_id, born)
);
create index chunk_document on chunk (corpus_id, document_id, ordinal);
create index chunk_died on chunk (corpus_id, died) where died is not null;
create index chunk_born on chunk using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table mention (
    corpus_id int not null,
    chunk_id bigint not null,
    entity_no bigint not null,
    born int not null,
    died int,
    type text not null,
    key text not null,
    surface text not null,
    char_start int not null,
    char_end int not null,
    origin text not null,
    description text not null default ''
);
create index mention_chunk on mention (corpus_id, chunk_id);
create index mention_entity on mention (corpus_id, entity_no);
create index mention_died on mention (corpus_id, died) where died is not null;
create index mention_born on mention using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table fact (
    corpus_id int not null,
    chunk_id bigint not null,
    source_no bigint not null,
    target_no bigint not null,
    type text not null,
    born int not null,
    died int,
    confidence real not null,
    char_start int not null,
    char_end int not null
);
create index fact_chunk on fact (corpus_id, chunk_id);
create index fact_pair on fact (corpus_id, source_no, target_no);
create index fact_died on fact (corpus_id, died) where died is not null;
create index fact_born on fact using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table entity (
    corpus_id int not null,
    entity_no bigint not null,
    born int not null,
    died int,
    entity_id text not null,
    type text not null,
    key text not null,
    name text not null,
    description text not null default '',
    mentions int not null,
    chunks int not null,
    primary key (corpus_id, entity_no, born)
);
create index entity_died on entity (corpus_id, died) where died is not null;
create index entity_born on entity using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table relation (
    corpus_id int not null,
    source_no bigint not null,
    target_no bigint not null,
    type text not null,
    born int not null,
    died int,
    weight real not null,
    evidence int not null,
    primary key (corpus_id, source_no, target_no, type, born)
);
create index relation_target on relation (corpus_id, target_no);
create index relation_died on relation (corpus_id, died) where died is not null;
create index relation_born on relation using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table membership (
    corpus_id int not null,
    entity_no bigint not null,
    born int not null,
    died int,
    path bigint[] not null,                     -- community ids from coarsest to finest
    primary key (corpus_id, entity_no, born)
);
create index membership_died on membership (corpus_id, died) where died is not null;
create index membership_born on membership using brin (corpus_id, born) with (pages_per_range = 16, autosummarize = on);

create table community (
    corpus_id int not null,
    community_id bigint not null,
    born int not null,
    died int,
    level int not null,
    parent bigint,
    size int not null,
    name text not null,
    summary text not null,
    primary key (corpus_id, community_id, level, born)
);
create index community_died on community (corpus_id, died) where died is not null;

-- Paid work, by corpus so that no tenant learns from another's timing: never repeated while a version of the text remains.
create table embedding_cache (
    corpus_id int not null,
    fingerprint text not null,
    text_hash bytea not null,
    vector bytea not null,
    primary key (corpus_id, fingerprint, text_hash)
);

create table extraction_cache (
    corpus_id int not null,
    fingerprint text not null,
    text_hash bytea not null,
    extraction jsonb not null,
    primary key (corpus_id, fingerprint, text_hash)
);

-- One row for each physical dense table `dense_<corpus_id>_<fingerprint>`.
create table collection (
    corpus_id int not null references corpus on delete cascade,
    name text not null,
    embedding text not null,
    dimension int not null,
    primary key (corpus_id, name)
);

create function drop_collections(the_corpus int) returns void language plpgsql as $$
declare
    one text;
begin
    for one in select name from collection where corpus_id = the_corpus loop
        execute format('drop table if exists %I', one);
    end loop;
end
$$;
