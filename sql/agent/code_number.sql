md5(string_agg(o.text, ',' ORDER BY o.text COLLATE "C"))
