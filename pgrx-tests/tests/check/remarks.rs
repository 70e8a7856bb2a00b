//! Remarks of a check, which the operator has to accept by name before anything moves.

use postgres::Client;
use shardmaster_tests::Error;
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, cluster, plan, source};
use shardmaster_tests::split::Split;

type Row = (String, bool, String, String, String);

fn remarks(master: &mut Client, split: &Split<'_>) -> Vec<Row> {
    let query =
        "SELECT check_name, ok, object, detail, hint FROM shard_split_check($1) WHERE object IS NOT NULL
                  ORDER BY object COLLATE \"C\"";
    let rows = master.query(query, &[&split.id]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect()
}

fn refused(master: &mut Client, query: &str) -> Error {
    Error::from(master.batch_execute(query).unwrap_err())
}

/// Types with which a server refers to its own transactions, rows, log and catalog, also inside of other
/// types, and large objects.
const COLUMNS: &str = "
    CREATE EXTENSION lo SCHEMA pg_catalog;
    CREATE DOMAIN public.mark AS xid8;
    CREATE TYPE public.pair AS (a int, b txid_snapshot);
    GRANT USAGE ON TYPE public.mark, public.pair TO PUBLIC;
    ALTER TABLE items ADD COLUMN seen mark, ADD COLUMN \"At\" pg_lsn[], ADD COLUMN both_of pair, ADD COLUMN c tid,
        ADD COLUMN kind regclass, ADD COLUMN number oid, ADD COLUMN body lo, ADD COLUMN photo oid, ADD COLUMN plain xid;
    CREATE TRIGGER body BEFORE UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION lo_manage(body)";

#[test]
#[ignore = "make test-all: each of them accepted; make test has values_of_a_server_are_found_in_types_that_do_not_say_so"]
fn what_means_something_on_one_server_is_accepted_by_name() {
    let cluster = cluster(&[]);
    by_superusers(&cluster, COLUMNS);
    // Three of the photos belong to rows that move. One of them is in two rows.
    source(&cluster)
        .batch_execute(
            "SELECT lo_create(70000 + i) FROM generate_series(1, 5) i;
             UPDATE items SET photo = 70000 + CASE WHEN id <= 8 THEN id / 2 ELSE 4 END WHERE id IN (2, 3, 4, 6, 100);
             UPDATE items SET number = 17, kind = 'items', plain = '7' WHERE id = 2",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let split = plan(&cluster);
    let map = "SELECT shard_split_map($1, 'items', 'plain', 'plain::text::xid')";
    master.execute(map, &[&split.id]).unwrap();
    let found = remarks(&mut master, &split);
    let (values, large) = ("source: values of one server", "source: large objects");
    let names: Vec<(&str, &str)> = found.iter().map(|row| (row.0.as_str(), row.2.as_str())).collect();
    let wanted = [
        (values, "items.\"At\""),
        (large, "items.body"),
        (values, "items.both_of"),
        (values, "items.c"),
        (values, "items.kind"),
        (values, "items.number"),
        (large, "items.photo"),
        (values, "items.seen"),
    ];
    assert_eq!(names, wanted, "{found:#?}");
    assert!(found.iter().all(|row| !row.1 && row.4.contains("shard_split_accept(")), "{found:#?}");
    assert!(found[6].3.contains("names 4 large objects"), "{:?}", found[6]);
    // Nothing is installed on a shard until each of them is accepted.
    let error = split.run(|_| ()).unwrap_err();
    assert!(error.to_string().contains("the check found 8 problems"), "{error}");
    let agent = "SELECT to_regnamespace('shardmaster_agent') IS NULL";
    assert!(source(&cluster).query_one(agent, &[]).unwrap().get::<_, bool>(0));
    let id = split.id;
    let unknown =
        refused(&mut master, &format!("SELECT shard_split_accept({id}, 'source: right to own', 'items')"));
    assert_eq!(unknown.sqlstate(), Some("22023"), "{unknown}");
    let missing =
        refused(&mut master, "SELECT shard_split_accept(4711, 'source: large objects', 'items.body')");
    assert_eq!(missing.sqlstate(), Some("42704"), "{missing}");
    // One remark is accepted as its hint says, and all others by their names. The check no longer reports
    // accepted remarks.
    let hint = &found[0].4;
    master.batch_execute(hint.split_once(": ").unwrap().1.trim_end_matches('.')).unwrap();
    split.accept_remarks().unwrap();
    let nothing = format!("SELECT shard_split_accept({id}, '{values}', 'items.nothing')");
    master.batch_execute(&nothing).unwrap();
    assert!(remarks(&mut master, &split).iter().all(|row| row.1 && row.4.starts_with("Accepted by ")));
    let notes = "SELECT detail FROM shard_split_check($1) WHERE check_name = 'accepted remarks'";
    assert_eq!(
        master.query_one(notes, &[&id]).unwrap().get::<_, String>(0),
        "source: values of one server: items.nothing"
    );
    assert!(split.events().unwrap().contains("accepted: source: values of one server, items.\"At\""));
    split.run(|_| ()).unwrap();
    let late = refused(&mut master, &nothing);
    assert_eq!(late.sqlstate(), Some("55000"), "{late}");
    split.finish(LIMIT).unwrap();
    // A reverse split does not ask again, and a split that was rolled back keeps its accepted remarks.
    let back = Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    back.accept_remarks().unwrap();
    let refusals =
        |back: &Split<'_>| back.findings().unwrap().iter().filter(|f| f.contains("one server")).count();
    assert_eq!(refusals(&back), 0);
    back.call("rollback").unwrap();
    back.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(refusals(&back), 0);
}

/// A server's own values, and numbers of large objects, in columns whose types do not show it.
const FILLED: &str = "
    CREATE DOMAIN public.stamp AS bigint DEFAULT txid_current();
    CREATE FUNCTION public.mark() RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN pg_current_wal_lsn()::text; END $$;
    CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN NEW.noted := 'x' || txid_current(); NEW.relation := TG_RELID::bigint; RETURN NEW; END $$;
    CREATE FUNCTION public.log() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO Public.\"Changes\" (tenant, tx) VALUES (NEW.tenant, txid_current()); RETURN NEW; END $$;
    CREATE FUNCTION public.own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.val := NEW.val; RETURN NEW; END $$;
    GRANT USAGE ON TYPE public.stamp TO PUBLIC;
    CREATE TABLE \"Changes\" (tenant text, id serial, tx bigint, at timestamptz DEFAULT now(), PRIMARY KEY (tenant, id));
    ALTER TABLE \"Changes\" OWNER TO app_owner;
    ALTER TABLE items ADD COLUMN tx bigint DEFAULT txid_current(), ADD COLUMN lsn text DEFAULT pg_current_wal_lsn()::text,
        ADD COLUMN by_type stamp, ADD COLUMN \"By\" text DEFAULT mark(), ADD COLUMN noted text, ADD COLUMN letter text,
        ADD COLUMN lob bigint, ADD COLUMN digits text, ADD COLUMN mixed text, ADD COLUMN empty text,
        ADD COLUMN far text, ADD COLUMN other bigint, ADD UNIQUE (tenant, other), ADD COLUMN pid int DEFAULT pg_backend_pid() + 0,
        ADD COLUMN relation bigint, ADD COLUMN made_by bigint DEFAULT 'items'::regclass::oid::bigint;
    CREATE TRIGGER note BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION note();
    CREATE TRIGGER log AFTER UPDATE ON items FOR EACH ROW EXECUTE FUNCTION log();
    CREATE TRIGGER own BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION own()";

#[test]
fn values_of_a_server_are_found_in_types_that_do_not_say_so() {
    let cluster = cluster(&[]);
    by_superusers(&cluster, FILLED);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_table_add('\"Changes\"', 'tenant');
             SELECT shard_trust_owner('shard_a', 'app_owner'), shard_trust_owner('shard_b', 'app_owner')",
        )
        .unwrap();
    let split = plan(&cluster);
    let objects = |master: &mut Client| -> Vec<String> {
        remarks(master, &split).into_iter().map(|row| row.2).collect()
    };
    let filled = [
        "\"Changes\"",
        "items.\"By\"",
        "items.by_type",
        "items.lsn",
        "items.made_by",
        "items.noted",
        "items.relation",
        "items.tx",
    ];
    assert_eq!(objects(&mut master), filled, "{:#?}", split.findings());
    source(&cluster)
        .batch_execute(
            "ALTER TABLE items DISABLE TRIGGER log;
             SELECT lo_create(70000 + i) FROM generate_series(1, 5) i;
             UPDATE items SET letter = (70000 + id / 2)::text, lob = 70001, digits = '12', mixed = '70001', far = '9999999999', other = 70000 + id / 2
              WHERE id IN (2, 4, 6) AND (id = 2 OR tenant = 'moves');
             UPDATE items SET mixed = 'a text' WHERE id = 4",
        )
        .unwrap_or_else(|e| panic!("{}", Error::from(e)));
    by_superuser(&cluster, 1, "ALTER TABLE items DISABLE TRIGGER log");
    let named = [
        "\"Changes\"",
        "items.\"By\"",
        "items.by_type",
        "items.letter",
        "items.lob",
        "items.lsn",
        "items.made_by",
        "items.noted",
        "items.relation",
        "items.tx",
    ];
    let found = remarks(&mut master, &split);
    // A disabled trigger no longer writes anything.
    assert_eq!(found.iter().map(|row| row.2.as_str()).collect::<Vec<_>>(), named[1..], "{found:#?}");
    assert!(found[2].0.contains("large objects") && found[2].3.contains("all 3 values"), "{found:#?}");
    split.accept_remarks().unwrap();
    split.run(|_| ()).unwrap();
}

/// Side, event, what the trigger's function does, and the beginning of the check's finding. The finding is
/// empty if the trigger does not concern a split.
const EVENT_TRIGGERS: [(usize, &str, &str, &str); 8] = [
    (0, "sql_drop", REFUSES, "source: event triggers: DROP VIEW, as a split does, fails"),
    (
        1,
        "ddl_command_start WHEN TAG IN ('CREATE SEQUENCE')",
        REFUSES,
        "target: event triggers: CREATE SEQUENCE, as",
    ),
    (0, "sql_drop WHEN TAG IN ('DROP SCHEMA')", REFUSES, "source: event triggers: DROP SCHEMA, as"),
    (
        1,
        "ddl_command_end",
        "IF 'x' = (SELECT max(schema_name) FROM pg_event_trigger_ddl_commands()) THEN RAISE 'no'; END IF;",
        "event triggers: target: event trigger e (on ddl_command_end) calls public.e(), which may",
    ),
    (
        0,
        "ddl_command_end",
        "/* raise exception */ RAISE  NOTICE 'seen'; /* RAISE 'no' */ -- raise exception\n",
        "",
    ),
    (0, "sql_drop WHEN TAG IN ('DROP EXTENSION')", REFUSES, ""),
    (0, "table_rewrite", REFUSES, ""),
    // This trigger fires only in sessions of replicas.
    (
        1,
        "ddl_command_end",
        "IF current_setting('session_replication_role') = 'replica' THEN RAISE 'no DDL'; END IF;",
        "target: event triggers: CREATE SCHEMA, as",
    ),
];
const REFUSES: &str = "IF session_user = 'mover' THEN RAISE EXCEPTION 'no DDL on production'; END IF;";

#[test]
fn event_triggers_that_refuse_what_a_split_does_are_found_before_it_begins() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    for (number, (side, event, does, says)) in EVENT_TRIGGERS.iter().enumerate() {
        let enable = if number == 7 { "ALTER EVENT TRIGGER e ENABLE REPLICA;" } else { "" };
        let function =
            format!("CREATE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN {does} END $$");
        by_superusers(&cluster, &function);
        let create = format!("CREATE EVENT TRIGGER e ON {event} EXECUTE FUNCTION e(); {enable}");
        by_superuser(&cluster, *side, &create);
        let found = split.findings().unwrap();
        if says.is_empty() {
            assert_eq!(found, [""; 0], "{event} {does}")
        } else {
            assert!(found.len() == 1 && found[0].starts_with(says), "{says}: {found:#?}")
        }
        by_superusers(&cluster, "DROP EVENT TRIGGER IF EXISTS e; DROP FUNCTION e()");
    }
    // Nothing of the trial is left. A trigger that lets everything pass is no finding.
    let agent = "SELECT to_regnamespace('shardmaster_agent') IS NULL";
    assert!(source(&cluster).query_one(agent, &[]).unwrap().get::<_, bool>(0));
    let let_pass = "CREATE FUNCTION e() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN IF session_user = 'app' THEN RAISE 'no'; END IF; END $$;
                    CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION e(); CREATE EVENT TRIGGER d ON sql_drop EXECUTE FUNCTION e()";
    by_superusers(&cluster, let_pass);
    split.accept_remarks().unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
}
