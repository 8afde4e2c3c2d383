-- name: current
-- The current generation of a corpus by name, and its settings: the one read of a query that finds its pin in place.
select corpus_id, current_generation, settings from corpus where tenant = $1 and name = $2;

-- name: take_pin
-- Pin a generation that can still be read; no row: it is being reclaimed. The shared lock and the collector's exclusive one
-- on the same row keep the two apart.
with held as (
    select manifest from generation
    where corpus_id = $1 and number = $2 and state in ('current', 'superseded') for share
), pinned as (
    insert into pin (corpus_id, number, holder, lease_until)
    select $1, $2, $3, clock_timestamp() + make_interval(secs => $4) from held
    on conflict (corpus_id, number, holder) do update set lease_until = excluded.lease_until
)
select manifest from held;

-- name: renew_pins
-- Extend the leases of these pins and return those that were still there.
update pin p set lease_until = clock_timestamp() + make_interval(secs => $4)
from unnest($2::int[], $3::int[]) as mine (corpus_id, number)
where p.corpus_id = mine.corpus_id and p.number = mine.number and p.holder = $1
returning p.corpus_id, p.number;

-- name: drop_pins
-- Give these pins back.
delete from pin p using unnest($2::int[], $3::int[]) as mine (corpus_id, number)
where p.corpus_id = mine.corpus_id and p.number = mine.number and p.holder = $1;
