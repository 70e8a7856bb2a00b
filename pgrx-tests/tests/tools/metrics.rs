//! Metrics of a split are those of the time of the call: they come from the shards, or are unknown.

use postgres::{Client, NoTls};
use shardmaster_tests::cluster::{Cluster, DATABASE, OWNER};
use shardmaster_tests::fixture::{
    LIMIT, client, cluster, cut_over_and_compare, plan, source, state_of, to_pending,
};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const FIGURES: &str = "SELECT lag_rows, extract(epoch FROM lag)::float8, queue_bytes, tail_status,
                              unknown_since IS NOT NULL FROM shard_split_metrics($1)";

#[derive(Debug)]
struct Figures {
    lag_rows: Option<i64>,
    lag: Option<f64>,
    queue_bytes: Option<i64>,
    tail_status: Option<String>,
    is_unknown: bool,
}

fn figures(session: &mut Client, split: i64) -> Figures {
    let row = session.query_one(FIGURES, &[&split]).unwrap();
    Figures {
        lag_rows: row.get(0),
        lag: row.get(1),
        queue_bytes: row.get(2),
        tail_status: row.get(3),
        is_unknown: row.get(4),
    }
}

/// Returns a split that has caught up and is paused, with 300 changes queued since.
fn paused_with_changes(cluster: &Cluster) -> i64 {
    let split = plan(cluster);
    to_pending(&split);
    split.call("pause").unwrap();
    wait::until("the pause", LIMIT, || Ok((split.metric::<String>("activity")? == "paused").then_some(())))
        .unwrap();
    let update = "UPDATE items SET val = 'later' WHERE tenant = 'moves'";
    assert_eq!(client(cluster).execute(update, &[]).unwrap(), 300);
    split.id
}

fn assert_behind(figures: &Figures) {
    assert_eq!(figures.lag_rows, Some(300), "{figures:?}");
    assert!(figures.lag.is_some_and(|lag| lag > 0.0 && lag < 600.0), "{figures:?}");
    assert!(figures.queue_bytes.is_some_and(|bytes| bytes > 0), "{figures:?}");
    assert!(!figures.is_unknown, "{figures:?}");
}

#[test]
fn figures_are_those_of_now_or_unknown() {
    let mut cluster = cluster(&[]);
    let id = paused_with_changes(&cluster);
    let mut master = cluster.superuser().unwrap();
    assert_behind(&figures(&mut master, id));
    // The lag is beyond shardmaster.max_lag.
    wait::until("the target to be behind", LIMIT, || {
        let now = figures(&mut master, id);
        Ok((now.tail_status.as_deref() == Some("running") && now.lag >= Some(1.0)).then_some(()))
    })
    .unwrap();
    // The worker has ended, so nothing is recorded any more.
    cluster.servers[0].stop(Stop::Fast).unwrap();
    let now = figures(&mut master, id);
    assert!(now.is_unknown && now.lag.is_none() && now.lag_rows.is_none(), "{now:?}");
    assert!(now.queue_bytes.is_none() && now.tail_status.is_none(), "{now:?}");
    cluster.servers[0].run().unwrap();
    assert_behind(&figures(&mut master, id));
    Split::of(&cluster, id).call("resume").unwrap();
    wait::until("the target to catch up", LIMIT, || {
        let now = figures(&mut master, id);
        Ok((now.tail_status.as_deref() == Some("caught_up") && now.lag_rows == Some(0)).then_some(()))
    })
    .unwrap();
    cut_over_and_compare(&cluster, &Split::of(&cluster, id));
}

/// A source accepts the connection and does not answer. This costs a second, even for several splits, and
/// nothing if the caller is gone.
#[test]
fn a_silent_source_costs_a_second() {
    let cluster = cluster(&[]);
    let id = paused_with_changes(&cluster);
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_split_plan('shard_a', 'shard_b', '{stays}')").unwrap();
    master.batch_execute("UPDATE shardmaster.split_plan SET phase = 'dual_write', goal = 'backfill', activity = 'failed' WHERE id <> 1").unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let conninfo =
        format!("host=127.0.0.1 port={} dbname=app user=mover", silent.local_addr().unwrap().port());
    let update = "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'";
    master.execute(update, &[&conninfo]).unwrap();
    let began = Instant::now();
    let rows = master.query(
        "SELECT unknown_since IS NOT NULL, waiting_for FROM shard_split_metrics() WHERE reverse_of IS NULL",
        &[],
    );
    assert!(began.elapsed() < Duration::from_millis(1900), "{:?}", began.elapsed());
    let rows = rows.unwrap();
    assert_eq!(rows.iter().filter(|row| row.get::<_, bool>(0)).count(), 2);
    let texts: Vec<Option<String>> = rows.iter().map(|row| row.get(1)).collect();
    assert!(
        texts.iter().flatten().any(|text| text == "shard \"shard_a\": no answer within 1 s"),
        "{texts:?}"
    );
    let began = Instant::now();
    master.batch_execute("SET statement_timeout = '100ms'").unwrap();
    let cancelled = master.query_one(FIGURES, &[&id]).unwrap_err();
    assert_eq!(state_of(&cancelled), "57014");
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}

/// The library is not preloaded, or the server is a standby. A standby shows the metrics that it has, and
/// refuses each call that writes by its name.
#[test]
#[ignore = "make test-all: a standby; make test has routing::versions::a_standby_routes_as_the_master_does"]
fn a_standby_shows_figures_and_refuses_to_write() {
    let mut cluster = cluster(&[]);
    let id = paused_with_changes(&cluster);
    let mut standby = Server::standby_of(&cluster.master, "standby").unwrap();
    standby.run().unwrap();
    let mut there = standby.superuser(DATABASE).unwrap();
    assert_behind(&figures(&mut there, id));
    let page: String = there.query_one("SELECT shard_report()", &[]).unwrap().get(0);
    assert!(page.contains("300 changes"), "{page}");
    let functions = "SELECT p.proname::text,
            format('SELECT %s.%I(%s)', p.pronamespace::regnamespace, p.proname, (SELECT string_agg('NULL::' || format_type(t, NULL), ', ' ORDER BY n)
                      FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (t, n)))
          FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
          JOIN pg_extension e ON e.oid = d.refobjid AND d.refclassid = 'pg_extension'::regclass
         WHERE e.extname = 'shardmaster' AND p.provolatile = 'v' AND p.proparallel = 'u' AND p.prokind = 'f'
           AND p.proname IN (SELECT r.routine FROM shardmaster.routine_levels() r UNION ALL SELECT p.proname WHERE p.pronamespace = 'public'::regnamespace)
           -- These read.
           AND p.proname NOT IN ('shard_split_wait', 'split_wait_for_change', 'split_figures', 'split_line', 'split_account', 'split_in_vain',
                                 'shard_check', 'shard_split_check', 'shard_split_diagnose', 'shard_split_to_call', 'shard_gateway_config', 'shard_range_midpoint', 'shard_credentials', 'shard_logins',
                                 'shard_reference_wait', 'shard_report')";
    let functions = there.query(functions, &[]).unwrap();
    assert!(functions.len() > 35, "{}", functions.len());
    for row in &functions {
        let (name, call): (String, String) = (row.get(0), row.get(1));
        let shown = match name.as_str() {
            "split_next_call" => "shard_split_run",
            "execution_begin" => "shard_execute",
            "shard_assign_found" => "shard_unassigned",
            "execution_take" | "execution_step" => "shard_execute_resume",
            "guard_begin" | "guard_step" => "shard_guard_install",
            "misplaced_begin" | "misplaced_step" => "shard_misplaced_move",
            name => name,
        };
        // Aliases of the calls are reported by the first name.
        let shown = match shown.strip_prefix("shard_") {
            Some(_) => shown.to_owned(),
            None => format!("shard_{shown}"),
        };
        let refused = there.batch_execute(&call).expect_err(&call);
        assert_eq!(state_of(&refused), "25006", "{call}: {refused}");
        let error = refused.as_db_error().unwrap();
        assert_eq!(error.message(), format!("cannot execute {shown}() on a standby"));
        assert_eq!(error.hint(), Some("Run it on the primary."));
    }
    let refused = there.batch_execute("CALL shard_split_run(1)").unwrap_err();
    assert_eq!(state_of(&refused), "25006");
    drop((there, standby));
    cluster.master.configure(&["shared_preload_libraries = ''"]).unwrap();
    cluster.master.restart(Stop::Fast).unwrap();
    assert_behind(&figures(&mut cluster.superuser().unwrap(), id));
}

/// The tail fails, is repaired and resumed. The error's DETAIL is reported wherever the error is.
#[test]
#[ignore = "make test-all: a failure; make test has tools::diagnose::what_is_wrong_on_a_shard_is_told_with_its_place"]
fn a_failed_tail_tells_its_detail_and_goes_on() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    source(&cluster).batch_execute("CREATE TABLE heir () INHERITS (items)").unwrap();
    wait::until("the failure", LIMIT, || Ok((split.metric::<String>("activity")? == "failed").then_some(())))
        .unwrap();
    assert_eq!(split.metric::<Option<String>>("tail_status").unwrap().as_deref(), Some("failed"));
    let detail: Option<String> = split.metric("error_detail").unwrap();
    assert!(detail.as_ref().is_some_and(|text| text.contains("heir inherits from it")), "{detail:?}");
    let mut master = cluster.superuser().unwrap();
    for call in [
        "SELECT shard_split_wait(1, 'completed')",
        "SELECT shardmaster.split_next_call(1, 'completed', false)",
    ] {
        let raised = master.batch_execute(call).unwrap_err();
        let raised = raised.as_db_error().and_then(|error| error.detail()).map(str::to_owned);
        assert_eq!(raised, detail, "{call}");
    }
    source(&cluster).batch_execute("DROP TABLE heir").unwrap();
    split.call("resume").unwrap();
    wait::until("the tail to go on", LIMIT, || {
        let status: Option<String> = split.metric("tail_status")?;
        Ok((status.as_deref() == Some("caught_up")).then_some(()))
    })
    .unwrap();
    let stored = "SELECT g.tail_status = 'caught_up' AND p.error_detail IS NULL
                    FROM shardmaster.split_plan p JOIN shardmaster.split_progress g ON g.split_id = p.id";
    wait::until_true(&mut master, "the worker to write it down", LIMIT, stored).unwrap();
    assert_eq!(split.metric::<Option<String>>("error_detail").unwrap(), None);
    cut_over_and_compare(&cluster, &split);
}

/// A secret in the DETAIL of a shard's error is not passed on.
#[test]
fn details_keep_the_secret() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    // The agent's own row is refused, and DETAIL contains it.
    source(&cluster)
        .batch_execute(
            "CREATE SCHEMA shardmaster_agent AUTHORIZATION mover;
             CREATE TABLE shardmaster_agent.side (split_id bigint NOT NULL, side text NOT NULL, state text NOT NULL,
                 version bigint, token text NOT NULL, shard text NOT NULL, other_shard text NOT NULL,
                 namespace text, keyspace text, entries text, PRIMARY KEY (split_id, side), CHECK (side <> 'source'));
             ALTER TABLE shardmaster_agent.side OWNER TO mover",
        )
        .unwrap();
    split.call("start_dual_write").unwrap();
    wait::until("the failure", LIMIT, || Ok((split.metric::<String>("activity")? == "failed").then_some(())))
        .unwrap();
    let detail: Option<String> = split.metric("error_detail").unwrap();
    let token: String = cluster
        .superuser()
        .unwrap()
        .query_one("SELECT token FROM shardmaster.split_plan WHERE reverse_of IS NULL", &[])
        .unwrap()
        .get(0);
    assert!(detail.as_ref().is_some_and(|text| text.contains("capture, null, ...")), "{detail:?}");
    assert!(!detail.unwrap_or_default().contains(&token));
}

/// The metrics contain the number of changes, and the time of the newest one.
#[test]
#[ignore = "make test-all: more figures; make test has figures_are_those_of_now_or_unknown"]
fn the_last_event_is_the_newest_change() {
    let cluster = cluster(&[]);
    let id = paused_with_changes(&cluster);
    let mut clock = source(&cluster);
    let written: f64 =
        clock.query_one("SELECT extract(epoch FROM clock_timestamp())::float8", &[]).unwrap().get(0);
    let later = format!("SELECT extract(epoch FROM clock_timestamp()) > {written} + 1");
    wait::until_true(&mut clock, "a second to pass", LIMIT, &later).unwrap();
    let split = Split::of(&cluster, id);
    split.call("resume").unwrap();
    wait::until("the changes", LIMIT, || {
        Ok((split.metric::<Option<i64>>("last_event_id")? == Some(300)).then_some(()))
    })
    .unwrap();
    let at: f64 = split.metric("extract(epoch FROM last_event_ts)::float8").unwrap();
    assert!(at <= written && at > written - 60.0, "{at} {written}");
    cut_over_and_compare(&cluster, &split);
    assert_eq!(split.metric::<Option<i64>>("last_event_id").unwrap(), Some(300));
}

/// A worker reports which shard it connects to, until it is connected.
#[test]
#[ignore = "make test-all: what is waited for; make test has tools::split_run::a_run_names_whom_it_waits_for_and_ends_with_an_account"]
fn what_is_waited_for_is_named_and_is_over_when_it_is() {
    let cluster = cluster(&["shardmaster.remote_timeout = '5s'"]);
    let split = plan(&cluster);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut master = cluster.superuser().unwrap();
    let port = silent.local_addr().unwrap().port();
    let update = "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_b'";
    master.execute(update, &[&format!("host=127.0.0.1 port={port} dbname=app user=mover")]).unwrap();
    split.call("start_dual_write").unwrap();
    split.wait_held("connecting to shard \"shard_b\"", LIMIT).unwrap();
    let waits_on: String = split.metric("waiting_on").unwrap();
    assert!(["connection", "other"].contains(&waits_on.as_str()), "{waits_on}");
    master.execute(update, &[&cluster.servers[1].conninfo(DATABASE, "mover")]).unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split.wait_held("waiting for shard_split_run_backfill", LIMIT).unwrap();
    // A new worker connects and then waits for a lock that it cannot foresee.
    let mut table = source(&cluster);
    table.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE").unwrap();
    split.call("run_backfill").unwrap();
    let mut watch = source(&cluster);
    let text = "SELECT query FROM pg_stat_activity WHERE backend_type = 'shardmaster split 1'";
    wait::until_true(
        &mut watch,
        "the reader to wait",
        LIMIT,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name LIKE '%reader' AND wait_event_type = 'Lock'",
    )
    .unwrap();
    let says: String = master.query_one(text, &[]).unwrap().get(0);
    assert_eq!(says, "copying");
    table.batch_execute("COMMIT").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

const HASHED: &str = "
    SELECT shard_keyspace_add('h', 'hash', 16, 'text', '{shard_a,shard_a}');
    SELECT shard_table_add('hashed', 'tenant', 'h')";

/// Makes a hash keyspace with rows of other buckets on the target. A shard without the extension takes long
/// to read its keys.
fn hashed(cluster: &Cluster, rows: u32) -> i64 {
    for (server, keys) in [(0, "none"), (1, "key")] {
        let mut owner = cluster.servers[server].superuser(DATABASE).unwrap();
        owner
            .batch_execute(&format!(
                "SET ROLE {OWNER}; CREATE TABLE hashed (tenant text, id int, PRIMARY KEY (id));
                 INSERT INTO hashed SELECT 'key', i FROM generate_series(1, {rows}) i WHERE '{keys}' = 'key'"
            ))
            .unwrap();
    }
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(HASHED).unwrap();
    let bucket: i32 = master.query_one("SELECT shard_for('key'::text, 16)", &[]).unwrap().get(0);
    let other = [((bucket + 1) % 16).to_string()];
    let query = "SELECT shard_split_plan('shard_a', 'shard_b', $1, keyspace => 'h')";
    master.query_one(query, &[&other.as_slice()]).unwrap().get(0)
}

const FINDINGS: &str = "SELECT format('%s: %s', check_name, detail), ok FROM shard_split_check($1) WHERE NOT ok OR hint IS NOT NULL";

fn findings(session: &mut Client, split: i64) -> Vec<(String, bool)> {
    session.query(FINDINGS, &[&split]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
}

#[test]
#[ignore = "make test-all: how long a check takes; make test has check::refusals::the_check_finds_what_the_servers_know"]
fn a_check_takes_as_long_as_a_table_is_big() {
    let cluster = cluster(&[]);
    let id = hashed(&cluster, 1_000_000);
    cluster.set("shardmaster.remote_timeout", "500ms").unwrap();
    let mut config = cluster.master.config(DATABASE, "postgres");
    let mut caller = config.application_name("checks").connect(NoTls).unwrap();
    let token = caller.cancel_token();
    let checking = std::thread::spawn(move || caller.query(FINDINGS, &[&id]).map(|rows| rows.len()));
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let scans = "SELECT count(*) = 1 FROM pg_stat_activity
                  WHERE application_name LIKE 'shardmaster split % check' AND query LIKE '%hashed%' AND state = 'active'
                    AND query_start < clock_timestamp() - interval '700 ms'";
    wait::until_true(&mut target, "a look through the table for longer than the limit", LIMIT, scans)
        .unwrap();
    token.cancel_query(NoTls).unwrap();
    let cancelled = checking.join().unwrap().unwrap_err();
    assert_eq!(state_of(&cancelled), "57014");
    let gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'shardmaster%'";
    wait::until_true(&mut target, "the session to end", Duration::from_secs(5), gone).unwrap();
    target.batch_execute("DELETE FROM hashed WHERE id > 20000").unwrap();
    // Rows are added until this machine needs longer for an answer than the limit.
    loop {
        let began = Instant::now();
        let found = findings(&mut cluster.superuser().unwrap(), id);
        // The check always reports where the values of the key come from.
        let keys = "unique keys without the shard-by column: public.hashed: index hashed_pkey (id): values of \"id\" (integer) come from the application";
        assert_eq!(found, [(keys.to_owned(), true)]);
        if began.elapsed() > Duration::from_millis(600) {
            break;
        }
        let more = "INSERT INTO hashed SELECT 'key', i FROM (SELECT max(id) AS m FROM hashed) h,
                    generate_series(m + 1, 2 * m) i";
        target.batch_execute(more).unwrap();
    }
    // An error of a query with a limit names its purpose.
    target
        .batch_execute("BEGIN; LOCK TABLE pg_catalog.pg_subscription_rel IN ACCESS EXCLUSIVE MODE")
        .unwrap();
    let found = findings(&mut cluster.superuser().unwrap(), id);
    let wanted = "target: connection: shard \"shard_b\": what its tables are like: no answer within 0.5 s";
    assert!(found.iter().any(|(text, ok)| text == wanted && !ok), "{found:?}");
    assert!(!found.iter().any(|(text, _)| text.contains("in progress")), "{found:?}");
}

/// Everything is to move, and the check reports rows that do not.
#[test]
#[ignore = "make test-all: rows that stay; make test has check::refusals::the_check_finds_what_the_servers_know"]
fn rows_that_stay_are_told_of() {
    let cluster = cluster(&[]);
    for server in [0, 1] {
        let mut owner = cluster.servers[server].superuser(DATABASE).unwrap();
        owner
            .batch_execute(&format!("SET ROLE {OWNER}; CREATE TABLE loose (tenant text, id int PRIMARY KEY)"))
            .unwrap();
    }
    source(&cluster)
        .batch_execute(
            "INSERT INTO loose SELECT CASE i % 3 WHEN 0 THEN 'moves' WHEN 1 THEN 'nobody' END, i
               FROM generate_series(1, 30) i;
             INSERT INTO items SELECT 'other ' || i, i, 'x', i FROM generate_series(1, 2000) i",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_table_add('loose', 'tenant', key_type => 'text')").unwrap();
    let query = "SELECT shard_split_plan_all('shard_a', 'shard_b')";
    let id: i64 = master.query_one(query, &[]).unwrap().get(0);
    let found = findings(&mut master, id);
    let wanted = [
        "source: rows that stay: public.items: at least 1001 of keys that are not in the plan, such as \"other 1\"",
        "source: rows that stay: public.loose: 10 without a key, 10 of keys that are not in the plan, such as \"nobody\"",
        "unique keys without the shard-by column: public.loose: index loose_pkey (id): values of \"id\" (integer) come from the application",
    ];
    assert_eq!(found, wanted.map(|text| (text.to_owned(), true)));
    Split::of(&cluster, id).run(|_| ()).unwrap();
    Split::of(&cluster, id).finish(LIMIT).unwrap();
    let left = "SELECT (SELECT count(*) FROM loose), (SELECT count(*) FROM items)";
    let left = source(&cluster).query_one(left, &[]).unwrap();
    assert_eq!((left.get::<_, i64>(0), left.get::<_, i64>(1)), (20, 2000));
}

/// During a cutover the split is working, and does not wait for a call.
#[test]
#[ignore = "make test-all: a cutover; make test has figures_are_those_of_now_or_unknown"]
fn a_cutover_is_work() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_fenced").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_fenced", LIMIT).unwrap();
    assert_eq!(split.metric::<String>("activity").unwrap(), "working");
    cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
    wait::until("the split to rest", LIMIT, || {
        Ok((split.metric::<String>("activity")? == "idle").then_some(()))
    })
    .unwrap();
}

/// An idle split always reports what it waits for, even while it follows its source.
#[test]
#[ignore = "make test-all: figures of one that rests; make test has figures_are_those_of_now_or_unknown"]
fn a_split_that_rests_says_so_all_the_time() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    split.wait_settled(LIMIT).unwrap();
    cluster.hold("step_snapshot").unwrap();
    split.wait_held("step_snapshot", LIMIT).unwrap();
    cluster.fault("").unwrap();
    let mut table = source(&cluster);
    // The split is in the middle of a step, which waits for a lock.
    table.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE").unwrap();
    wait::until_true(
        &mut source(&cluster),
        "the reader to wait",
        LIMIT,
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name LIKE '%reader' AND wait_event_type = 'Lock'",
    )
    .unwrap();
    assert_eq!(split.metric::<String>("waiting_for").unwrap(), "waiting for shard_split_cutover");
    assert_eq!(split.metric::<String>("waiting_on").unwrap(), "call");
    table.batch_execute("COMMIT").unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// A step finds its tables by indexes of the catalogs, so its cost does not grow with the number of other
/// tables in the database.
#[test]
#[ignore = "make test-all: a thousand other tables; make test has split::round_trips::a_step_that_finds_nothing_is_three_ways_there_and_back"]
fn a_step_does_not_read_catalogs_of_other_tables() {
    let cluster = cluster(&[]);
    for server in &cluster.servers {
        let mut owner = server.superuser(DATABASE).unwrap();
        owner
            .batch_execute(&format!("CREATE SCHEMA others AUTHORIZATION {OWNER}; SET ROLE {OWNER}"))
            .unwrap();
        for from in [1, 501] {
            let tables = format!(
                "DO $$ BEGIN FOR i IN {from}..{from} + 499 LOOP
                     EXECUTE format('CREATE TABLE others.t%s (id int PRIMARY KEY CHECK (id > 0), v text DEFAULT lower(''x''))', i);
                 END LOOP; END $$"
            );
            owner.batch_execute(&tables).unwrap();
        }
        owner.batch_execute("RESET ROLE; ANALYZE").unwrap();
    }
    let split = plan(&cluster);
    to_pending(&split);
    let before: Vec<i64> = cluster.servers.iter().map(read_of_catalogs).collect();
    for step in 0..STEPS {
        let update = "UPDATE items SET val = $1 WHERE tenant = 'moves'";
        assert_eq!(client(&cluster).execute(update, &[&step.to_string()]).unwrap(), 300);
        let arrived = format!("SELECT bool_and(val = '{step}') FROM items WHERE tenant = 'moves'");
        let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
        wait::until_true(&mut target, "the change on the target", LIMIT, &arrived).unwrap();
    }
    for (server, before) in cluster.servers.iter().zip(before) {
        let read = read_of_catalogs(server) - before;
        // Sessions report their reads a second late, so some of them belong to the time before the first step.
        assert!(read < i64::from(STEPS) * 3_000, "{read} rows of catalogs were read in {STEPS} steps");
    }
}

const STEPS: i32 = 100;

/// Returns the number of rows that sequential scans of catalogs have read on a server.
fn read_of_catalogs(server: &Server) -> i64 {
    let read = "SELECT sum(seq_tup_read)::bigint FROM pg_stat_sys_tables
                 WHERE relname IN ('pg_class', 'pg_attribute', 'pg_type', 'pg_depend', 'pg_constraint', 'pg_attrdef', 'pg_index')";
    server.superuser(DATABASE).unwrap().query_one(read, &[]).unwrap().get(0)
}
