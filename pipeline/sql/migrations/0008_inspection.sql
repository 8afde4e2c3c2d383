-- What looking at a graph asks for: who has how many neighbours, where an entity is mentioned first, who is in a community,
-- and entities by public id.

-- `degree` counts the other entities that one has relations with, `first_chunk` is the first by id that mentions it. A
-- version ends where one of them changes, as where anything else of it does.
alter table entity add column degree int not null default 0;
alter table entity add column first_chunk bigint;

-- Columns of their own, of any length: row security lets an index answer for what is compared as it stands, and for no
-- function of it.
alter table membership add column community bigint generated always as (path[cardinality(path)]) stored;
create index membership_community on membership (corpus_id, community);
create index entity_public on entity using hash (entity_id);

-- As before, but for columns that follow from others.
create or replace function revert_rows(the_table text, the_corpus int, the_target int, the_number int) returns int
language plpgsql as $$
declare
    the_scope text;
    columns text;
    copied int;
    killed int;
begin
    select scope into strict the_scope from versioned_tables(the_corpus) where name = the_table;
    select string_agg(format('%I', attname), ', ' order by attnum) into columns from pg_attribute
    where attrelid = the_table::regclass and attnum > 0 and not attisdropped and attgenerated = ''
        and attname not in ('born', 'died');
    execute format(
        'insert into %1$I (born, %3$s) select $2, %3$s from %1$I
         where %2$s and born <= $1 and died > $1 and died < $2', the_table, the_scope, columns)
    using the_target, the_number;
    get diagnostics copied = row_count;
    execute format('update %1$I set died = $2 where %2$s and died is null and born > $1 and born < $2',
        the_table, the_scope) using the_target, the_number;
    get diagnostics killed = row_count;
    return copied + killed;
end
$$;

-- Tell them of what is there, generation by generation. A version that an earlier one sees, too, is split where they differ.
do $$
declare
    one record;
begin
    for one in
        select corpus_id, number, lag(number, 1, 0) over (partition by corpus_id order by number) as previous
        from generation where state in ('current', 'superseded', 'building') order by corpus_id, number
    loop
        with near as (
            select source_no as entity_no, target_no as other from relation
            where corpus_id = one.corpus_id and born <= one.number and (died is null or died > one.number)
            union
            select target_no, source_no from relation
            where corpus_id = one.corpus_id and born <= one.number and (died is null or died > one.number)
        ), related as (
            select entity_no, count(*)::int as degree from near where entity_no <> other group by entity_no
        ), mentioned as (
            select entity_no, min(chunk_id) as first_chunk from mention
            where corpus_id = one.corpus_id and born <= one.number and (died is null or died > one.number)
            group by entity_no
        ), differing as materialized (
            select e.entity_no, e.born, coalesce(related.degree, 0) as degree, mentioned.first_chunk
            from entity e
            left join related on related.entity_no = e.entity_no
            left join mentioned on mentioned.entity_no = e.entity_no
            where e.corpus_id = one.corpus_id and e.born <= one.number and (e.died is null or e.died > one.number)
                and (e.degree, e.first_chunk) is distinct from (coalesce(related.degree, 0), mentioned.first_chunk)
        ), split as (
            insert into entity (
                corpus_id, entity_no, born, died, entity_id, type, key, name, description, mentions, chunks, degree, first_chunk
            )
            select e.corpus_id, e.entity_no, one.number, e.died, e.entity_id, e.type, e.key, e.name, e.description,
                e.mentions, e.chunks, d.degree, d.first_chunk
            from differing d join entity e on e.corpus_id = one.corpus_id and e.entity_no = d.entity_no and e.born = d.born
            where e.born <= one.previous
        ), ended as (
            update entity e set died = one.number from differing d
            where e.corpus_id = one.corpus_id and e.entity_no = d.entity_no and e.born = d.born and e.born <= one.previous
        )
        update entity e set degree = d.degree, first_chunk = d.first_chunk from differing d
        where e.corpus_id = one.corpus_id and e.entity_no = d.entity_no and e.born = d.born and e.born > one.previous;
    end loop;
end
$$;
