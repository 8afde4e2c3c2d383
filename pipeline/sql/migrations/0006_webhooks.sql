-- Webhooks, and the outbox of their deliveries: a row for each webhook that is to be told of the end of a run.

create table webhook (
    webhook_id text primary key,
    tenant text not null references tenant on delete cascade,
    corpus_id int references corpus on delete cascade,      -- null: all corpora of the tenant
    url text not null,
    secret bytea not null check (length(secret) between 24 and 64),
    former_secret bytea,
    former_until timestamptz,                               -- until then messages are signed with both
    kinds text[] not null check (cardinality(kinds) > 0),
    events text[] not null check (cardinality(events) > 0),
    enabled boolean not null default true,
    disabled_reason text not null default '',
    created_at timestamptz not null default clock_timestamp()
);
create index webhook_tenant on webhook (tenant, created_at);
create index webhook_corpus on webhook (corpus_id) where corpus_id is not null;

create table delivery (
    delivery_id bigint generated always as identity primary key,
    webhook_id text not null references webhook on delete cascade,
    run_id text references run on delete cascade,           -- null: a ping
    seq bigint check ((seq is null) = (run_id is null)),
    state text not null default 'pending' check (state in ('pending', 'delivered', 'failed')),
    attempts int not null default 0,                        -- counted when one begins: the fence of its worker, too
    due_at timestamptz not null default clock_timestamp(),  -- of one under way: when another worker may repeat it
    status int,
    error text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    unique (webhook_id, run_id, seq)
);
create index delivery_newest on delivery (webhook_id, delivery_id);
create index delivery_run on delivery (run_id);
create index delivery_due on delivery (due_at) where state = 'pending';
create index delivery_due_of on delivery (webhook_id, due_at) where state = 'pending';
create index delivery_finished on delivery (finished_at) where state <> 'pending';

select secure_table('webhook', 'tenant = current_setting(''sapwood.tenant'', true)'
    ' and (corpus_id is null or corpus_id = any ((select sapwood.tenant_corpora())::int[]))');
select secure_table('delivery', 'exists (select from sapwood.webhook w where w.webhook_id = delivery.webhook_id)');

-- Runs are ended in several places, now and to come: what they have in common is that they write the final event. The rows
-- of webhooks are held, so that one that is being deleted is gone before, or stays until the run has ended.
create function enqueue_deliveries() returns trigger language plpgsql as $$
begin
    insert into sapwood.delivery (webhook_id, run_id, seq)
    select w.webhook_id, new.run_id, new.seq
    from sapwood.run r
    join sapwood.corpus c on c.corpus_id = r.corpus_id
    join sapwood.webhook w on w.tenant = c.tenant
    where r.run_id = new.run_id and w.enabled and (w.corpus_id is null or w.corpus_id = c.corpus_id)
        and r.kind = any (w.kinds) and new.body ->> 'type' = any (w.events)
    for key share of w;
    return null;
end
$$;

create trigger event_ends_run after insert on event for each row
when (new.body ->> 'type' in ('promoted', 'unchanged', 'completed', 'failed', 'cancelled', 'expired'))
execute function enqueue_deliveries();
