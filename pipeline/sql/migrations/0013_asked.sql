-- What a file asked of another one, four bytes for each question, sorted: a change of a file costs those who asked for what changed.
-- Rows of before have none; their files are linked anew, as linking has another version.

alter table code_read add column asked bytea not null default '';
