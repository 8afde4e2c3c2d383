-- name: read
-- The events of a run after a sequence number.
select e.run_id, e.seq, e.at, e.body, c.name as corpus
from event e join corpus c using (corpus_id)
where e.run_id = $1 and e.seq > $2 order by e.seq limit $3;

-- name: ends
-- The last sequence numbers of these runs, and whether they have ended.
select run_id, seq, finished_at is not null as ended from run where run_id = any($1);

-- name: read_corpus
-- The events of a corpus after a position. Only those below the oldest open transaction: all that can still commit
-- come later, so a reader never passes over one.
select e.run_id, e.seq, e.at, e.body, c.name as corpus, e.corpus_seq
from event e join corpus c using (corpus_id)
where e.corpus_id = $1 and e.corpus_seq > $2
    and e.corpus_seq < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20
order by e.corpus_seq limit $3;

-- name: positions
-- How far these corpora can be read, as in `read_corpus`; what retention removed counts.
select c.corpus_id, greatest(c.event_floor, (
    select e.corpus_seq from event e
    where e.corpus_id = c.corpus_id and e.corpus_seq < pg_snapshot_xmin(pg_current_snapshot())::text::bigint << 20
    order by e.corpus_seq desc limit 1)) as position
from corpus c where c.corpus_id = any($1);

-- name: floor
-- The highest position of a corpus that retention has removed.
select event_floor from corpus where corpus_id = $1;

-- name: unpublished
-- Runs with events that are not in the stream yet.
select run_id from run where seq > published_seq order by run_id limit $1;

-- name: only_me
-- Whether no other process is publishing this run's events now; held to the end of the transaction.
select pg_try_advisory_xact_lock(1398366039, hashtext($1));

-- name: backlog
-- The events of a run that are not in the stream yet.
select e.run_id, e.seq, e.at, e.body, c.name as corpus
from run r join event e using (run_id) join corpus c on c.corpus_id = r.corpus_id
where r.run_id = $1 and e.seq > r.published_seq order by e.seq limit $2;

-- name: published
-- Remember how far the stream is. Not worth a flush to disk: what a crash forgets is published again, to no effect.
update run set published_seq = greatest(published_seq, $2) where run_id = $1
returning set_config('synchronous_commit', 'off', true);

-- name: expire
-- Remove runs that ended more than $2 days ago, with their batches and events, and remember the position reached. One whose
-- end is still to be told to a webhook stays until that is delivered or given up.
with old as (
    select run_id from run
    where corpus_id = $1 and finished_at < clock_timestamp() - make_interval(secs => $2::float8 * 86400)
        and (root_id = run_id or exists (
            select from run root where root.run_id = run.root_id and root.finished_at is not null))
        and not exists (select from delivery d where d.run_id = run.run_id and d.state = 'pending')
    limit $3
), reached as (
    select max(corpus_seq) as position from event where run_id in (select run_id from old)
), marked as (
    update corpus set event_floor = greatest(event_floor, position) from reached
    where corpus_id = $1 and position is not null
)
delete from run where run_id in (select run_id from old);
