-- Row-level security, below the predicates of the statements: what is done for one tenant is done as the role
-- `sapwood_tenant`, which owns nothing and sees the rows of the tenant in the setting `sapwood.tenant`; none, if it is not set.
-- The owner of the tables, and whoever is a member of it, works for all. The role is one for all databases of a server.

do $$
begin
    if not exists (select from pg_roles where rolname = 'sapwood_tenant') then
        create role sapwood_tenant nologin;
    end if;
exception when duplicate_object or unique_violation then  -- another database of this server was faster
    null;
end
$$;

do $$
begin
    if not pg_has_role(current_user, 'sapwood_tenant', 'set') then
        grant sapwood_tenant to current_user with inherit false, set true;
    end if;
end
$$;

grant usage on schema sapwood to sapwood_tenant;
grant select, insert, update, delete on buried to sapwood_tenant;  -- what is gone belongs to nobody

create function tenant_corpora() returns int[] language sql stable as $$
    select coalesce(array_agg(c.corpus_id), '{}') from sapwood.corpus c
    where c.tenant = current_setting('sapwood.tenant', true)
$$;

-- Let the owner see a whole table, and `sapwood_tenant` the rows that meet a condition.
create function secure_table(the_table text, the_condition text) returns void language plpgsql as $$
begin
    execute format('alter table %I enable row level security', the_table);
    execute format('alter table %I force row level security', the_table);
    execute format('create policy whole on %I to %I using (true) with check (true)', the_table, current_user);
    execute format('create policy of_tenant on %I to sapwood_tenant using (%s) with check (%s)',
        the_table, the_condition, the_condition);
    execute format('grant select, insert, update, delete on %I to sapwood_tenant', the_table);
end
$$;

select secure_table('corpus', 'tenant = current_setting(''sapwood.tenant'', true)');
select secure_table('tenant', 'name = current_setting(''sapwood.tenant'', true)');
select secure_table('api_key', 'tenant = current_setting(''sapwood.tenant'', true)');
select secure_table('outcome', 'exists (select from sapwood.run r where r.run_id = outcome.run_id)');
select secure_table(c.relname, 'corpus_id = any ((select sapwood.tenant_corpora())::int[])')
from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attname = 'corpus_id' and not a.attisdropped
where c.relnamespace = 'sapwood'::regnamespace and c.relkind = 'r' and c.relname <> 'corpus';
select secure_table(c.name, format('%s = any ((select sapwood.tenant_corpora())::int[])', c.corpus_id))
from collection c where c.store = 'pgvector';

-- Dense tables are made and dropped by the owner of the schema, whoever asks for it, but for no foreign corpus.
create function check_tenant(the_corpus int) returns void language plpgsql as $$
declare
    the_tenant text := coalesce(current_setting('sapwood.tenant', true), '');
begin
    if the_tenant <> ''
        and not exists (select from sapwood.corpus c where c.corpus_id = the_corpus and c.tenant = the_tenant) then
        raise insufficient_privilege using message = 'not a corpus of this tenant';
    end if;
end
$$;

create or replace function ensure_collection(the_corpus int, the_name text, the_embedding text, the_dimension int)
returns text language plpgsql security definer set search_path = sapwood, public, pg_temp as $$
begin
    if the_name !~ format('^dense_%s_[0-9a-f]{12}$', the_corpus) then
        raise check_violation using message = 'not the name of a collection of this corpus';
    end if;
    perform check_tenant(the_corpus);
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
        perform secure_table(the_name, format('%s = any ((select sapwood.tenant_corpora())::int[])', the_corpus));
    end if;
    return the_name;
end
$$;

create or replace function drop_collection(the_corpus int, the_name text) returns void
language plpgsql security definer set search_path = sapwood, public, pg_temp as $$
declare
    the_store text;
begin
    perform check_tenant(the_corpus);
    delete from collection where corpus_id = the_corpus and name = the_name returning store into the_store;
    if the_store = 'pgvector' then
        execute format('drop table if exists %I', the_name);
    end if;
end
$$;

create or replace function drop_collections(the_corpus int) returns void
language plpgsql security definer set search_path = sapwood, public, pg_temp as $$
declare
    one text;
begin
    perform check_tenant(the_corpus);
    for one in select name from collection where corpus_id = the_corpus and store = 'pgvector' loop
        execute format('drop table if exists %I', one);
    end loop;
end
$$;
