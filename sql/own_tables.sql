-- What others may have in the schema of the calls is not found.
SET LOCAL search_path = pg_catalog, pg_temp;

-- Rows of the extension's tables fire no code of others: not by a foreign key that refers to them, nor by a trigger, a rule
-- or a table that inherits. What changes a row would run it with its own rights, those of the extension's owner.

CREATE TABLE shardmaster.credential_hold (
    alias      text NOT NULL REFERENCES shardmaster.keychain (alias),
    held_for   text NOT NULL CHECK (held_for <> ''),
    held_by    text NOT NULL,
    holder     oid NOT NULL,
    of_system  bigint NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (alias, held_for, held_by, holder)
);
COMMENT ON TABLE shardmaster.credential_hold IS 'objects of others that use a credential, which is not dropped meanwhile; see shard_credential_hold()';
COMMENT ON COLUMN shardmaster.credential_hold.held_by IS 'the name of the role that holds it, and may release it';
COMMENT ON COLUMN shardmaster.credential_hold.holder IS 'its number: another role of its name is a different role';
COMMENT ON COLUMN shardmaster.credential_hold.of_system IS 'the database system of that number: in another one, where a dump was restored, the name counts';
SELECT pg_catalog.pg_extension_config_dump('shardmaster.credential_hold', '');

COMMENT ON FUNCTION shardmaster.no_code_of_others() IS 'keeps the rows of a table as they are for all but the extension''s owner, and while code of others is attached to it; the trigger of each table of the extension';

-- What others have put on the extension's tables.
CREATE FUNCTION shardmaster.code_of_others() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH own AS (
        SELECT c.oid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_class'::regclass
          JOIN pg_class c ON c.oid = d.objid
         WHERE e.extname = 'shardmaster' AND c.relkind = 'r'
    )
    SELECT format('foreign key %I of table %s', k.conname, k.conrelid::regclass)
      FROM pg_constraint k JOIN own ON own.oid = k.confrelid
     WHERE k.contype = 'f' AND k.conrelid NOT IN (SELECT oid FROM own)
    UNION ALL
    SELECT format('trigger %I of table %s', t.tgname, t.tgrelid::regclass)
      FROM pg_trigger t JOIN own ON own.oid = t.tgrelid JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE NOT t.tgisinternal AND p.pronamespace <> 'shardmaster'::regnamespace
    UNION ALL
    SELECT format('rule %I of table %s', r.rulename, r.ev_class::regclass)
      FROM pg_rewrite r JOIN own ON own.oid = r.ev_class
    UNION ALL
    SELECT format('policy %I of table %s', p.polname, p.polrelid::regclass)
      FROM pg_policy p JOIN own ON own.oid = p.polrelid
    UNION ALL
    SELECT format('table %s, which inherits from %s', i.inhrelid::regclass, i.inhparent::regclass)
      FROM pg_inherits i
     WHERE i.inhrelid IN (SELECT oid FROM own) OR i.inhparent IN (SELECT oid FROM own)
    UNION ALL
    -- What the text of a table or view was taken to mean when it was made.
    SELECT format('%s of %s', pg_describe_object(d.refclassid, d.refobjid, 0), pg_describe_object(d.classid, d.objid, 0))
      FROM pg_depend d
      LEFT JOIN pg_constraint k ON d.classid = 'pg_constraint'::regclass AND k.oid = d.objid
      LEFT JOIN pg_rewrite w ON d.classid = 'pg_rewrite'::regclass AND w.oid = d.objid
      LEFT JOIN pg_attrdef a ON d.classid = 'pg_attrdef'::regclass AND a.oid = d.objid
     WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
       AND EXISTS (SELECT FROM pg_depend o JOIN pg_extension e ON e.oid = o.refobjid AND e.extname = 'shardmaster'
                    WHERE o.classid = 'pg_class'::regclass AND o.objid IN (k.conrelid, w.ev_class, a.adrelid)
                      AND o.refclassid = 'pg_extension'::regclass AND o.deptype = 'e')
       AND NOT EXISTS (SELECT FROM pg_depend o JOIN pg_extension e ON e.oid = o.refobjid AND e.extname = 'shardmaster'
                        WHERE o.classid = d.refclassid AND o.objid = d.refobjid
                          AND o.refclassid = 'pg_extension'::regclass AND o.deptype = 'e')
$$;
COMMENT ON FUNCTION shardmaster.code_of_others() IS 'code of others on the tables of the extension: foreign keys, triggers, rules, policies, tables that inherit; the rows of such a table cannot be changed';

-- Gives each table of the extension the trigger that looks for such code before a row is changed, and takes away what roles
-- have been given: by default privileges all of it, on what was not there before; else what would let them put such code there.
CREATE FUNCTION shardmaster.keep_tables_own(there oid[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    relation pg_catalog.record;
    given    pg_catalog.record;
    found    text;
BEGIN
    SELECT string_agg(c, ', ') INTO found FROM shardmaster.code_of_others() c;
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'tables of extension "shardmaster" have code attached that is not the extension''s: %', found
            USING ERRCODE = '55000',
                  HINT = 'Drop each of them first. Use shard_credential_hold() instead of a foreign key to shardmaster.keychain.';
    END IF;
    FOR relation IN
        SELECT c.oid::regclass AS name, c.relkind, c.relacl, c.relowner, c.oid
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_class'::regclass
          JOIN pg_class c ON c.oid = d.objid
         WHERE e.extname = 'shardmaster' AND c.relkind IN ('r', 'v', 'S')
    LOOP
        -- No name of another trigger comes before this one, and so none that would fire first.
        IF relation.relkind = 'r'
           AND NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation.oid AND t.tgname = chr(1)) THEN
            EXECUTE format('CREATE TRIGGER %I BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s
                                FOR EACH STATEMENT EXECUTE FUNCTION shardmaster.no_code_of_others()', chr(1), relation.name);
            EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', relation.name, chr(1));
        END IF;
        FOR given IN
            SELECT a.privilege_type AS what, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role, '' AS columns
              FROM aclexplode(relation.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
             WHERE a.grantee <> relation.relowner
            UNION ALL
            SELECT a.privilege_type, coalesce(quote_ident(r.rolname), 'PUBLIC'), format(' (%I)', t.attname)
              FROM pg_attribute t CROSS JOIN LATERAL aclexplode(t.attacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
             WHERE t.attrelid = relation.oid AND NOT t.attisdropped
        LOOP
            IF relation.oid <> ALL (there) OR given.what IN ('REFERENCES', 'TRIGGER') THEN
                EXECUTE format('REVOKE %s%s ON %s %s FROM %s CASCADE', given.what, given.columns,
                               CASE relation.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, relation.name, given.role);
            END IF;
        END LOOP;
    END LOOP;
    -- A column or a function of somebody's that is of one of these types would keep updates from changing it. To read rows
    -- nobody needs a right to their type.
    FOR relation IN
        SELECT DISTINCT t.oid::regtype AS name, coalesce(quote_ident(r.rolname), 'PUBLIC') AS role
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
          JOIN pg_type t ON t.typtype = 'c' AND (d.classid = 'pg_type'::regclass AND d.objid = t.oid
                                                 OR d.classid = 'pg_class'::regclass AND d.objid = t.typrelid)
         CROSS JOIN LATERAL aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE e.extname = 'shardmaster' AND a.grantee <> t.typowner
    LOOP
        EXECUTE format('REVOKE ALL ON TYPE %s FROM %s CASCADE', relation.name, relation.role);
    END LOOP;
END $$;
COMMENT ON FUNCTION shardmaster.keep_tables_own(oid[]) IS 'makes the tables of the extension be checked before their rows are changed, and revokes REFERENCES, TRIGGER and USAGE of the row types from all others; for new tables also what default privileges have granted. 55000: code of others is already there';

-- What every role may call, and what members of pg_monitor may. Who needs more is granted it by name; a client needs EXECUTE
-- on shard_of and shard_route alone.
CREATE FUNCTION shardmaster.grant_initially() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    routine regprocedure;
    role    text;
BEGIN
    FOR routine, role IN
        SELECT DISTINCT p.oid, coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_extension e
          JOIN pg_depend d ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
                          AND d.classid = 'pg_proc'::regclass
          JOIN pg_proc p ON p.oid = d.objid
         CROSS JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
          LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE e.extname = 'shardmaster' AND p.proname <> 'shard_for' AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON ROUTINE %s FROM %s', routine, role);
    END LOOP;
    -- Who may look at all of a server's statistics may look at these.
    FOR routine IN SELECT shardmaster.routines_of_level('monitor') LOOP
        EXECUTE format('GRANT EXECUTE ON ROUTINE %s TO pg_monitor', routine);
    END LOOP;
    FOR role IN
        SELECT coalesce(quote_ident(r.rolname), 'PUBLIC')
          FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE n.nspname = 'shardmaster' AND a.grantee <> n.nspowner
    LOOP
        EXECUTE format('REVOKE ALL ON SCHEMA shardmaster FROM %s', role);
    END LOOP;
    PERFORM shardmaster.keep_tables_own('{}');
END $$;
COMMENT ON FUNCTION shardmaster.grant_initially() IS 'the rights of a new installation, whatever default privileges there are';

SET LOCAL search_path = @extschema@, pg_temp;
