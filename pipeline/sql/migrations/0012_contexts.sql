-- What models said of where chunks stand in their documents: paid work, as the caches of vectors and extractions are.

create table context_cache (
    corpus_id int not null,
    fingerprint text not null,
    place_hash bytea not null,                      -- of all that the model was told
    passage_hash bytea not null,                    -- of the passage with this context: it is kept as long as a chunk has it
    context text not null,
    primary key (corpus_id, fingerprint, place_hash)
);

select secure_table('context_cache', 'corpus_id = any ((select sapwood.tenant_corpora())::int[])');
