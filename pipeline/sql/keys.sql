-- name: create_tenant
-- Make a tenant where it is missing; a second call changes nothing.
insert into tenant (name) values ($1) on conflict (name) do nothing;

-- name: tenants
-- A tenant, or all by name, with how many corpora and usable keys each has.
select t.name, t.limits, t.created_at,
    (select count(*) from corpus c where c.tenant = t.name)::int as corpora,
    (select count(*) from api_key k where k.tenant = t.name and k.revoked_at is null
        and (k.expires_at is null or k.expires_at > clock_timestamp()))::int as keys
from tenant t where $1::text is null or t.name = $1 order by t.name collate "C";

-- name: set_limits
-- Replace what a tenant's limits differ in from the gateway's own.
update tenant set limits = $2 where name = $1;

-- name: add_key
-- Keep the hash of a new key; no row if there is no such tenant.
insert into api_key (key_id, secret_hash, tenant, name, scopes, expires_at)
select $1, $2, t.name, $4, $5::text[], clock_timestamp() + make_interval(secs => $6::float8) from tenant t where t.name = $3
returning *, false as ended;

-- name: list_keys
-- The keys of a tenant, or of all, oldest first, those that are of no more use too.
select *, revoked_at is not null or coalesce(expires_at <= clock_timestamp(), false) as ended
from api_key where $1::text is null or tenant = $1
order by tenant collate "C", created_at, key_id;

-- name: revoke_key
-- End a key; the time of the first revocation stays.
update api_key set revoked_at = coalesce(revoked_at, clock_timestamp())
where key_id = $1 and ($2::text is null or tenant = $2)
returning *, true as ended;

-- name: find_key
-- A key by its public part, and by the database's clock whether and how long it is good.
select k.key_id, k.tenant, k.scopes, k.secret_hash, t.limits,
    extract(epoch from k.expires_at - clock_timestamp())::float8 as seconds_left,
    k.revoked_at is null and (k.expires_at is null or k.expires_at > clock_timestamp()) as good
from api_key k join tenant t on t.name = k.tenant where k.key_id = $1;

-- name: note_use
-- Note that a key was used, unless another process did so within the minute.
update api_key set last_used_at = clock_timestamp()
where key_id = $1 and (last_used_at is null or last_used_at <= clock_timestamp() - interval '1 minute');
