-- A rule for rows of the tables that are deleted; no row: there is none. Those of partitions are not asked where the table
-- itself is named. {tables}: their names, qualified and quoted.
SELECT w.name, quote_ident(r.rulename)
  FROM unnest({tables}::text[]) AS w (name)
  JOIN pg_rewrite r ON r.ev_class = to_regclass(w.name)
 WHERE r.ev_type = '4' AND r.ev_enabled IN ('O', 'A')
 ORDER BY 1, 2 LIMIT 1
