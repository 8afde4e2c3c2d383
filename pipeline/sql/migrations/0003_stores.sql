-- Stores outside of PostgreSQL: a corpus has a name that is unique everywhere, a collection says where it lies, and what a
-- deleted corpus left in other stores is remembered until it is gone.

alter table corpus add column uid uuid not null default gen_random_uuid() unique;

alter table collection add column store text not null default 'pgvector' check (store in ('pgvector', 'qdrant'));

create table buried (
    uid uuid primary key,
    name text not null,
    collections jsonb not null,                 -- names of collections in other stores, with their stores
    graph_stores text[] not null,
    buried_at timestamptz not null default clock_timestamp()
);

create or replace function versioned_tables(the_corpus int) returns table (name text, scope text)
language sql stable as $$
    select unnest(array['document', 'chunk', 'mention', 'fact', 'entity', 'relation', 'membership', 'community']),
        format('corpus_id = %s', the_corpus)
    union all
    select c.name, 'true' from collection c where c.corpus_id = the_corpus and c.store = 'pgvector'
$$;

-- Note a collection that lies in another store, and return its name.
create function note_collection(the_corpus int, the_store text, the_name text, the_embedding text, the_dimension int)
returns text language plpgsql as $$
begin
    if the_name !~ '^sapwood_[0-9a-f]{32}_[0-9]{1,10}_[0-9a-f]{12}$' then
        raise check_violation using message = 'not the name of a collection';
    end if;
    insert into collection (corpus_id, name, embedding, dimension, store)
    values (the_corpus, the_name, the_embedding, the_dimension, the_store) on conflict do nothing;
    return the_name;
end
$$;

create or replace function kill_vectors(the_corpus int, the_number int, the_chunks bigint[]) returns void
language plpgsql as $$
declare
    one text;
begin
    for one in select name from collection where corpus_id = the_corpus and store = 'pgvector' loop
        execute format('delete from %I where chunk_id = any($1) and born = $2', one) using the_chunks, the_number;
        execute format('update %I set died = $2 where chunk_id = any($1) and died is null', one)
        using the_chunks, the_number;
    end loop;
end
$$;

create or replace function drop_collection(the_corpus int, the_name text) returns void language plpgsql as $$
declare
    the_store text;
begin
    delete from collection where corpus_id = the_corpus and name = the_name returning store into the_store;
    if the_store = 'pgvector' then
        execute format('drop table if exists %I', the_name);
    end if;
end
$$;

create or replace function drop_collections(the_corpus int) returns void language plpgsql as $$
declare
    one text;
begin
    for one in select name from collection where corpus_id = the_corpus and store = 'pgvector' loop
        execute format('drop table if exists %I', one);
    end loop;
end
$$;

-- The three below answer nothing for a collection that lies in another store: that store is asked itself.
create or replace function vector_changes(the_name text, the_number int) returns table (rows bigint, total numeric)
language plpgsql stable as $$
begin
    if to_regclass(quote_ident(the_name)) is null then
        return;
    end if;
    return query execute format(
        'select coalesce(sum(s), 0)::bigint, coalesce(sum(s * h), 0) from (
            select case when born = $1 then 1 else -1 end as s, hash_record_extended(row(chunk_id), 0)::numeric as h
            from %I where born = $1 or died = $1) as changed', the_name) using the_number;
end
$$;

create or replace function vector_total(the_name text, the_number int) returns table (rows bigint, total numeric)
language plpgsql stable as $$
begin
    if to_regclass(quote_ident(the_name)) is null then
        return;
    end if;
    return query execute format(
        'select count(*), coalesce(sum(hash_record_extended(row(chunk_id), 0)), 0) from %I
         where born <= $1 and (died is null or died > $1)', the_name) using the_number;
end
$$;

create or replace function vector_hashes(the_name text, the_number int) returns table (chunk_id bigint, hash text)
language plpgsql stable as $$
begin
    if to_regclass(quote_ident(the_name)) is null then
        return;
    end if;
    return query execute format(
        'select v.chunk_id, left(encode(sha256(halfvec_send(v.embedding)), ''hex''), 16) from %I v
         where born <= $1 and (died is null or died > $1)', the_name) using the_number;
end
$$;
