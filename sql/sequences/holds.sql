least(CASE WHEN y.typcategory = 'N' AND a.attlen = 2 THEN 32767
                  WHEN y.typcategory = 'N' AND a.attlen = 4 THEN 2147483647
                  WHEN y.typcategory = 'N' AND a.attlen = -1 AND v.modifier >= 4 AND v.digits < 19 THEN (10::numeric ^ v.digits)::int8 - 1
                  -- Of a text's length, which a CHECK may say as well.
                  WHEN y.typcategory = 'S' AND v.modifier BETWEEN 5 AND 22 THEN (10::numeric ^ (v.modifier - 4))::int8 - 1 END,
             CASE WHEN y.typcategory = 'S' THEN (
                 SELECT min((10::numeric ^ x.parts[2]::int)::int8 - 1)
                   FROM (SELECT pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint k
                          WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)
                         UNION ALL
                         SELECT CASE WHEN k.contypid <> 0 THEN pg_get_expr(k.conbin, 0) END FROM pg_constraint k
                          WHERE y.typtype = 'd' AND k.contypid = y.oid AND k.contype = 'c') e (text)
                  CROSS JOIN LATERAL regexp_matches(e.text, 'length\(\(?(' || regexp_replace(quote_ident(a.attname), '([^A-Za-z0-9_"])', '\\\1', 'g') || '|VALUE)\)?(?:::text)?\) <=? ([0-9]{1,2})(?![0-9])', 'g') x (parts)
                  WHERE x.parts[2]::int < 19 AND e.text !~ ' OR |CASE ') END,
             -- Of a CHECK, where it says plainly how far numbers go.
             (SELECT min(left(x.parts[3], 18)::int8)
                FROM (SELECT pg_get_expr(k.conbin, k.conrelid) FROM pg_constraint k
                       WHERE k.conrelid = a.attrelid AND k.contype = 'c' AND a.attnum = ANY (k.conkey)
                      UNION ALL
                      SELECT CASE WHEN k.contypid <> 0 THEN pg_get_expr(k.conbin, 0) END FROM pg_constraint k
                       WHERE y.typtype = 'd' AND k.contypid = y.oid AND k.contype = 'c') e (text)
               CROSS JOIN LATERAL regexp_matches(e.text, '(^|[( ])(' || regexp_replace(quote_ident(a.attname), '([^A-Za-z0-9_"])', '\\\1', 'g') || '|VALUE)\)?(?:::[a-z]+\)?)? <=? \(?''?([0-9]+)', 'g') x (parts)
               WHERE y.typcategory <> 'S' AND e.text !~ ' OR |CASE '),
             -- Of a key whose text is cut, or filled up, to so many digits: by the column's default, or by a column that is generated from it.
             (SELECT min((10::numeric ^ v.digits)::int8 - 1)
                FROM (SELECT d.adbin, d.adrelid FROM pg_attribute g JOIN pg_attrdef d ON d.adrelid = g.attrelid AND d.adnum = g.attnum
                       WHERE g.attrelid = a.attrelid AND g.attnum > 0
                         AND (g.attnum = a.attnum AND y.typcategory = 'S' AND g.attgenerated = ''
                              OR g.attgenerated <> '' AND d.adbin::text ~ (':varattno ' || a.attnum || ' '))
                         AND EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = g.attrelid AND i.indisunique AND g.attnum = ANY (i.indkey)) OFFSET 0) d
               CROSS JOIN LATERAL (SELECT pg_get_expr(d.adbin, d.adrelid)) e (text)
               CROSS JOIN LATERAL regexp_matches(e.text, 'lpad\([^,]*, ([0-9]{1,2}), |to_char\([^,]*, ''(?:FM)?([09]+)''', 'g') x (parts)
               CROSS JOIN LATERAL (SELECT coalesce(x.parts[1]::int, length(x.parts[2]))) v (digits)
               WHERE v.digits < 19))
