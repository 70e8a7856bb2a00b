-- Where roles of this database look for names that have no schema, as ALTER ROLE and ALTER DATABASE have set it.
SELECT DISTINCT substr(c.setting, length('search_path=') + 1)
  FROM pg_db_role_setting s CROSS JOIN unnest(s.setconfig) c (setting)
 WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
   AND c.setting LIKE 'search\_path=%'
 ORDER BY 1
