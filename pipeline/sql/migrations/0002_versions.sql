-- Versions by number, for every table that holds them: the fixed ones and the dense table of each collection of a corpus.
-- Names of dense tables come from the catalogue `collection` alone and are quoted by %I.

create function versioned_tables(the_corpus int) returns table (name text, scope text) language sql stable as $$
    select unnest(array['document', 'chunk', 'mention', 'fact', 'entity', 'relation', 'membership', 'community']),
        format('corpus_id = %s', the_corpus)
    union all
    select c.name, 'true' from collection c where c.corpus_id = the_corpus
$$;

-- Make the physical dense table of a collection where it is missing, and return its name.
create function ensure_collection(the_corpus int, the_name text, the_embedding text, the_dimension int) returns text
language plpgsql as $$
begin
    if the_name !~ format('^dense_%s_[0-9a-f]{12}$', the_corpus) then
        raise check_violation using message = 'not the name of a collection of this corpus';
    end if;
    insert into collection (corpus_id, name, embedding, dimension)
    values (the_corpus, the_name, the_embedding, the_dimension) on conflict do nothing;
    if found then
        execute format(
            'create table %I (chunk_id bigint not null, born int not null, died int, embedding halfvec(%s) not null,
                primary key (chunk_id, born))', the_name, the_dimension);
        if the_dimension <= 3900 then  -- it fits a page: read it without a detour
            execute format('alter table %I alter column embedding set storage plain', the_name);
        end if;
        execute format('create index on %I (died) where died is not null', the_name);
        execute format('create index on %I using brin (born) with (pages_per_range = 16, autosummarize = on)', the_name);
    end if;
    return the_name;
end
$$;

-- Mark the live vectors of these chunks dead at a number, in every collection; those born at the number itself are deleted.
create function kill_vectors(the_corpus int, the_number int, the_chunks bigint[]) returns void language plpgsql as $$
declare
    one text;
begin
    for one in select name from collection where corpus_id = the_corpus loop
        execute format('delete from %I where chunk_id = any($1) and born = $2', one) using the_chunks, the_number;
        execute format('update %I set died = $2 where chunk_id = any($1) and died is null', one)
        using the_chunks, the_number;
    end loop;
end
$$;

-- By how much a number changed the rows of a collection and the sum of the hashes of their chunk ids.
create function vector_changes(the_name text, the_number int) returns table (rows bigint, total numeric)
language plpgsql stable as $$
begin
    return query execute format(
        'select coalesce(sum(s), 0)::bigint, coalesce(sum(s * h), 0) from (
            select case when born = $1 then 1 else -1 end as s, hash_record_extended(row(chunk_id), 0)::numeric as h
            from %I where born = $1 or died = $1) as changed', the_name) using the_number;
end
$$;

-- The rows of a collection that a generation sees, and the sum of the hashes of their chunk ids.
create function vector_total(the_name text, the_number int) returns table (rows bigint, total numeric)
language plpgsql stable as $$
begin
    return query execute format(
        'select count(*), coalesce(sum(hash_record_extended(row(chunk_id), 0)), 0) from %I
         where born <= $1 and (died is null or died > $1)', the_name) using the_number;
end
$$;

-- The 16 hex digits of the hash of each vector, as it is stored, that a generation sees.
create function vector_hashes(the_name text, the_number int) returns table (chunk_id bigint, hash text)
language plpgsql stable as $$
begin
    return query execute format(
        'select v.chunk_id, left(encode(sha256(halfvec_send(v.embedding)), ''hex''), 16) from %I v
         where born <= $1 and (died is null or died > $1)', the_name) using the_number;
end
$$;

-- Undo up to `the_limit` rows of an unpublished number in one table: delete what it bore, revive what it killed.
create function undo_rows(the_table text, the_corpus int, the_number int, the_limit int) returns int
language plpgsql as $$
declare
    the_scope text;
    deleted int;
    revived int;
begin
    select scope into strict the_scope from versioned_tables(the_corpus) where name = the_table;
    execute format(
        'delete from %1$I where ctid = any(array(select ctid from %1$I where %2$s and born = $1 limit $2))',
        the_table, the_scope) using the_number, the_limit;
    get diagnostics deleted = row_count;
    execute format(
        'update %1$I set died = null where ctid = any(array(select ctid from %1$I where %2$s and died = $1 limit $2))',
        the_table, the_scope) using the_number, the_limit;
    get diagnostics revived = row_count;
    return deleted + revived;
end
$$;

-- Make what `the_number` sees of one table equal to what `the_target` sees, given that it equals `the_current` now.
create function revert_rows(the_table text, the_corpus int, the_target int, the_number int) returns int
language plpgsql as $$
declare
    the_scope text;
    columns text;
    copied int;
    killed int;
begin
    select scope into strict the_scope from versioned_tables(the_corpus) where name = the_table;
    select string_agg(format('%I', attname), ', ' order by attnum) into columns from pg_attribute
    where attrelid = the_table::regclass and attnum > 0 and not attisdropped and attname not in ('born', 'died');
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

-- Delete up to `the_limit` dead versions of one table that none of the kept generations sees. Only those that died by
-- `the_last` are looked at: a number that was begun after the list of kept ones was read cannot be in it.
create function reclaim_rows(the_table text, the_corpus int, the_kept int[], the_last int, the_limit int) returns int
language plpgsql as $$
declare
    the_scope text;
    deleted int;
begin
    select scope into strict the_scope from versioned_tables(the_corpus) where name = the_table;
    execute format(
        'delete from %1$I where ctid = any(array(
            select ctid from %1$I t where %2$s and died <= $2
                and not exists (select 1 from unnest($1) g where g >= t.born and g < t.died)
            limit $3 for update skip locked))', the_table, the_scope) using the_kept, the_last, the_limit;
    get diagnostics deleted = row_count;
    return deleted;
end
$$;

create function drop_collection(the_corpus int, the_name text) returns void language plpgsql as $$
begin
    delete from collection where corpus_id = the_corpus and name = the_name;
    if found then
        execute format('drop table if exists %I', the_name);
    end if;
end
$$;
