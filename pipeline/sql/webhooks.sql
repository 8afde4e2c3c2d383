-- name: create
-- Make a webhook for a tenant, or for one corpus of it; no row if there is no such tenant or corpus, or no more may be.
insert into webhook (webhook_id, tenant, corpus_id, url, secret, kinds, events)
select $1, t.name, c.corpus_id, $4, $5, $6::text[], $7::text[]
from tenant t left join corpus c on c.tenant = t.name and c.name = $3
where t.name = $2 and ($3::text is null or c.corpus_id is not null)
    and (select count(*) from webhook w where w.tenant = t.name) < $8
returning webhook_id;

-- name: webhooks
-- The webhooks of a tenant, oldest first, or the one of this id. The secrets stay where they are.
select w.webhook_id, w.tenant, c.name as corpus, w.url, w.kinds, w.events, w.enabled, w.disabled_reason, w.created_at,
    case when w.former_until > clock_timestamp() then w.former_until end as rotating_until
from webhook w left join corpus c on c.corpus_id = w.corpus_id
where w.tenant = $1 and ($2::text is null or w.webhook_id = $2) order by w.created_at, w.webhook_id;

-- name: delete
-- Remove a webhook with its deliveries.
delete from webhook where tenant = $1 and webhook_id = $2;

-- name: rotate
-- Sign with a new secret, and for $4 seconds with the former one too.
update webhook
set secret = $3, former_secret = secret, former_until = clock_timestamp() + make_interval(secs => $4)
where tenant = $1 and webhook_id = $2;

-- name: enable
-- Let a webhook be told of what ends from now on.
update webhook set enabled = true, disabled_reason = '' where tenant = $1 and webhook_id = $2;

-- name: disable
-- Tell a webhook nothing more, and give up what it has not been told yet; the first reason stays.
with ended as (
    update webhook set enabled = false, disabled_reason = case when enabled then $3 else disabled_reason end
    where ($1::text is null or tenant = $1) and webhook_id = $2
    returning webhook_id
), given_up as (
    update delivery d
    set state = 'failed', error = 'the webhook was disabled', finished_at = clock_timestamp()
    from ended where d.webhook_id = ended.webhook_id and d.state = 'pending'
)
select webhook_id from ended;

-- name: ping
-- Enqueue a message of no run, for a webhook that is enabled.
insert into delivery (webhook_id)
select webhook_id from webhook where tenant = $1 and webhook_id = $2 and enabled for key share
returning delivery_id;

-- name: deliveries
-- The newest deliveries of a webhook, or the one of this id.
select d.*, e.body ->> 'type' as type
from webhook w join delivery d using (webhook_id) left join event e on e.run_id = d.run_id and e.seq = d.seq
where w.tenant = $1 and w.webhook_id = $2 and ($3::bigint is null or d.delivery_id = $3)
order by d.delivery_id desc limit $4;

-- name: retry
-- Have a delivery made (again) at once, with all its attempts before it, to a webhook that is enabled.
update delivery d
set state = 'pending', attempts = case when d.state = 'pending' then d.attempts else 0 end,
    due_at = clock_timestamp(), finished_at = null
from webhook w
where w.webhook_id = d.webhook_id and w.tenant = $1 and w.webhook_id = $2 and d.delivery_id = $3 and w.enabled
returning d.delivery_id;

-- name: claim
-- Take deliveries that are due, each until $6 seconds from now. This process has $2 of the webhooks $1 at work; a webhook may
-- have $3, all webhooks of a tenant $4, and $5 may be added in all: first for the tenants with the fewest, so that nobody's
-- slow receivers hold up another's; in no order of a tenant's webhooks, so that none is always the last. The time is that of
-- the statement, which is a transaction of its own: an index finds what is due by it.
with busy as (
    select w.tenant, w.webhook_id, b.deliveries
    from unnest($1::text[], $2::int[]) as b (webhook_id, deliveries) join webhook w using (webhook_id)
), open as (
    select w.webhook_id, w.tenant, $3 - coalesce(busy.deliveries, 0) as room,
        coalesce((select sum(b.deliveries) from busy b where b.tenant = w.tenant), 0) as at_work,
        row_number() over (partition by w.tenant order by random()) as place
    from webhook w left join busy using (webhook_id)
    where w.enabled and coalesce(busy.deliveries, 0) < $3
        and exists (select from delivery where state = 'pending' and due_at <= now())
        and exists (
            select from delivery d where d.webhook_id = w.webhook_id and d.state = 'pending' and d.due_at <= now())
), found as (
    select one.delivery_id, next.at_work + row_number() over (partition by next.tenant order by one.due_at, one.delivery_id) as turn
    from (select * from open where at_work + place <= $4 order by at_work + place, random() limit $5) as next
    cross join lateral (
        select d.delivery_id, d.due_at from delivery d
        where d.webhook_id = next.webhook_id and d.state = 'pending' and d.due_at <= now()
        order by d.due_at, d.delivery_id limit next.room
        for update skip locked
    ) as one
), due as (
    select delivery_id from found where turn <= $4 order by turn, random() limit $5
), taken as (
    update delivery d set attempts = d.attempts + 1, due_at = clock_timestamp() + make_interval(secs => $6)
    from due where d.delivery_id = due.delivery_id
    returning d.*
)
select t.delivery_id, t.attempts, t.run_id, t.seq, t.created_at, w.webhook_id, w.url, w.secret,
    case when w.former_until > clock_timestamp() then w.former_secret end as former_secret,
    e.at, e.body, c.name as corpus
from taken t join webhook w using (webhook_id)
left join event e on e.run_id = t.run_id and e.seq = t.seq
left join corpus c on c.corpus_id = e.corpus_id;

-- name: settle
-- Note how an attempt ended; no row where it is another's by now, or ended otherwise.
update delivery
set state = $3, status = $4, error = $5, due_at = clock_timestamp() + make_interval(secs => $6),
    finished_at = case when $3 <> 'pending' then clock_timestamp() end
where delivery_id = $1 and attempts = $2 and state = 'pending'
returning delivery_id;

-- name: hold
-- Put off by $2 seconds what is due now for a webhook.
update delivery set due_at = now() + make_interval(secs => $2)
where webhook_id = $1 and state = 'pending' and due_at <= now();

-- name: forget
-- Remove deliveries that ended more than $1 seconds ago, at most $2; those of runs go with their runs, if that is sooner.
delete from delivery where delivery_id in (
    select delivery_id from delivery
    where state <> 'pending' and finished_at < clock_timestamp() - make_interval(secs => $1) limit $2
    for update skip locked
);
