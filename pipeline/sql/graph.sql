-- name: paths
-- A page of community paths, from the coarsest to the finest, by entity.
select entity_no, path from membership
where corpus_id = $1 and born <= $2 and (died is null or died > $2) and entity_no > $3
order by entity_no limit $4;
