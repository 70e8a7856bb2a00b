-- Whether the expression of the temporary view says the same of a row at any time: everything
-- in it is immutable.
SELECT NOT bool_or(w.ev_action::text ~ 'SQLVALUEFUNCTION'
                   OR EXISTS (SELECT 1 FROM regexp_matches(w.ev_action::text, ':(?:op)?funcid (\d+)', 'g') found
                                JOIN pg_proc p ON p.oid = found[1]::oid
                               WHERE p.provolatile <> 'i'))
  FROM pg_rewrite w
 WHERE w.ev_class = 'pg_temp.shardmaster_expression'::regclass
