-- Tenants, and the keys with which their programs come to the gateway. A corpus belongs to a tenant that exists.

-- The rule for names is checked where tenants are made: those of corpora that are there already are taken as they are.
create table tenant (
    name text primary key,
    limits jsonb not null default '{}',         -- what differs from the gateway's own limits
    created_at timestamptz not null default now()
);

insert into tenant (name) select tenant from corpus union select 'default';

alter table corpus add constraint corpus_tenant foreign key (tenant) references tenant;

create table api_key (
    key_id text primary key,                    -- the public part of the key
    tenant text not null references tenant,
    name text not null,
    scopes text[] not null check (cardinality(scopes) > 0),
    secret_hash bytea not null check (length(secret_hash) = 32),
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);
create index api_key_tenant on api_key (tenant, created_at);
