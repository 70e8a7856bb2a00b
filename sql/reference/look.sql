-- What reference tables look like on a shard, by indexes alone: another text when something of them has changed.
-- $1: schemas, $2: names, $3: what the names of their triggers begin with; $4 to $6: nothing else is named.
SELECT json_build_object(
    'code', {code},
    'tables', (
        SELECT coalesce(json_agg(json_build_object(
            'oid', c.oid::text,
            'filenode', pg_relation_filenode(c.oid)::text,
            'columns', (SELECT md5(string_agg(concat_ws(' ', a.attnum, a.xmin, a.attname), ',' ORDER BY a.attnum))
                          FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0),
            -- By which rows are found again, and told apart.
            'key', (SELECT concat_ws(', ', i.indkey, i.indclass, i.indcollation)
                      FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary),
            'triggers', (SELECT string_agg(concat_ws(' ', t.oid, t.xmin), ',' ORDER BY t.tgname)
                           FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname IN (w.prefix, w.prefix || '_i', w.prefix || '_u', w.prefix || '_d')),
            -- What it applies fires no trigger for statements.
            'subscribed', (SELECT string_agg(s.srsubid::text, ' ' ORDER BY s.srsubid) FROM pg_subscription_rel s WHERE s.srrelid = c.oid),
            -- Those that do what they are to: guards, and captures; and how many there are at all.
            'installed', (SELECT json_build_array(
                                 count(*) FILTER (WHERE t.tgenabled = 'A' AND t.tgname = w.prefix),
                                 -- One that captures has a queue, and says of which key.
                                 count(*) FILTER (WHERE t.tgenabled = 'A' AND t.tgname <> w.prefix
                                     AND EXISTS (SELECT 1 FROM pg_class q
                                                  WHERE q.relname = replace(w.prefix, '00_shardmaster_reference', 'reference_queue')
                                                    AND q.relnamespace = to_regnamespace('shardmaster_agent'))
                                     AND EXISTS (SELECT 1 FROM pg_index i
                                                  WHERE i.indrelid = c.oid AND i.indisprimary
                                                    AND t.tgargs = convert_to(array_to_string((i.indkey::int2[])[0:i.indnkeyatts - 1], ' '), 'UTF8') || decode('00', 'hex'))),
                                 count(*))
                            FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid
                           WHERE t.tgrelid = c.oid AND t.tgname IN (w.prefix, w.prefix || '_i', w.prefix || '_u', w.prefix || '_d')
                             AND f.pronamespace = to_regnamespace('shardmaster_agent'))) ORDER BY w.ord), '[]')
          FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS w (nsp, rel, prefix, ord)
          LEFT JOIN LATERAL (SELECT c.oid FROM pg_class c
                              WHERE c.relname = w.rel AND c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = w.nsp)) c ON true))
