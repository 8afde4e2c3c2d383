-- name: standing
-- What a scrape shows of the whole installation, as (gauge, kind, state, value). Bounded: the $1 units that have been queued
-- longest, what is at work now, and of each corpus the numbers that it keeps and 20 more; indexes lead to all of them.
with queued as (
    select r.kind, r.queued_at, case
        when r.queued_at > clock_timestamp() then 'later'
        when r.kind = 'index' and exists (
            select from run o where o.corpus_id = r.corpus_id and o.building and o.run_id <> r.run_id) then 'blocked'
        else 'due' end as state
    from (
        select run_id, corpus_id, kind, queued_at from run where state = 'queued' order by queued_at limit $1
    ) as r
), running as (
    select kind, cancel_requested, lease_until from run where state = 'running'
), readable as (
    select g.state, c.keep, row_number() over newest as place, lag(g.published_at, c.keep) over newest as displaced_at
    from (
        select corpus_id, last_generation, coalesce((settings -> 'retention' ->> 'generations')::int, 2) as keep from corpus
    ) as c
    cross join lateral (  -- `offset` keeps it apart: else the whole table is read where there are many corpora
        select corpus_id, number, state, published_at from generation
        where corpus_id = c.corpus_id and number > c.last_generation - c.keep - 20 and state in ('current', 'superseded')
        offset 0
    ) as g
    window newest as (partition by g.corpus_id order by (g.state = 'current') desc, g.number desc)
)
select 'queue_units' as gauge, kind, state, count(*)::float8 as value from queued group by kind, state
union all
select 'queue_oldest_due_seconds', kind, '', extract(epoch from clock_timestamp() - min(queued_at))::float8
from queued where state = 'due' group by kind
union all
select 'active_units', kind, 'running', count(*)::float8 from running group by kind
union all
select 'active_units', kind, 'waiting', count(*)::float8 from run where building and state = 'waiting' group by kind
union all
select 'leases_expired', '', '', count(*)::float8 from running where lease_until < clock_timestamp()
union all
select 'cancels_pending', '', '', count(*)::float8
from (
    select from running where cancel_requested
    union all
    (select from run where state = 'queued' and cancel_requested limit $1)
) as stopping
union all
select 'webhooks_due', '', '', count(*)::float8
from (select from delivery where state = 'pending' and due_at <= now() limit $1) as owed
union all
select 'webhooks_oldest_due_seconds', '', '',
    coalesce(extract(epoch from clock_timestamp() - min(due_at)), 0)::float8
from delivery where state = 'pending' and due_at <= now()
union all
select 'pins', '', '', count(*)::float8 from pin where lease_until > clock_timestamp()
union all
select 'garbage_lag_seconds', '', '', coalesce(extract(epoch from clock_timestamp() - min(displaced_at)), 0)::float8
from readable where state = 'superseded' and place > keep;
