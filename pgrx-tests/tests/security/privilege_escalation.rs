//! Attempts of others to gain something by a split: nobody gains a right or a row, or can make others wait.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{
    LIMIT, client, cluster, cut_over_and_compare, let_code_be_computed, plan, to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::unqualified_names::unqualified;
use shardmaster_tests::wait;

/// Makes a role without any right in the database except for the given ones.
fn stranger(cluster: &Cluster, side: usize, rights: &str) -> Client {
    let mut superuser = cluster.servers[side].superuser(DATABASE).unwrap();
    superuser
        .batch_execute(&format!(
            "CREATE ROLE mallory LOGIN; {rights}; CREATE TABLE public.trace (caller text);
             GRANT INSERT, SELECT ON public.trace TO PUBLIC"
        ))
        .unwrap();
    cluster.servers[side].connect(DATABASE, "mallory").unwrap()
}

/// Returns the roles that have run the stranger's code.
fn callers(cluster: &Cluster, side: usize) -> Vec<String> {
    let mut superuser = cluster.servers[side].superuser(DATABASE).unwrap();
    let rows = superuser.query("SELECT DISTINCT caller FROM public.trace", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The schema of the agent exists before the mover's, with views that call a function of the stranger.
/// Neither the check nor the start reads one of them.
#[test]
fn an_agents_schema_that_somebody_else_has_made_is_not_read() {
    for side in [0, 1].into_iter().take(at_most(1)) {
        let cluster = cluster(&[]);
        let mut mallory = stranger(
            &cluster,
            side,
            &format!(
                "GRANT CREATE ON DATABASE {DATABASE} TO mallory; GRANT CREATE ON SCHEMA public TO mallory"
            ),
        );
        mallory
            .batch_execute(
                "CREATE FUNCTION public.evil() RETURNS text LANGUAGE plpgsql AS
                   $$ BEGIN INSERT INTO public.trace VALUES (current_user); RETURN 'x'; END $$;
                 CREATE SCHEMA shardmaster_agent;
                 GRANT ALL ON SCHEMA shardmaster_agent TO PUBLIC;
                 CREATE VIEW shardmaster_agent.master AS SELECT public.evil() AS identity;
                 CREATE VIEW shardmaster_agent.side AS
                     SELECT 1::bigint AS split_id, 'source'::text AS side, public.evil() AS token;
                 GRANT ALL ON ALL TABLES IN SCHEMA shardmaster_agent TO PUBLIC",
            )
            .unwrap();
        let split = plan(&cluster);
        let found = split.findings_with_hints().unwrap();
        assert!(found.iter().any(|problem| problem.contains("belongs to role mallory")), "{found:?}");
        split.call("start_dual_write").unwrap();
        let error = split.wait("dual_write", LIMIT).unwrap_err().to_string();
        assert!(error.contains("belongs to role mallory") && error.contains("HINT"), "{error}");
        assert_eq!(callers(&cluster, side), Vec::<String>::new());
        mallory.batch_execute("DROP SCHEMA shardmaster_agent CASCADE").unwrap();
        // The function is in the tables' schema.
        split.accept_remarks().unwrap();
        split.call("start_dual_write").unwrap();
        to_pending(&split);
        cut_over_and_compare(&cluster, &split);
        split.finish(LIMIT).unwrap();
        assert_eq!(callers(&cluster, side), Vec::<String>::new());
    }
}

/// A right to create objects in it, and an object that somebody else has created there, are found as well.
#[ignore = "make test-all: rights in it; make test has an_agents_schema_that_somebody_else_has_made_is_not_read"]
#[test]
fn an_agents_schema_that_somebody_else_may_fill_is_not_used() {
    let cluster = cluster(&[]);
    let mut mallory = stranger(&cluster, 0, "SELECT 1");
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let mut superuser = cluster.servers[0].superuser(DATABASE).unwrap();
    superuser.batch_execute("GRANT USAGE, CREATE ON SCHEMA shardmaster_agent TO mallory").unwrap();
    let found = split.findings_with_hints().unwrap();
    assert!(found.iter().any(|problem| problem.contains("can create objects")), "{found:?}");
    mallory
        .batch_execute(
            "CREATE FUNCTION shardmaster_agent.is_mover(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        )
        .unwrap();
    superuser.batch_execute("REVOKE ALL ON SCHEMA shardmaster_agent FROM mallory").unwrap();
    let found = split.findings_with_hints().unwrap();
    assert!(found.iter().any(|problem| problem.contains("is_mover(text)")), "{found:?}");
    superuser.batch_execute("DROP FUNCTION shardmaster_agent.is_mover(text)").unwrap();
    assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
}

/// The mover's default privileges give its objects to others, as those of applications often do. Others get
/// nothing of the agent's tables. A trigger that was put on them before stops the mover.
#[test]
fn default_privileges_of_the_mover_open_nothing_of_the_agents() {
    let cluster = cluster(&[]);
    for server in &cluster.servers {
        let given = format!(
            "CREATE ROLE mallory LOGIN; GRANT pg_read_all_data TO mallory;
             ALTER DEFAULT PRIVILEGES FOR ROLE {MOVER} GRANT ALL ON TABLES TO mallory;
             ALTER DEFAULT PRIVILEGES FOR ROLE {MOVER} GRANT ALL ON SEQUENCES TO mallory;
             ALTER DEFAULT PRIVILEGES FOR ROLE {MOVER} GRANT ALL ON SCHEMAS TO mallory"
        );
        let given = match server.superuser(DATABASE).unwrap().query_one("SHOW server_version_num", &[]) {
            Ok(row) if row.get::<_, String>(0).parse::<i32>().unwrap() < 140_000 => {
                given.replace("GRANT pg_read_all_data TO mallory;", "")
            }
            _ => given,
        };
        server.superuser(DATABASE).unwrap().batch_execute(&given).unwrap();
    }
    let split = plan(&cluster);
    to_pending(&split);
    let others = "SELECT string_agg(what, ', ') FROM (
             SELECT 'schema' FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) a
              WHERE n.nspname = 'shardmaster_agent' AND a.grantee <> n.nspowner
             UNION ALL
             SELECT c.oid::regclass::text FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
              WHERE c.relnamespace = 'shardmaster_agent'::regnamespace AND a.grantee <> c.relowner) g (what)";
    let of_others = |side: usize| -> Option<String> {
        cluster.servers[side].superuser(DATABASE).unwrap().query_one(others, &[]).unwrap().get(0)
    };
    assert_eq!((of_others(0), of_others(1)), (None, None));
    let mut mallory = cluster.servers[0].connect(DATABASE, "mallory").unwrap();
    mallory.batch_execute("CREATE TEMPORARY TABLE t ()").unwrap();
    let refused = mallory
        .batch_execute(
            "CREATE FUNCTION pg_temp.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER evil BEFORE INSERT ON shardmaster_agent.side FOR EACH ROW EXECUTE FUNCTION pg_temp.evil()",
        )
        .unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "42501", "{refused:?}");
    cut_over_and_compare(&cluster, &split);
    split.finish(LIMIT).unwrap();
    assert_eq!(of_others(0), None, "of the redirect");
    // This table existed before.
    cluster.servers[0]
        .superuser(DATABASE)
        .unwrap()
        .batch_execute(
            "CREATE FUNCTION public.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
             CREATE TRIGGER evil BEFORE INSERT ON shardmaster_agent.side FOR EACH ROW EXECUTE FUNCTION public.evil()",
        )
        .unwrap();
    let next = Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap();
    let refused = next.run(|_| ()).unwrap_err().to_string();
    assert!(
        refused.contains("trigger evil of table shardmaster_agent.side is not one of the agent's"),
        "{refused}"
    );
}

/// If somebody deletes a row of the agent's tables, the operator is told, and the row is not looked for endlessly.
#[test]
#[ignore = "make test-all: what is waited for; make test has a_targets_word_alone_decides_no_cutover"]
fn a_generation_that_is_deleted_is_waited_for() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    source
        .batch_execute(
            "DELETE FROM shardmaster_agent.generation;
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split%'",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let waits =
        "SELECT coalesce(waiting_for, '') LIKE '%in shardmaster_agent.generation of shard \"shard_a\"%'
                   FROM shard_split_metrics(1)";
    wait::until_true(&mut master, "the split to say what is missing", LIMIT, waits).unwrap();
    source
        .execute("INSERT INTO shardmaster_agent.generation VALUES ($1, 'source', 0)", &[&split.id])
        .unwrap();
    cut_over_and_compare(&cluster, &split);
    split.finish(LIMIT).unwrap();
}

#[test]
fn a_split_waits_for_no_lock_that_anybody_can_take() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let held = |point: &str| {
        split.wait_held(point, LIMIT).unwrap();
        for server in &cluster.servers {
            let query = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
            let count: i64 = server.superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0);
            assert_eq!(count, 0, "{point}");
        }
    };
    let mut calls = ["start_dual_write", "run_backfill", "cutover", "finish"].into_iter();
    for (point, phase) in [
        ("install_source", "dual_write"),
        ("step_chunk", "cutover_pending"),
        ("cutover_fenced", "completed"),
        ("finish_entered", "completed"),
    ] {
        cluster.hold(point).unwrap();
        split.call(calls.next().unwrap()).unwrap();
        held(point);
        cluster.fault("").unwrap();
        split.wait(phase, LIMIT).unwrap();
    }
}

/// A target says that it is open, with the highest possible version. That decides no cutover, the routes
/// stay, and the operator can roll back.
#[test]
fn a_targets_word_alone_decides_no_cutover() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target
        .batch_execute("UPDATE shardmaster_agent.side SET state = 'open', version = 9223372036854775807")
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let end =
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split%'";
    master.batch_execute(end).unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(error.contains("nothing else confirms") && error.contains("HINT"), "{error}");
    let route = "SELECT shard_key, routing_version FROM shard_route('moves')";
    let row = master.query_one(route, &[]).unwrap();
    assert_eq!(row.get::<_, String>(0), "shard_a");
    master.execute("SELECT shard_split_rollback($1, target_lost => true)", &[&split.id]).unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    let assigned = "SELECT shard_assign('another', 'shard_a')";
    let next: i64 = master.query_one(assigned, &[]).unwrap().get(0);
    assert_eq!(next, row.get::<_, i64>(1) + 1);
    let left = "SELECT count(*) FROM items WHERE tenant = 'moves'";
    let mut source = cluster.servers[0].superuser(DATABASE).unwrap();
    assert_eq!(source.query_one(left, &[]).unwrap().get::<_, i64>(0), 300);
    source.batch_execute("UPDATE items SET val = 'y' WHERE tenant = 'moves'").unwrap();
}

/// The servers of these tests run with RUST_BACKTRACE, which adds frames to errors.
#[test]
fn no_error_shows_how_the_library_is_made() {
    let cluster = Cluster::namespaces(0, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('numbers', 'directory', key_type => 'bigint');
             SELECT shard_add('gpu', kind => 'gpu');
             CREATE FUNCTION public.inner_error() RETURNS text LANGUAGE sql AS $$ SELECT shard_of('x', 'numbers') $$",
        )
        .unwrap();
    let mut other = cluster.superuser().unwrap();
    other.batch_execute("BEGIN; SELECT shard_reserve_slot('gpu', 'taken', 't')").unwrap();
    for call in [
        "SELECT shard_of('x', 'numbers')",
        "SELECT public.inner_error()",
        "SELECT shard_add('a', 'nonsense')",
        "SELECT shard_split_plan('a', 'b', ARRAY['x'])",
        "SELECT shard_reserve_slot('none', 'k', 't')",
        // These are errors of the server below calls of the library.
        "SET statement_timeout = '20ms'; SELECT shard_reserve_slot('gpu', 'taken', 't')",
        "SELECT shard_split_map(1, 'x', '{}')",
    ] {
        let error = master.batch_execute(call).expect_err(call);
        let error = error.as_db_error().unwrap();
        let text =
            format!("{} {:?} {:?} {:?}", error.message(), error.detail(), error.hint(), error.where_());
        for frame in ["shardmaster::", "pgrx", "core::", "std::", "   0:", ".rs:"] {
            assert!(!text.contains(frame), "{call}: {text}");
        }
    }
}

/// A shard's administrator may let it send anything. Neither a flood nor the text of an error takes this
/// server's memory, and texts are cleaned before they reach a terminal.
#[test]
fn a_shards_answers_and_errors_are_bounded() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.batch_execute("CREATE TABLE identity AS TABLE shardmaster_agent.master").unwrap();
    target.batch_execute("UPDATE shardmaster_agent.master SET identity = repeat('x', 400000000)").unwrap();
    let found = split.findings_with_hints().unwrap();
    assert!(found.iter().any(|problem| problem.contains("an answer of more than 256 MB")), "{found:?}");
    target
        .batch_execute(
            "UPDATE shardmaster_agent.master m SET identity = i.identity FROM identity i;
             CREATE FUNCTION loud() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN RAISE EXCEPTION '%', chr(27) || '[2J' || repeat('x', 50000000); END $$;
             CREATE TRIGGER loud BEFORE INSERT OR UPDATE ON shardmaster_agent.progress FOR EACH ROW EXECUTE FUNCTION loud();
             ALTER TABLE shardmaster_agent.progress ENABLE ALWAYS TRIGGER loud",
        )
        .unwrap();
    split.call("run_backfill").unwrap();
    let error = split.wait("cutover_pending", LIMIT).unwrap_err().to_string();
    assert!(error.contains("[2Jxxx") && error.contains("[cut, 50000004 bytes in all]"), "{}", error.len());
    assert!(error.len() < 10_000 && !error.contains('\u{1b}'), "{}", error.len());
    target.batch_execute("DROP TRIGGER loud ON shardmaster_agent.progress").unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Objects that a client may place before the server's own: in its temporary schema, which is searched first
/// for types and tables, and in a schema of its search_path.
const HOSTILE: &str = r#"
    CREATE TABLE public.trace (caller text);
    GRANT INSERT, SELECT ON public.trace TO PUBLIC;
    CREATE FUNCTION public.evil() RETURNS boolean LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.trace VALUES (current_user); RETURN true; END $$;
    CREATE SCHEMA hostile;
    GRANT USAGE ON SCHEMA hostile TO PUBLIC;
    DO $do$
    DECLARE
        p record;
        body text := '$$ BEGIN PERFORM public.evil(); RETURN NULL; END $$';
    BEGIN
        -- Functions with the names of those that the agent's call, and operators.
        FOR p IN SELECT f.oid, f.proname, pg_get_function_identity_arguments(f.oid) AS arguments,
                        format_type(f.prorettype, NULL) AS result
                   FROM pg_proc f
                  WHERE f.pronamespace = 'pg_catalog'::regnamespace AND f.prokind = 'f' AND NOT f.proretset
                    AND EXISTS (SELECT FROM pg_proc a WHERE a.pronamespace = 'shardmaster_agent'::regnamespace
                                   AND strpos(a.prosrc, f.proname || '(') > 0)
        LOOP
            BEGIN
                EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE plpgsql AS %s',
                               p.proname, p.arguments, p.result, body);
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
        FOR p IN SELECT o.oid, o.oprname, format_type(o.oprleft, NULL) AS l, format_type(o.oprright, NULL) AS r,
                        format_type(o.oprresult, NULL) AS result
                   FROM pg_operator o
                  WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprkind = 'b'
                    AND o.oprleft IN ('text'::regtype, 'int8'::regtype, 'int4'::regtype, '"char"'::regtype,
                                      'bool'::regtype, 'timestamptz'::regtype)
        LOOP
            BEGIN
                EXECUTE format('CREATE FUNCTION hostile.op_%s(%s, %s) RETURNS %s LANGUAGE plpgsql AS %s',
                               p.oid, p.l, p.r, p.result, body);
                EXECUTE format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.op_%s, LEFTARG = %s, RIGHTARG = %s)',
                               p.oprname, p.oid, p.l, p.r);
            EXCEPTION WHEN OTHERS THEN NULL;
            END;
        END LOOP;
        FOR p IN SELECT typname FROM pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b'
                    AND typcategory IN ('S', 'N', 'B', 'D', 'U') AND typname !~ '^pg_'
        LOOP
            EXECUTE format('CREATE DOMAIN hostile.%I AS pg_catalog.%I CHECK (public.evil())', p.typname, p.typname);
        END LOOP;
    END $do$"#;

/// Types with the same names, which precede all others.
const IN_TEMPORARY_SCHEMA: &str = r"
    DO $do$
    DECLARE
        p record;
    BEGIN
        FOR p IN SELECT typname FROM pg_catalog.pg_type WHERE typnamespace = 'pg_catalog'::regnamespace AND typtype = 'b'
                    AND typcategory IN ('S', 'N', 'B', 'D', 'U') AND typname !~ '^pg_'
        LOOP
            EXECUTE pg_catalog.format('CREATE DOMAIN pg_temp.%I AS pg_catalog.%I CHECK (public.evil())',
                                      p.typname, p.typname);
        END LOOP;
    END $do$;
    SET shardmaster_agent.mover = 'x'";

/// Writes on both sides as a client that has shadowed everything it can. The results do not matter.
fn write_with_hostile_names(cluster: &Cluster) {
    for server in &cluster.servers {
        let mut client = server.connect(DATABASE, CLIENT).unwrap();
        client.batch_execute(IN_TEMPORARY_SCHEMA).unwrap();
        for path in ["hostile, pg_catalog, public", "pg_temp, hostile, pg_catalog, public"] {
            client.batch_execute(&format!("SET search_path = {path}")).unwrap();
            for level in ["READ COMMITTED", "REPEATABLE READ"] {
                for statement in [
                    "INSERT INTO public.items VALUES ('moves', 9000, 'x', 9000)",
                    "INSERT INTO public.items VALUES ('stays', 9001, 'x', 9001)",
                    "UPDATE public.items SET val = 'y'",
                    "UPDATE public.items SET tenant = 'stays'",
                    "UPDATE public.items SET tenant = 'moves'",
                    "DELETE FROM public.items WHERE id OPERATOR(pg_catalog.<) 10",
                    "TRUNCATE public.items",
                ] {
                    let _ = client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}; {statement}"));
                    let end = if statement.starts_with("TRUNCATE") { "ROLLBACK" } else { "COMMIT" };
                    client.batch_execute(end).unwrap();
                }
            }
        }
    }
}

/// Functions with the mover's rights and the writer's search_path use no name to which the writer could give
/// another meaning. This reads their texts, and tries it.
#[test]
fn no_name_of_a_writer_runs_with_the_movers_rights() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let look = || {
        let mut functions = 0;
        for server in &cluster.servers {
            let query = "SELECT oid::regprocedure::text, prosrc FROM pg_proc
                          WHERE pronamespace = to_regnamespace('shardmaster_agent') AND prosecdef
                            AND NOT coalesce('search_path=pg_catalog, pg_temp' = ANY (proconfig), false)";
            for row in server.superuser(DATABASE).unwrap().query(query, &[]).unwrap() {
                let (function, text): (String, String) = (row.get(0), row.get(1));
                assert_eq!(unqualified(&text), Vec::<String>::new(), "{function}: {text}");
                functions += 1;
            }
        }
        assert!(functions > 1);
    };
    for server in &cluster.servers {
        server.superuser(DATABASE).unwrap().batch_execute(HOSTILE).unwrap();
    }
    look();
    write_with_hostile_names(&cluster);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    look();
    write_with_hostile_names(&cluster);
    split.finish_accepting(LIMIT).unwrap();
    look();
    write_with_hostile_names(&cluster);
    for side in [0, 1] {
        let callers = callers(&cluster, side);
        assert!(callers.iter().all(|caller| caller == CLIENT), "{callers:?}");
    }
}

/// The tables' owner has created triggers with the names of the split's own triggers. They are not mistaken
/// for installed ones.
#[test]
fn triggers_with_our_names_keep_nothing_from_being_captured() {
    let cluster = cluster(&[]);
    for (server, side) in cluster.servers.iter().zip(["s", "t"]) {
        let mut owner = server.superuser(DATABASE).unwrap();
        owner
            .batch_execute("CREATE FUNCTION public.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
            .unwrap();
        for (letter, event, each) in [
            ("i", "INSERT", "ROW"),
            ("u", "UPDATE", "ROW"),
            ("d", "DELETE", "ROW"),
            ("t", "TRUNCATE", "STATEMENT"),
        ] {
            let name = format!("00_shardmaster_1_{side}_{letter}_1");
            owner
                .batch_execute(&format!(
                    "CREATE TRIGGER \"{name}\" AFTER {event} ON items FOR EACH {each} EXECUTE FUNCTION public.nothing();
                     ALTER TABLE items ENABLE ALWAYS TRIGGER \"{name}\""
                ))
                .unwrap();
        }
    }
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    if split.wait("dual_write", LIMIT).is_err() {
        // A refusal by name is just as good.
        assert!(
            split.findings_with_hints().unwrap().iter().any(|problem| problem.contains("00_shardmaster_1_"))
        );
        return;
    }
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    client(&cluster)
        .batch_execute(
            "INSERT INTO items VALUES ('moves', 5001, 'new', 5001);
             UPDATE items SET val = 'changed' WHERE tenant = 'moves' AND id = 2;
             DELETE FROM items WHERE tenant = 'moves' AND id = 4",
        )
        .unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// A computed column is one expression, which the source's server parses by itself. A text that ends it or
/// adds something else is refused, and none of it runs.
#[test]
fn a_computed_column_is_an_expression_and_nothing_else() {
    let cluster = cluster(&[]);
    let_code_be_computed(&cluster);
    let mut master = cluster.superuser().unwrap();
    let split = plan(&cluster);
    let table: String =
        master.query_one("SELECT table_name FROM shard_tables('default')", &[]).unwrap().get(0);
    let expressions = [
        "1) FROM pg_class; DROP TABLE items; --",
        "1; DROP TABLE items",
        "1), (SELECT 2",
        "1) AS a, (2",
        "1 --",
        "1 /*",
        "code) IS NULL OR (true",
        "1 END IS NULL; DROP TABLE items; SELECT CASE WHEN true THEN 1",
        "(SELECT count(*) FROM items)",
        "pg_read_file('/etc/passwd')::int",
        "nextval('s')",
        "code IN (DELETE FROM items RETURNING 1)",
        "$1",
        "'a'' || 'b",
        "E'\\'",
        "$$a$",
    ];
    for (number, expression) in expressions.into_iter().enumerate() {
        let map = "SELECT shard_split_map($1, $2, 'code', $3)";
        match master.execute(map, &[&split.id, &table, &expression]) {
            Ok(_) => {
                let found = split.findings_with_hints().unwrap();
                let names_it = |problem: &String| problem.contains("computed columns");
                assert!(found.iter().any(names_it), "{expression}: {found:?}");
                // After a start that failed for this reason, the same refusal is given again.
                if number < 2 {
                    split.call("start_dual_write").unwrap();
                    split.wait("dual_write", LIMIT).unwrap_err();
                }
            }
            Err(error) => assert!(error.as_db_error().is_some_and(|e| e.hint().is_some()), "{error}"),
        }
    }
    for side in [0, 1] {
        let mut server = cluster.servers[side].superuser(DATABASE).unwrap();
        let rows: i64 = server.query_one("SELECT count(*) FROM items", &[]).unwrap().get(0);
        assert_eq!(rows, if side == 0 { 600 } else { 0 });
    }
    master.execute("SELECT shard_split_map($1, $2, 'code', 'code')", &[&split.id, &table]).unwrap();
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
}
