//! The owner of a moving table gains no right of the mover. Code that the mover's sessions would run is found
//! before it runs, and stops the split until somebody declares it trusted.

use postgres::Client;
use shardmaster_tests::attacker::{is_mover, own_the_table, session};
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::env::{is_long_run, may_lack};
use shardmaster_tests::fixture::{LIMIT, client, cluster, cut_over_and_compare, plan, state_of, to_pending};

fn server_of<'a>(cluster: &'a Cluster, side: &str) -> &'a shardmaster_tests::server::Server {
    &cluster.servers[usize::from(side == "target")]
}

/// Code that a session of the mover would run.
struct Trap {
    what: &'static str,
    /// Statements of a superuser, if they are needed.
    prepare: &'static str,
    /// Statements of the owner.
    set: &'static str,
    undo: &'static str,
    /// The text of the finding.
    says: &'static str,
}

const NOTHING: &str = "SELECT 1";

const TRAPS: &[Trap] = &[
    Trap {
        what: "a CHECK constraint",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD CONSTRAINT c CHECK (evil(val))",
        undo: "ALTER TABLE items DROP CONSTRAINT c",
        says: "public.items: constraint c: function public.evil(text), which belongs to role mallory",
    },
    Trap {
        what: "a domain's CHECK",
        prepare: NOTHING,
        set: "CREATE DOMAIN d AS int CHECK (evil('x')); ALTER TABLE items ALTER code TYPE d",
        undo: "ALTER TABLE items ALTER code TYPE int; DROP DOMAIN d",
        says: "public.evil(text)",
    },
    Trap {
        what: "a domain in an array in a composite type",
        prepare: NOTHING,
        set: "CREATE DOMAIN d AS int CHECK (evil('x')); CREATE TYPE c AS (n d[]); ALTER TABLE items ADD deep c",
        undo: "ALTER TABLE items DROP deep; DROP TYPE c; DROP DOMAIN d",
        says: "public.evil(text)",
    },
    Trap {
        what: "an index over an expression",
        prepare: NOTHING,
        set: "CREATE INDEX i ON items ((steady('x')))",
        undo: "DROP INDEX i",
        says: "public.items: index public.i: function public.steady(text)",
    },
    Trap {
        what: "a partial index",
        prepare: NOTHING,
        set: "CREATE INDEX i ON items (val) WHERE steady('x')",
        undo: "DROP INDEX i",
        says: "public.steady(text)",
    },
    Trap {
        what: "a generated column",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD g boolean GENERATED ALWAYS AS (steady(val)) STORED",
        undo: "ALTER TABLE items DROP g",
        says: "public.items: column g: function public.steady(text)",
    },
    Trap {
        what: "a default",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD more boolean; ALTER TABLE items ALTER more SET DEFAULT evil('x')",
        undo: "ALTER TABLE items DROP more",
        says: "public.items: column more: function public.evil(text)",
    },
    Trap {
        what: "statistics",
        prepare: NOTHING,
        set: "CREATE STATISTICS s ON (steady('x')), val FROM items",
        undo: "DROP STATISTICS s",
        says: "public.items: statistics s: function public.steady(text)",
    },
    Trap {
        what: "a rule",
        prepare: NOTHING,
        set: "CREATE RULE r AS ON DELETE TO items WHERE evil('x') DO ALSO NOTHING",
        undo: "DROP RULE r ON items",
        says: "public.items: rule r: function public.evil(text)",
    },
    Trap {
        what: "a trigger with a name like ours",
        prepare: NOTHING,
        set: "CREATE TRIGGER \"00_shardmaster_77_s_d\" AFTER DELETE OR INSERT ON items FOR EACH ROW EXECUTE FUNCTION fires();
              ALTER TABLE items ENABLE ALWAYS TRIGGER \"00_shardmaster_77_s_d\"",
        undo: "DROP TRIGGER \"00_shardmaster_77_s_d\" ON items",
        says: "public.fires()",
    },
    Trap {
        what: "the condition of a trigger",
        prepare: NOTHING,
        set: "CREATE TRIGGER t AFTER DELETE OR INSERT ON items FOR EACH ROW WHEN (evil('x')) EXECUTE FUNCTION fires();
              ALTER TABLE items ENABLE REPLICA TRIGGER t",
        undo: "DROP TRIGGER t ON items",
        says: "public.items: trigger t: function public.evil(text)",
    },
    Trap {
        what: "a cast",
        prepare: NOTHING,
        set: "CREATE TYPE mood AS ENUM ('good'); CREATE FUNCTION shown(mood) RETURNS text LANGUAGE sql AS 'SELECT evil(''x'')::text';
              CREATE CAST (mood AS text) WITH FUNCTION shown(mood); ALTER TABLE items ADD m mood",
        undo: "ALTER TABLE items DROP m; DROP CAST (mood AS text); DROP FUNCTION shown; DROP TYPE mood",
        says: "public.shown(public.mood)",
    },
    Trap {
        what: "a range type",
        prepare: NOTHING,
        set: "CREATE FUNCTION apart(int, int) RETURNS float8 LANGUAGE sql IMMUTABLE AS 'SELECT 0::float8';
              CREATE TYPE span AS RANGE (SUBTYPE = int, SUBTYPE_DIFF = apart); ALTER TABLE items ADD s span",
        undo: "ALTER TABLE items DROP s; DROP TYPE span; DROP FUNCTION apart",
        says: "public.apart(integer,integer)",
    },
    Trap {
        what: "a base type",
        prepare: "CREATE TYPE raw; CREATE FUNCTION raw_in(cstring) RETURNS raw LANGUAGE internal IMMUTABLE STRICT AS 'textin';
                  CREATE FUNCTION raw_out(raw) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
                  CREATE TYPE raw (INPUT = raw_in, OUTPUT = raw_out, LIKE = text); ALTER FUNCTION raw_in OWNER TO mallory;
                  ALTER TYPE raw OWNER TO mallory",
        set: "ALTER TABLE items ADD r raw",
        undo: "ALTER TABLE items DROP r",
        says: "raw_in(cstring)",
    },
    Trap {
        what: "an operator class",
        prepare: "CREATE FUNCTION ordered(int, int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0';
                  CREATE OPERATOR CLASS odd FOR TYPE int USING btree AS OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =,
                      OPERATOR 4 >=, OPERATOR 5 >, FUNCTION 1 ordered(int, int);
                  ALTER FUNCTION ordered OWNER TO mallory",
        set: "CREATE INDEX i ON items (code odd)",
        undo: "DROP INDEX i",
        says: "public.ordered(integer,integer)",
    },
    Trap {
        what: "an operator",
        prepare: NOTHING,
        set: "CREATE FUNCTION same(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT evil($1)';
              CREATE OPERATOR === (FUNCTION = same, LEFTARG = text, RIGHTARG = text);
              ALTER TABLE items ADD CONSTRAINT c CHECK (val === val)",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP OPERATOR === (text, text); DROP FUNCTION same",
        says: "public.same(text,text)",
    },
    Trap {
        what: "a function in the body of another one, which a superuser owns",
        prepare: "CREATE FUNCTION outer_one(text) RETURNS boolean RETURN evil($1)",
        set: "ALTER TABLE items ADD CONSTRAINT c CHECK (outer_one(val))",
        undo: "ALTER TABLE items DROP CONSTRAINT c",
        says: "public.evil(text)",
    },
    Trap {
        what: "a query in a text",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD CONSTRAINT c CHECK (query_to_xml('SELECT public.evil(''x'')', true, true, '') IS NOT NULL)",
        undo: "ALTER TABLE items DROP CONSTRAINT c",
        says: "query_to_xml(text,boolean,boolean,text), with arguments written by role mallory",
    },
    Trap {
        what: "a view in a text",
        prepare: NOTHING,
        set: "CREATE VIEW v AS SELECT evil('x');
              ALTER TABLE items ADD CONSTRAINT c CHECK (table_to_xml('v', true, true, '') IS NOT NULL)",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP VIEW v",
        says: "table_to_xml(regclass,boolean,boolean,text), with arguments",
    },
    Trap {
        what: "what the owner may not call",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD CONSTRAINT c CHECK (pg_read_file('PG_VERSION') <> val) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c",
        says: "pg_read_file(text), with arguments written by role mallory",
    },
    Trap {
        what: "the same in a domain",
        prepare: NOTHING,
        set: "CREATE DOMAIN d AS int CHECK (set_config('shardmaster_agent.mover', '', false) IS NOT NULL); ALTER TABLE items ADD d d",
        undo: "ALTER TABLE items DROP d; DROP DOMAIN d",
        says: "constraint d_check of domain public.d: function set_config(text,text,boolean), with arguments",
    },
    Trap {
        what: "a domain's default",
        prepare: NOTHING,
        set: "CREATE DOMAIN d AS text DEFAULT (query_to_xml('SELECT public.evil(''x'')', true, false, ''))::text;
              ALTER TABLE items ADD d d",
        undo: "ALTER TABLE items DROP d; DROP DOMAIN d",
        says: "default of domain public.d: function query_to_xml(text,boolean,boolean,text), with arguments",
    },
    Trap {
        what: "a table that inherits from one that is referenced",
        prepare: NOTHING,
        set: "CREATE TABLE ref (code int PRIMARY KEY); CREATE TABLE heir () INHERITS (ref);
              CREATE INDEX i ON heir ((steady('x')));
              ALTER TABLE items ADD r int REFERENCES ref",
        undo: "ALTER TABLE items DROP r; DROP TABLE ref CASCADE",
        says: "public.heir: index public.i: function public.steady(text)",
    },
    Trap {
        what: "a setting that the mover may see",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD secret text DEFAULT current_setting('shardmaster_agent.mover', true)",
        undo: "ALTER TABLE items DROP secret",
        says: "column secret: function current_setting(text,boolean), with arguments",
    },
    Trap {
        what: "a function that tells of other sessions",
        prepare: NOTHING,
        set: "ALTER TABLE items ADD CONSTRAINT c CHECK (pg_stat_get_backend_activity(1) <> val) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c",
        says: "function pg_stat_get_backend_activity(integer), with arguments",
    },
    Trap {
        what: "a foreign table",
        prepare: "CREATE EXTENSION postgres_fdw; CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw; GRANT USAGE ON FOREIGN SERVER far TO mallory",
        set: "CREATE TABLE ref (code int PRIMARY KEY); CREATE FOREIGN TABLE heir () INHERITS (ref) SERVER far; ALTER TABLE items ADD r int REFERENCES ref",
        undo: "ALTER TABLE items DROP r; DROP TABLE ref CASCADE",
        says: "public.heir: a foreign table, which belongs to role mallory",
    },
    Trap {
        what: "a sequence of somebody else in a domain's default",
        prepare: "CREATE SEQUENCE theirs",
        set: "CREATE DOMAIN d AS bigint; ALTER TABLE items ADD d d; ALTER DOMAIN d SET DEFAULT nextval('theirs')",
        undo: "ALTER TABLE items DROP d; DROP DOMAIN d",
        says: "domain public.d: sequence public.theirs, which role mallory cannot use",
    },
    Trap {
        what: "a trigger of an extension",
        prepare: "CREATE EXTENSION lo",
        set: "ALTER TABLE items ADD l oid; CREATE TRIGGER t BEFORE UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION lo_manage(l);
              ALTER TABLE items ENABLE ALWAYS TRIGGER t",
        undo: "ALTER TABLE items DROP l CASCADE; DROP TRIGGER t ON items",
        says: "public.items: trigger t: function public.lo_manage(), with arguments",
    },
    Trap {
        what: "a constant in the body of a function",
        prepare: NOTHING,
        set: "CREATE DOMAIN d AS int CHECK (evil('x')); CREATE TYPE c AS (n d);
              CREATE FUNCTION reads() RETURNS boolean LANGUAGE sql AS $$ SELECT '(1)'::public.c IS NULL $$;
              ALTER TABLE items ADD CONSTRAINT c CHECK (reads()) NOT VALID",
        undo: "ALTER TABLE items DROP CONSTRAINT c; DROP FUNCTION reads; DROP TYPE c; DROP DOMAIN d",
        says: "function public.reads(), which belongs to role mallory",
    },
    Trap {
        what: "an event trigger",
        prepare: "CREATE FUNCTION seen() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.evil('x'); END $$;
                  CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION seen(); ALTER FUNCTION seen OWNER TO mallory;
                  ALTER EVENT TRIGGER e ENABLE ALWAYS",
        set: NOTHING,
        undo: NOTHING,
        says: "event trigger e: function public.seen()",
    },
];

/// On either side the check finds each of them by name. None is run, neither by the check nor by the start.
#[test]
fn code_of_an_owner_stops_a_split_before_it_runs() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
    for (number, trap) in TRAPS.iter().enumerate() {
        for (at, side) in ["source", "target"].into_iter().enumerate() {
            // Each of them is tried on one side, and in long runs on both.
            if !is_long_run() && number % 2 != at {
                continue;
            }
            let server = server_of(&cluster, side);
            let mut owner = session(&cluster, server.name());
            server.superuser(DATABASE).unwrap().batch_execute(trap.prepare).unwrap();
            match owner.batch_execute(trap.set) {
                // A package's server may have been built without XML.
                Err(error) if may_lack() && state_of(&error) == "0A000" => continue,
                set => set.unwrap_or_else(|error| panic!("{}: {error:?}", trap.what)),
            }
            let found = split.findings_with_hints().unwrap();
            let name = format!("{side}: code of owners: ");
            let hint = format!("shard_trust_owner('{}', 'mallory')", server.name());
            let names_it =
                |text: &String| text.starts_with(&name) && text.contains(trap.says) && text.contains(&hint);
            assert!(found.iter().any(names_it), "{} on the {side}: {found:?}", trap.what);
            assert!(!is_mover(&cluster), "{} on the {side}", trap.what);
            if matches!(trap.what, "a domain's CHECK" | "an index over an expression" | "an event trigger") {
                split.call("start_dual_write").unwrap();
                let error = split.wait("dual_write", LIMIT).unwrap_err().to_string();
                assert!(error.contains("code of owners"), "{}: {error}", trap.what);
                assert!(!is_mover(&cluster), "{} on the {side}", trap.what);
            }
            owner.batch_execute(trap.undo).unwrap_or_else(|error| panic!("{}: {error:?}", trap.what));
        }
    }
    // A view in the place of the table is not a table, and is not read.
    for side in ["source", "target"] {
        let mut owner = session(&cluster, server_of(&cluster, side).name());
        owner
            .batch_execute(
                "ALTER TABLE items RENAME TO kept; CREATE VIEW items AS SELECT *, evil(val) FROM kept",
            )
            .unwrap();
        assert!(split.findings_with_hints().unwrap().iter().any(|text| text.contains("table exists")));
        assert!(!is_mover(&cluster), "a view on the {side}");
        owner.batch_execute("DROP VIEW items; ALTER TABLE kept RENAME TO items").unwrap();
    }
}

/// Policies of row-level security do not apply to the mover, or its queries fail. Their functions are not called.
#[test]
fn no_policy_of_an_owner_is_evaluated() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    for side in ["source", "target"] {
        let mut owner = session(&cluster, server_of(&cluster, side).name());
        owner
            .batch_execute(
                "CREATE POLICY p ON items USING (evil(val)); ALTER TABLE items ENABLE ROW LEVEL SECURITY;
                 ALTER TABLE items FORCE ROW LEVEL SECURITY",
            )
            .unwrap();
        assert!(split.findings_with_hints().unwrap().iter().any(|text| text.contains("row-level security")));
        owner.batch_execute("ALTER TABLE items NO FORCE ROW LEVEL SECURITY").unwrap();
        // The other side has no policy yet.
        let found = split.findings().unwrap();
        assert!(
            found.iter().all(|text| side == "source"
                && ["policy", "ROW LEVEL SECURITY"]
                    .iter()
                    .any(|what| text.contains(&format!("the target lacks {what}")))),
            "{found:?}"
        );
    }
    to_pending(&split);
    cut_over_and_compare(&cluster, &split);
    assert!(!is_mover(&cluster));
}

/// Code that was declared trusted runs, on the shard for which this was declared. A superuser's code runs everywhere.
#[test]
#[ignore = "make test-all: each kind of code that is trusted; make test has code_of_an_owner_stops_a_split_before_it_runs"]
fn code_of_an_owner_who_is_trusted_runs() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    for server in &cluster.servers {
        server
            .superuser(DATABASE)
            .unwrap()
            .batch_execute(
                "CREATE FUNCTION fine(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN true; END $$;
                            ALTER FUNCTION fine SET search_path = public",
            )
            .unwrap();
        session(&cluster, server.name())
            .batch_execute("ALTER TABLE items ADD CHECK (evil(val)), ADD CHECK (fine(val))")
            .unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    for server in &cluster.servers {
        let name = "ALTER ROLE mallory RENAME TO \"Mallory's %s\"";
        server.superuser(DATABASE).unwrap().batch_execute(name).unwrap();
    }
    let left = split.findings_with_hints().unwrap();
    assert_eq!(left.len(), 2, "{left:?}");
    // The statement in the hint works as it is.
    let run_hint = |master: &mut Client, finding: &str| {
        let statement = finding.split("HINT: ").nth(1).and_then(|hint| hint.split(" allows").next()).unwrap();
        master.batch_execute(statement).unwrap();
    };
    run_hint(&mut master, &left[1]);
    run_hint(&mut master, &left[1]);
    let left = split.findings_with_hints().unwrap();
    assert!(left.len() == 1 && left[0].starts_with("source:"), "{left:?}");
    run_hint(&mut master, &left[0]);
    assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
    let query =
        "SELECT count(*) FROM shard_trusted_owners() WHERE role = 'Mallory''s %s' AND said_by = 'postgres'";
    assert_eq!(master.query_one(query, &[]).unwrap().get::<_, i64>(0), 2);
    to_pending(&split);
    assert!(is_mover(&cluster));
    cut_over_and_compare(&cluster, &split);
    master.batch_execute("SELECT shard_distrust_owner('shard_a', 'Mallory''s %s')").unwrap();
    assert_eq!(master.query_one(query, &[]).unwrap().get::<_, i64>(0), 1);
}

/// A definition that changes while rows move is checked before the mover continues, and before each batch
/// that finish deletes.
#[test]
fn code_that_comes_later_stops_the_split_as_well() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    for server in &cluster.servers {
        session(&cluster, server.name())
            .batch_execute(&format!(
                "CREATE TABLE more (tenant text PRIMARY KEY, n int); GRANT ALL ON more TO {CLIENT}"
            ))
            .unwrap();
    }
    client(&cluster).batch_execute("INSERT INTO more VALUES ('moves', 1)").unwrap();
    cluster.superuser().unwrap().batch_execute("SELECT shard_table_add('more', 'tenant')").unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    for (side, trap, undo) in [
        (
            "target",
            "ALTER TABLE items ADD CONSTRAINT c CHECK (evil(val)) NOT VALID",
            "ALTER TABLE items DROP CONSTRAINT c",
        ),
        ("source", "CREATE INDEX i ON items ((steady('x')))", "DROP INDEX i"),
        ("source", "CREATE STATISTICS s ON (steady('x')), val FROM items", "DROP STATISTICS s"),
    ] {
        let mut owner = session(&cluster, server_of(&cluster, side).name());
        split.wait_settled(LIMIT).unwrap();
        cluster.hold("step_begin").unwrap();
        split.wait_held("step_begin", LIMIT).unwrap();
        owner.batch_execute(trap).unwrap();
        client(&cluster)
            .batch_execute("UPDATE items SET val = 'y' WHERE tenant = 'moves' AND id = 2")
            .unwrap();
        cluster.fault("").unwrap();
        let error = split.wait("completed", LIMIT).unwrap_err().to_string();
        assert!(error.contains("the mover would run untrusted code") && error.contains("HINT"), "{error}");
        assert!(!is_mover(&cluster), "{trap}");
        owner.batch_execute(undo).unwrap();
        split.call("replay_tail").unwrap();
    }
    split.wait_settled(LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    cluster.hold("finish_batch").unwrap();
    split.call("finish").unwrap();
    split.wait_held("finish_batch", LIMIT).unwrap();
    let trigger = "CREATE TRIGGER t AFTER DELETE ON more FOR EACH ROW EXECUTE FUNCTION fires();
                   ALTER TABLE more ENABLE ALWAYS TRIGGER t; CREATE INDEX i ON more (n) WHERE steady('x')";
    let mut owner = session(&cluster, "shard_a");
    owner.batch_execute(trigger).unwrap();
    cluster.fault("").unwrap();
    let error = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(error.contains("public.more: trigger t: function public.fires()"), "{error}");
    assert!(!is_mover(&cluster));
    owner.batch_execute("DROP TRIGGER t ON more; DROP INDEX i").unwrap();
    split.finish(LIMIT).unwrap();
    assert!(!is_mover(&cluster));
}

/// An operator's computed columns are no way to the mover's rights either.
#[test]
fn a_computed_column_runs_no_code_of_an_owner() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    session(&cluster, "shard_a")
        .batch_execute("CREATE DOMAIN d AS int CHECK (evil('x')); CREATE TYPE c AS (n d)")
        .unwrap();
    for expression in [
        "CASE WHEN public.steady('x') THEN t.code END",
        // Constants are evaluated when they are parsed.
        "CASE WHEN '(1)'::public.c IS NULL THEN t.code END",
        "CASE WHEN '{1}'::public.d[] IS NULL THEN t.code END",
        "length(table_to_xml('pg_class', true, true, '')::text)",
        "CASE WHEN pg_input_is_valid('x', 'int') THEN 1 END",
    ] {
        let map = "SELECT shard_split_map($1, 'items', 'code', $2)";
        master.execute(map, &[&split.id, &expression]).unwrap();
        let found = split.findings_with_hints().unwrap();
        assert!(found.iter().any(|text| text.contains("computed columns")), "{expression}: {found:?}");
        assert!(!is_mover(&cluster), "{expression}");
    }
}

/// A mover that is a superuser, while owners are not, is reported, and stops nothing.
#[test]
fn a_mover_with_all_rights_is_noted() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let note = "SELECT count(*), bool_and(ok AND hint IS NOT NULL) FROM shard_split_check($1) WHERE check_name LIKE '%rights of the mover'";
    let mut master = cluster.superuser().unwrap();
    assert_eq!(master.query_one(note, &[&split.id]).unwrap().get::<_, i64>(0), 0);
    for server in &cluster.servers {
        let rights = format!("ALTER ROLE {MOVER} SUPERUSER");
        server.superuser(DATABASE).unwrap().batch_execute(&rights).unwrap();
    }
    let row = master.query_one(note, &[&split.id]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, bool>(1)), (2, true));
    to_pending(&split);
    cut_over_and_compare(&cluster, &split);
}
