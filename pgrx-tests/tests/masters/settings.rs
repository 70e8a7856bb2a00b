//! Settings of the master's database. The workers continue under all of them, or the error names the remedy.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, cluster, plan, rows, state_of, to_pending};
use shardmaster_tests::server::Server;
use shardmaster_tests::wait;
use shardmaster_tests::zoo::settings;

/// Settings of a database that change how statements are parsed, what they return, who runs them, and how long.
const HOSTILE: &[(&str, &str)] = &[
    ("DateStyle", "'SQL, DMY'"),
    ("IntervalStyle", "sql_standard"),
    ("TimeZone", "'Pacific/Auckland'"),
    ("extra_float_digits", "-15"),
    ("bytea_output", "escape"),
    ("client_encoding", "LATIN1"),
    ("lc_monetary", "'C'"),
    ("array_nulls", "off"),
    ("xmlbinary", "hex"),
    ("xmloption", "document"),
    ("standard_conforming_strings", "off"),
    ("backslash_quote", "off"),
    ("search_path", "odd"),
    ("row_security", "on"),
    ("synchronous_commit", "off"),
    ("lock_timeout", "1"),
    ("statement_timeout", "1"),
    ("idle_in_transaction_session_timeout", "1"),
    ("exit_on_error", "on"),
    ("default_transaction_isolation", "serializable"),
    ("default_transaction_read_only", "on"),
    ("default_transaction_deferrable", "on"),
    ("quote_all_identifiers", "on"),
    ("transform_null_equals", "on"),
    ("gin_fuzzy_search_limit", "1"),
    ("default_table_access_method", "heap"),
    ("check_function_bodies", "off"),
    ("jit", "on"),
    ("jit_above_cost", "0"),
    ("plan_cache_mode", "force_custom_plan"),
    ("client_min_messages", "debug5"),
    ("session_replication_role", "replica"),
    ("client_connection_check_interval", "1"),
    ("idle_session_timeout", "1"),
    ("work_mem", "64"),
    ("enable_indexscan", "off"),
    ("force_parallel_mode", "on"),
    ("debug_parallel_query", "on"),
    // These are not in pg_settings.
    ("role", "intruder"),
];

/// Settings that only some versions have, or have by this name.
const OF_SOME_VERSIONS: &[&str] = &[
    "client_connection_check_interval",
    "debug_parallel_query",
    "force_parallel_mode",
    "idle_session_timeout",
];

/// Settings of versions later than the one that is tested here.
const LATER: &[&str] = &["transaction_timeout"];

/// Settings of network sessions. A worker's session on the master is not one.
const OF_LINKS: &[&str] =
    &["tcp_keepalives_count", "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_user_timeout"];

/// A setting that nobody has thought about may stop every worker, as role does.
#[test]
fn every_setting_of_the_master_is_pinned_tried_or_judged() {
    let cluster = Cluster::servers(0, &["fsync = off"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    let query = "SELECT name FROM pg_settings
                  WHERE context IN ('user', 'superuser', 'backend', 'superuser-backend') AND name !~ '^shardmaster[.]'";
    let names: Vec<String> = master.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    assert!(names.len() > 100, "{names:?}");
    for name in &names {
        let is_tried = HOSTILE.iter().any(|(tried, _)| tried == name);
        let is_judged = settings::JUDGED.split_whitespace().any(|judged| judged == name);
        assert!(
            is_tried || is_judged || [LATER, OF_LINKS].concat().contains(&name.as_str()),
            "{name} is neither tried nor judged"
        );
    }
    for pinned in settings::pinned_by_workers() {
        assert!(HOSTILE.iter().any(|(tried, _)| *tried == pinned), "{pinned} is pinned and not tried");
    }
}

/// The coordinator, the lease expirer and a split's workers start under all of them.
#[test]
fn workers_go_on_under_hostile_settings() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "CREATE ROLE intruder; CREATE SCHEMA odd;
             CREATE FUNCTION odd.never(text, text) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT false';
             CREATE OPERATOR odd.= (LEFTARG = text, RIGHTARG = text, FUNCTION = odd.never);
             SELECT shard_add('v', kind => 'vector', capacity => 10)",
        )
        .unwrap();
    for (name, value) in HOSTILE {
        let is_known =
            master.query_opt("SELECT 1 FROM pg_settings WHERE name = $1", &[name]).unwrap().is_some();
        if OF_SOME_VERSIONS.contains(name) && !is_known {
            continue;
        }
        master.batch_execute(&format!("ALTER DATABASE {DATABASE} SET {name} = {value}")).unwrap();
    }
    // Running workers started before. New ones start under these settings, and this session does not have them.
    master
        .batch_execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster %'",
        )
        .unwrap();
    master.batch_execute("SELECT shard_reserve_slot('vector', 'k', 't', '300 ms')").unwrap();
    let calls = [
        ("start_dual_write", "phase = 'dual_write'"),
        ("run_backfill", "phase = 'cutover_pending'"),
        ("cutover", "phase = 'completed' AND cutover_step = 'moved'"),
        ("finish", "finished_at IS NOT NULL"),
    ];
    for (call, reached) in calls {
        master.batch_execute(&format!("SELECT shard_split_{call}({})", split.id)).unwrap();
        let reached = format!("SELECT {reached} FROM shardmaster.split_plan WHERE reverse_of IS NULL");
        wait::until_true(&mut master, &format!("{call} to be done"), LIMIT, &reached).unwrap();
    }
    assert_eq!(rows(&cluster, 1).len(), 300);
    let swept = "SELECT status = 'expired' FROM shardmaster.shard_reservation";
    wait::until_true(&mut master, "the sweeper to expire a lease", LIMIT, swept).unwrap();
}

#[test]
fn a_procedure_that_commits_says_where_it_cannot() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    let refused = master.batch_execute(&format!("BEGIN; CALL shard_split_run({})", split.id)).unwrap_err();
    assert_eq!(state_of(&refused), "25001");
    let error = refused.as_db_error().unwrap();
    assert!(error.hint().is_some_and(|hint| hint.contains("without BEGIN")), "{error:?}");
    master.batch_execute("ROLLBACK").unwrap();
    master.batch_execute(&format!("CALL shard_split_run({}, 'cutover_pending')", split.id)).unwrap();
}

/// The shard's connection string leads to a standby.
#[test]
#[ignore = "make test-all: a standby as a shard; make test has tools::error_hints::refusals_name_what_ends_them"]
fn a_standby_as_a_shard_is_told_of() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut standby = Server::standby_of(&cluster.servers[0], "standby").unwrap();
    standby.run().unwrap();
    let mut master = cluster.superuser().unwrap();
    master
        .execute(
            "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'",
            &[&standby.conninfo(DATABASE, "mover")],
        )
        .unwrap();
    let refused = master.batch_execute("SELECT shard_adopt('shard_a')").unwrap_err();
    assert_eq!(state_of(&refused), "25006");
    let error = refused.as_db_error().unwrap();
    assert!(error.hint().is_some_and(|hint| hint.contains("target_session_attrs=read-write")), "{error:?}");
}
