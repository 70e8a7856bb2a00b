)
-- One gate before all of them.
SELECT step, kind, name, on_table, definition, statement FROM object
 WHERE (SELECT path FROM path) IS NOT NULL ORDER BY step, number, name
