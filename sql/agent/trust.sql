-- Refuses an agent's schema that somebody else has made, or has put something into: the
-- mover would call it, with its own rights. What belongs to the mover or to a superuser is
-- its own. Runs before anything is created, and where a session has found such a thing.
DO $trust$
DECLARE
    problem pg_catalog.text;
BEGIN
    problem := {stranger};
    IF problem IS NOT NULL AND (SELECT r.rolsuper AND NOT pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                                  FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
                                 WHERE n.nspname = 'shardmaster_agent') THEN
        RAISE EXCEPTION USING
            ERRCODE = '42501',
            MESSAGE = problem,
            DETAIL = 'Another role was the mover here when it was made.',
            HINT = 'Make that role the mover again (shardmaster.local_user, or the user of the shard''s connection string). Or give the schema to role '
                   || pg_catalog.quote_ident(current_user) || ' with the statement of docs/operate/roles-and-rights.md, "Another mover".';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '55000',
            MESSAGE = problem,
            DETAIL = 'Somebody who can create schemas in the database may have made this one. Code in it would run with the rights of role '
                     || pg_catalog.quote_ident(current_user) || '.',
            HINT = 'If no split has used this database, drop the schema as a superuser. Otherwise give what belongs to it to role '
                   || pg_catalog.quote_ident(current_user) || ' and drop the rest.';
    END IF;
END $trust$;
