-- name: submit
-- Make a run with its first event in one statement; no row if the key is taken or the corpus is missing.
with made as (
    insert into run (run_id, root_id, corpus_id, kind, payload, deadline_at, idempotency_key, seq)
    select $1, $1, corpus_id, $3, $4, clock_timestamp() + make_interval(secs => $5), $6, 1
    from corpus where corpus_id = $2
    on conflict (corpus_id, idempotency_key) where idempotency_key is not null do nothing
    returning *
), said as (
    insert into event (run_id, seq, corpus_id, corpus_seq, body)
    select run_id, 1, corpus_id, (pg_current_xact_id()::text::bigint << 20) + 1, $7 from made
), noted as (
    insert into request (run_id, corpus_id, digest)
    select run_id, corpus_id, $8::bytea from made where $8::bytea is not null
)
select * from made;

-- name: by_key
-- The run that an idempotency key made, with what it was asked for; a run of an older program does not tell.
select run.*, request.digest from run left join request on request.run_id = run.run_id
where run.corpus_id = $1 and run.idempotency_key = $2;

-- name: info
-- One run.
select * from run where run_id = $1;

-- name: info_of
-- One run that people asked for, if it is this tenant's.
select r.* from run r join corpus c using (corpus_id)
where r.run_id = $1 and r.root_id = r.run_id and c.tenant = $2;

-- name: open_runs
-- How many runs of a tenant have not ended; the count stops at $2.
select count(*) from (
    select from run r join corpus c using (corpus_id)
    where c.tenant = $1 and r.root_id = r.run_id and r.state in ('queued', 'running', 'waiting')
    limit $2
) as open;

-- name: list
-- The runs people asked for, newest first; of one corpus, or of all.
select * from run
where run_id = root_id and ($1::int is null or corpus_id = $1)
order by created_at desc, run_id desc limit $2;

-- name: claim
-- Take one unit by compare-and-set on (run, fence, queued). One index run of a corpus builds at a time; a batch of a
-- doomed run and a unit past its deadline are left to the sweeper.
with claimed as (
    update run r
    set state = 'running', owner = $3, lease_until = clock_timestamp() + make_interval(secs => $4),
        building = r.building or r.kind = 'index', seq = r.seq + (r.run_id = r.root_id)::int
    where r.run_id = $1 and r.fence = $2 and r.state = 'queued' and r.kind = any($5)
        and r.queued_at <= clock_timestamp() and not r.cancel_requested and r.doom = ''
        and (r.deadline_at is null or r.deadline_at > clock_timestamp())
        and not (r.kind = 'index' and exists (
            select from run o where o.corpus_id = r.corpus_id and o.building and o.run_id <> r.run_id))
    returning *
), said as (
    insert into event (run_id, seq, corpus_id, corpus_seq, body)
    select run_id, seq, corpus_id, (pg_current_xact_id()::text::bigint << 20) + 1,
        jsonb_build_object('type', 'started', 'fence', fence)
    from claimed where run_id = root_id
)
select *, extract(epoch from deadline_at - clock_timestamp())::float8 as seconds_left from claimed;

-- name: next_unit
-- Take the oldest unit that is due: of one run, or (null) of any. Concurrent callers skip each other's pick.
with picked as (
    select r.run_id from run r
    where r.state = 'queued' and r.queued_at <= clock_timestamp() and ($1::text is null or r.root_id = $1)
        and r.kind = any($4) and not r.cancel_requested and r.doom = ''
        and (r.deadline_at is null or r.deadline_at > clock_timestamp())
        and not (r.kind = 'index' and exists (
            select from run o where o.corpus_id = r.corpus_id and o.building and o.run_id <> r.run_id))
    order by r.queued_at, r.run_id limit 1
    for update skip locked
), claimed as (
    update run r
    set state = 'running', owner = $2, lease_until = clock_timestamp() + make_interval(secs => $3),
        building = r.building or r.kind = 'index', seq = r.seq + (r.run_id = r.root_id)::int
    from picked where r.run_id = picked.run_id
    returning r.*
), said as (
    insert into event (run_id, seq, corpus_id, corpus_seq, body)
    select run_id, seq, corpus_id, (pg_current_xact_id()::text::bigint << 20) + 1,
        jsonb_build_object('type', 'started', 'fence', fence)
    from claimed where run_id = root_id
)
select *, extract(epoch from deadline_at - clock_timestamp())::float8 as seconds_left from claimed;

-- name: beat
-- Extend a lease and tell whether to stop; no row if the unit has another owner. Not worth a flush to disk:
-- after a crash of the server a lease is shorter by a third, and the fence holds.
update run set lease_until = clock_timestamp() + make_interval(secs => $4)
where run_id = $1 and fence = $2 and owner = $3 and state = 'running'
returning cancel_requested
    or exists (select from run root where root.run_id = run.root_id and root.doom <> '') as stop,
    set_config('synchronous_commit', 'off', true);

-- name: guard
-- The last-but-one statement of a fenced transaction: check ownership, move the checkpoint, and end or park the unit. A
-- root takes its event numbers here, too. From here to the commit a frozen worker holds the lock for 5 s at most.
update run
set step = $5, state = $6, error = $7, generation = coalesce($8, generation), seq = seq + $9, pending = $10,
    owner = case when $6 = 'running' then owner else '' end,
    lease_until = case when $6 = 'running' then clock_timestamp() + make_interval(secs => $11) end,
    building = building and $6 in ('running', 'waiting'),
    finished_at = case when $6 not in ('running', 'waiting') then clock_timestamp() end
where run_id = $1 and fence = $2 and owner = $3 and state = 'running' and step = $4
returning corpus_id, seq, cancel_requested, cancel_reason, set_config('idle_in_transaction_session_timeout', '5000', true);

-- name: touch_root
-- A batch under the lock of its run: take event numbers, count it off if it ended, and doom the run if it failed.
update run
set seq = seq + $2, pending = pending - $3, doom = case when doom = '' then $4 else doom end,
    error = case when error = '' then $5 else error end
where run_id = $1 and state = 'waiting'
returning *;

-- name: say
-- Write events under the numbers that were just taken; $3 is the first.
insert into event (run_id, seq, corpus_id, corpus_seq, body)
select $1, $3 + said.ordinal - 1, $2, (pg_current_xact_id()::text::bigint << 20) + said.ordinal, said.body
from unnest($4::jsonb[]) with ordinality as said (body, ordinal);

-- name: spawn
-- Make the batches of an index run; they inherit its deadline and generation.
insert into run (run_id, root_id, corpus_id, kind, payload, deadline_at, generation)
select $1 || '.' || to_char(part.ordinal, 'FM00000'), $1, run.corpus_id, 'batch', part.payload, run.deadline_at,
    coalesce($3, run.generation)
from run, unnest($2::jsonb[]) with ordinality as part (payload, ordinal)
where run.run_id = $1
returning run_id, fence;

-- name: stop_batches
-- Stop the batches of a doomed run: those in the queue end here and are counted. One whose row is locked is just being
-- committed or ended by somebody else, who will find the doom; waiting for it could deadlock.
with idle as (
    select run_id from run where root_id = $1 and run_id <> $1 and state = 'queued' for update skip locked
), ended as (
    update run set state = 'cancelled', finished_at = clock_timestamp() from idle where run.run_id = idle.run_id
    returning 1
), busy as (
    select run_id from run
    where root_id = $1 and run_id <> $1 and state = 'running' and not cancel_requested for update skip locked
), asked as (
    update run set cancel_requested = true from busy where run.run_id = busy.run_id
)
select count(*) from ended;

-- name: requeue_root
-- All batches are done: queue the run for its next step.
update run set state = 'queued', fence = fence + 1, queued_at = clock_timestamp()
where run_id = $1 and state = 'waiting'
returning fence;

-- name: end_unit
-- End a unit that has no owner (any more); whoever had it is fenced out. A root takes the number of its last event.
update run
set state = $2, error = $3, fence = fence + 1, owner = '', lease_until = null, building = false, doom = '',
    finished_at = clock_timestamp(), seq = seq + (run_id = root_id)::int, crash_count = crash_count + $4
where run_id = $1
returning *;

-- name: waiting_build
-- The index run of a corpus that has waited longest for another to end.
select run_id, fence from run
where corpus_id = $1 and kind = 'index' and state = 'queued' and queued_at <= clock_timestamp()
order by queued_at, run_id limit 1;

-- name: hand_back
-- Put a unit back into the queue, due after $4 seconds; count it as a shutdown ($5) or a retry ($6).
update run
set state = 'queued', fence = fence + 1, owner = '', lease_until = null,
    queued_at = clock_timestamp() + make_interval(secs => $4),
    shutdown_count = shutdown_count + $5, retry_count = retry_count + $6
where run_id = $1 and fence = $2 and owner = $3 and state = 'running'
returning fence;

-- name: lock_run
-- A run under its lock.
select * from run where run_id = $1 for update;

-- name: ask_to_stop
-- Ask the owner of a run, or the owners of its batches, to stop.
update run
set cancel_requested = true, cancel_reason = $2, doom = case when doom = '' and state = 'waiting' then $3 else doom end
where run_id = $1;

-- name: signal_stop
-- Tell the owners at once; the next heartbeat would tell them, too.
select pg_notify('sapwood_stop', $1);

-- name: overdue
-- Units that somebody must end or requeue: an expired lease, a stop that has no owner to obey it, a passed deadline.
select run_id from run where state = 'running' and lease_until < clock_timestamp()
union
select run_id from run where state = 'queued' and cancel_requested
union
select run_id from run where state in ('queued', 'waiting') and doom = '' and deadline_at < clock_timestamp()
union
select b.run_id from run r join run b on b.root_id = r.run_id
where r.state = 'waiting' and r.doom <> '' and b.run_id <> r.run_id and b.state = 'queued'
order by run_id limit $1;

-- name: lock_overdue
-- One of them under its lock, unless another sweeper or its owner has it. The facts are read again here.
select r.*, r.lease_until < clock_timestamp() as lost, coalesce(r.deadline_at < clock_timestamp(), false) as late,
    (select root.doom from run root where root.run_id = r.root_id) as root_doom
from run r where r.run_id = $1 for update of r skip locked;

-- name: requeue_lost
-- The owner of a unit is gone: count a crash and queue it anew; the old owner is fenced out.
update run
set state = 'queued', fence = fence + 1, owner = '', lease_until = null, crash_count = crash_count + 1,
    queued_at = clock_timestamp()
where run_id = $1
returning fence;
