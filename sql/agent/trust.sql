-- Refuses an agent's schema that somebody else has made, or has put something into: the
-- mover would call it, with its own rights. What belongs to the mover or to a superuser is
-- its own. Runs before anything is created, and where a session has found such a thing.
DO $trust$
DECLARE
    problem pg_catalog.text;
BEGIN
    problem := {stranger};
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = '55000',
            MESSAGE = problem,
            DETAIL = 'Who may create objects in a database can make a schema of this name; what is in it would run with the rights of role '
                     || pg_catalog.quote_ident(current_user) || '.',
            HINT = 'If no split has used this database, drop the schema as a superuser; else give what belongs to it to role '
                   || pg_catalog.quote_ident(current_user) || ' and drop the rest.';
    END IF;
END $trust$;
