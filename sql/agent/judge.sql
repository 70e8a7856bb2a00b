    -- Whether the row is of the scope. By a filter of bits most that stay are told without a
    -- query; in a TRUNCATE, which has no keys, nothing is told.
    {quick}
    IF change OPERATOR(pg_catalog.<>) 'T'
       AND ({new_is_in_scope} OR ({same}) IS NOT TRUE AND {old_is_in_scope}) IS NOT TRUE THEN
        RETURN false;
    END IF;
