-- The number, and what it was made of, for `kin` of the tables' look.
json_build_object(
    'number', md5(string_agg(o.text, ',' ORDER BY o.text COLLATE "C")),
    'relations', (SELECT (m.oids || ARRAY(SELECT l.oid FROM read l))::text FROM member m),
    'owners', (SELECT array_agg(DISTINCT v.owner)::text FROM version v),
    'sequences', (SELECT array_agg(DISTINCT q.oid)::text FROM drawn q),
    'spaces', (SELECT array_agg(w.nsp ORDER BY w.nsp, w.name)::text FROM word w),
    'words', (SELECT array_agg(w.name ORDER BY w.nsp, w.name)::text FROM word w),
    'reached', (SELECT json_object_agg(m.classid::regclass, m.oids::text) FROM made_of m))
