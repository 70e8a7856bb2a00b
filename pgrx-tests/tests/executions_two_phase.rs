//! One statement on all shards or on none, whoever dies meanwhile, and nothing that is left prepared.

use postgres::Client;
use shardmaster_tests::asking::error;
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser, by_superusers, state_of};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::thread;
use std::time::{Duration, Instant};

/// Servers whose tables belong to the role `deployer`, as whom the role `dba` is connected to them.
fn stage_of(count: usize, config: &[&str]) -> Cluster {
    let mut lines = vec!["fsync = off", "max_prepared_transactions = 5", "shardmaster.tail_interval = 20"];
    lines.extend_from_slice(config);
    let cluster = Cluster::servers(count, &lines).unwrap();
    by_superusers(
        &cluster,
        "CREATE ROLE deployer LOGIN; GRANT CREATE ON SCHEMA public TO deployer; GRANT deployer TO mover; SET ROLE deployer;
         CREATE TABLE items (tenant text, id int, PRIMARY KEY (tenant, id)); CREATE TABLE runs (n serial);
         CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'never'; END$$;
         GRANT ALL ON items TO mover; GRANT ALL ON items TO app",
    );
    cluster
        .superuser()
        .unwrap()
        .batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text'); SELECT shard_assign('moves', 'shard_a');
             CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'deployer')",
        )
        .unwrap();
    cluster
}

fn stage(count: usize) -> Cluster {
    stage_of(count, &[])
}

fn dba(cluster: &Cluster) -> Client {
    cluster.master.connect(DATABASE, "dba").unwrap()
}

const INSERT: &str = "CALL shard_execute('INSERT INTO runs DEFAULT VALUES', two_phase => true)";

fn states(cluster: &Cluster) -> Vec<String> {
    let rows = cluster.superuser().unwrap().query("SELECT state FROM shard_executions()", &[]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn number(cluster: &Cluster, server: usize, query: &str) -> i64 {
    cluster.servers[server].superuser(DATABASE).unwrap().query_one(query, &[]).unwrap().get(0)
}

/// How often each shard has done it.
fn runs(cluster: &Cluster) -> Vec<i64> {
    (0..cluster.servers.len()).map(|server| number(cluster, server, "SELECT count(*) FROM runs")).collect()
}

fn prepared(cluster: &Cluster) -> i64 {
    (0..cluster.servers.len())
        .map(|server| number(cluster, server, "SELECT count(*) FROM pg_prepared_xacts"))
        .sum()
}

/// Nothing of it is open any more.
fn wait_settled(cluster: &Cluster) {
    let query = "SELECT NOT EXISTS (SELECT FROM shard_executions() WHERE state IN ('running', 'prepared', 'committing'))";
    wait::until_true(&mut cluster.superuser().unwrap(), "it to be settled", LIMIT, query).unwrap();
    assert_eq!(prepared(cluster), 0);
}

/// A call in a session of its own; what it ends with.
fn in_background(cluster: &Cluster, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    let (mut caller, call) = (dba(cluster), call.to_owned());
    thread::spawn(move || {
        let error = caller.batch_execute(&call).err()?;
        let message = error.as_db_error().map_or(String::new(), |error| error.message().to_owned());
        Some((state_of(&error).to_owned(), message))
    })
}

/// A call that is held at a point.
fn held(cluster: &Cluster, point: &str, call: &str) -> thread::JoinHandle<Option<(String, String)>> {
    cluster.hold(point).unwrap();
    let call = in_background(cluster, call);
    wait_held(cluster, point);
    call
}

fn wait_held(cluster: &Cluster, point: &str) {
    let query =
        format!("SELECT count(*) > 0 FROM pg_stat_activity WHERE query = 'held at point \"{point}\"'");
    wait::until_true(&mut cluster.superuser().unwrap(), point, LIMIT, &query).unwrap();
}

/// What a session comes past, and whether it is decided there.
const POINTS: [(&str, bool); 6] = [
    ("execution_running", false),
    ("execution_ran", false),
    ("execution_asked", false),
    ("execution_prepared", false),
    ("execution_decided", true),
    ("execution_committed", true),
];

#[test]
fn the_master_dies_at_each_point() {
    let mut cluster = stage(3);
    let mut done = 0;
    for (point, is_decided) in POINTS {
        let call = held(&cluster, point, INSERT);
        cluster.master.stop(Stop::Immediate).unwrap();
        assert!(call.join().unwrap().is_some());
        cluster.master.run().unwrap();
        wait_settled(&cluster);
        done += i64::from(is_decided);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
        cluster.fault("").unwrap();
        let id = "SELECT max(execution_id) FROM shard_executions()";
        let id: i64 = cluster.superuser().unwrap().query_one(id, &[]).unwrap().get(0);
        dba(&cluster).batch_execute(&format!("CALL shard_execute_resume({id})")).unwrap();
        done += i64::from(!is_decided);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
        assert!(states(&cluster).iter().all(|state| state == "done"), "{point}");
    }
}

#[test]
fn a_shard_dies_at_each_point() {
    let mut cluster = stage(3);
    let mut done = 0;
    // What is prepared survives, and what was decided goes on.
    for ((point, _), is_done) in POINTS.into_iter().zip([false, false, true, true, true, true]) {
        let call = held(&cluster, point, INSERT);
        cluster.servers[1].stop(Stop::Immediate).unwrap();
        cluster.fault("").unwrap();
        let outcome = call.join().unwrap();
        assert_eq!(outcome.is_none(), point == "execution_committed", "{point}: {outcome:?}");
        cluster.servers[1].run().unwrap();
        wait_settled(&cluster);
        done += i64::from(is_done);
        assert_eq!(runs(&cluster), [done; 3], "{point}");
    }
}

fn report(client: &mut Client, id: i64) -> String {
    let report = format!(
        "SELECT string_agg(concat_ws(' ', shard, state, rows, sqlstate), ', ') FROM shard_executions({id})"
    );
    client.query_one(&report, &[]).unwrap().get(0)
}

#[test]
fn all_do_it_or_none() {
    let cluster = stage(3);
    let mut dba = dba(&cluster);
    dba.batch_execute("CALL shard_execute('ALTER TABLE items ADD note text', two_phase => true)").unwrap();
    dba.batch_execute(INSERT).unwrap();
    assert_eq!(report(&mut dba, 2), "shard_a done 1, shard_b done 1, shard_c done 1");
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![1; 3], 0));
    // The last one fails in the statement, or when it is to prepare it.
    for (id, (breaks, mends, state)) in [
        ("ALTER TABLE runs ADD CONSTRAINT no CHECK (n < 0) NOT VALID", "ALTER TABLE runs DROP CONSTRAINT no", "23514"),
        (
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON runs DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION never()",
            "DROP TRIGGER late ON runs",
            "P0001",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (id, done) = (id as i64 + 3, id as i64 + 1);
        by_superuser(&cluster, 2, breaks);
        let (found, message) = error(&mut dba, INSERT);
        assert_eq!(found, state);
        assert!(message.starts_with(&format!("execution {id}: shard \"shard_c\": ")), "{message}");
        assert_eq!(report(&mut dba, id), format!("shard_a waiting, shard_b waiting, shard_c failed {state}"));
        assert_eq!((runs(&cluster), prepared(&cluster)), (vec![done; 3], 0));
        by_superuser(&cluster, 2, mends);
        dba.batch_execute(&format!("CALL shard_execute_resume({id})")).unwrap();
        assert_eq!((runs(&cluster), prepared(&cluster)), (vec![done + 1; 3], 0));
    }
    // What cannot be prepared: the server says so.
    for statement in ["CREATE TEMP TABLE kept ()", "NOTIFY news", "LISTEN news"] {
        let call = format!("CALL shard_execute('{statement}', two_phase => true)");
        assert_eq!(error(&mut dba, &call).0, "0A000", "{statement}");
    }
    // A role that the statement has set could not be told to end it.
    by_superusers(
        &cluster,
        "CREATE ROLE other; GRANT other TO deployer; GRANT INSERT ON runs TO other; GRANT USAGE ON SEQUENCE runs_n_seq TO other",
    );
    let sets = "DO $q$BEGIN SET LOCAL ROLE other; INSERT INTO runs DEFAULT VALUES; END$q$";
    dba.execute("CALL shard_execute($1, two_phase => true)", &[&sets]).unwrap();
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![4; 3], 0));
}

#[test]
fn who_may_not_prepare_is_refused_before_anything_is_done() {
    let mut cluster = stage(3);
    cluster.servers[2].configure(&["max_prepared_transactions = 0"]).unwrap();
    cluster.servers[2].restart(Stop::Fast).unwrap();
    let mut dba = dba(&cluster);
    let (state, message) = error(&mut dba, INSERT);
    assert_eq!(
        (state.as_str(), message.as_str()),
        (
            "55000",
            "execution 1: shard \"shard_c\": 0 of its max_prepared_transactions = 0 are free, and 1 are needed"
        )
    );
    assert_eq!(report(&mut dba, 1), "shard_a waiting, shard_b waiting, shard_c failed 55000");
    for call in [
        "CALL shard_execute('SELECT 1', two_phase => true, in_transaction => false)",
        "CALL shard_execute('SELECT 1', two_phase => true, wave => 2)",
    ] {
        assert_eq!(error(&mut dba, call).0, "22023", "{call}");
    }
    assert_eq!(error(&mut dba, "CALL shard_execute('SELECT 1', two_phase => NULL)").0, "22004");
    dba.batch_execute("CALL shard_execute('INSERT INTO runs DEFAULT VALUES', two_phase => true, shards => '{shard_a,shard_b}')").unwrap();
    assert_eq!(runs(&cluster), [1, 1, 0]);
}

#[test]
fn several_shards_of_one_database() {
    let cluster = Cluster::namespaces(3, &["fsync = off", "max_prepared_transactions = 3"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    for shard in ["shard_a", "shard_b", "shard_c"] {
        master.batch_execute(&format!("CREATE TABLE {shard}.runs (n serial)")).unwrap();
    }
    master
        .batch_execute(
            "CREATE ROLE deployer LOGIN; CREATE ROLE dba LOGIN; SELECT shard_grant('dba', 'operator'), shard_login_set('dba', 'deployer');
             GRANT USAGE ON SCHEMA shard_a, shard_b, shard_c TO deployer; CREATE TABLE one (n int); INSERT INTO one VALUES (0); GRANT ALL ON one TO deployer;
             GRANT ALL ON ALL TABLES IN SCHEMA shard_a, shard_b, shard_c TO deployer; GRANT ALL ON ALL SEQUENCES IN SCHEMA shard_a, shard_b, shard_c TO deployer",
        )
        .unwrap();
    let mut dba = dba(&cluster);
    dba.batch_execute(INSERT).unwrap();
    let count = "SELECT (SELECT count(*) FROM shard_a.runs) || ' ' || (SELECT count(*) FROM shard_b.runs) || ' ' ||
                        (SELECT count(*) FROM shard_c.runs) || ' ' || (SELECT count(*) FROM pg_prepared_xacts)";
    assert_eq!(master.query_one(count, &[]).unwrap().get::<_, String>(0), "1 1 1 0");
    // They lock each other: none waits for longer than for any lock, and none has done it.
    let began = Instant::now();
    assert_eq!(
        error(&mut dba, "CALL shard_execute('UPDATE one SET n = n + 1', two_phase => true)").0,
        "55P03"
    );
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let left = "SELECT n + (SELECT count(*) FROM pg_prepared_xacts) FROM one";
    assert_eq!(master.query_one(left, &[]).unwrap().get::<_, i64>(0), 0);
    // One that somebody else has is not there for them.
    master.batch_execute("BEGIN; UPDATE one SET n = n; PREPARE TRANSACTION 'of others'").unwrap();
    let (state, message) = error(&mut dba, INSERT);
    assert_eq!(state, "55000");
    assert!(
        message.ends_with("2 of its max_prepared_transactions = 3 are free, and 3 are needed"),
        "{message}"
    );
    assert_eq!(master.query_one(count, &[]).unwrap().get::<_, String>(0), "1 1 1 1");
}

/// The session of the shard that waits for a standby, after what it was told is done there, is ended.
fn loses_the_answer(cluster: &Cluster, server: usize) {
    let mut shard = cluster.servers[server].superuser(DATABASE).unwrap();
    let waits =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'deployer' AND wait_event = 'SyncRep'";
    wait::until_true(&mut shard, "an answer to be late", LIMIT, waits).unwrap();
    shard
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'deployer' AND wait_event = 'SyncRep'")
        .unwrap();
}

fn waits_for_standbys(cluster: &Cluster, server: usize, names: &str) {
    let mut shard = cluster.servers[server].superuser(DATABASE).unwrap();
    shard.batch_execute(&format!("ALTER SYSTEM SET synchronous_standby_names = '{names}'")).unwrap();
    shard.batch_execute("SELECT pg_reload_conf()").unwrap();
    let said = format!("SELECT current_setting('synchronous_standby_names') = '{names}'");
    wait::until_true(&mut cluster.servers[server].superuser(DATABASE).unwrap(), "the reload", LIMIT, &said)
        .unwrap();
}

#[test]
fn answers_are_lost() {
    let cluster = stage(3);
    // Of PREPARE: nothing is decided.
    let call = held(&cluster, "execution_ran", INSERT);
    waits_for_standbys(&cluster, 1, "nobody");
    cluster.fault("").unwrap();
    loses_the_answer(&cluster, 1);
    // The rollback waits for the standby, too.
    waits_for_standbys(&cluster, 1, "");
    assert!(call.join().unwrap().is_some());
    wait_settled(&cluster);
    assert_eq!(runs(&cluster), [0; 3]);
    // Of COMMIT PREPARED: the shard is asked, and has done it.
    let call = held(&cluster, "execution_decided", INSERT);
    waits_for_standbys(&cluster, 1, "nobody");
    cluster.fault("").unwrap();
    loses_the_answer(&cluster, 1);
    // Whoever asks waits for the standby, too: the commit is to last.
    let waits =
        "SELECT count(*) > 0 FROM pg_stat_activity WHERE usename = 'deployer' AND wait_event = 'SyncRep'";
    wait::until_true(&mut cluster.servers[1].superuser(DATABASE).unwrap(), "the question", LIMIT, waits)
        .unwrap();
    waits_for_standbys(&cluster, 1, "");
    assert_eq!(call.join().unwrap(), None);
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![1; 3], 0));
    assert_eq!(states(&cluster)[3..], ["done"; 3]);
}

#[test]
fn the_worker_dies_while_it_settles() {
    let cluster = stage(2);
    let mut done = 0;
    for (at, is_decided) in [("execution_prepared", false), ("execution_decided", true)] {
        for worker in ["execution_settling", "execution_settled"] {
            let call = held(&cluster, at, INSERT);
            cluster.superuser().unwrap().batch_execute("DELETE FROM shardmaster.fault_fired").unwrap();
            cluster
                .superuser()
                .unwrap()
                .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'")
                .unwrap();
            assert!(call.join().unwrap().is_some());
            // It is settled at once: the fault is for the one that comes next, after it is held.
            wait_settled(&cluster);
            done += i64::from(is_decided);
            let call = held(&cluster, at, INSERT);
            cluster.fault(&format!("{at}=hold,{worker}=kill")).unwrap();
            cluster
                .superuser()
                .unwrap()
                .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'")
                .unwrap();
            assert!(call.join().unwrap().is_some());
            wait::until("the worker to be killed and the server to be there again", LIMIT, || {
                let fired = "SELECT count(*) = 1 FROM shardmaster.fault_fired";
                let Ok(mut master) = cluster.superuser() else { return Ok(None) };
                Ok(master.query_one(fired, &[]).is_ok_and(|row| row.get(0)).then_some(()))
            })
            .unwrap();
            wait_settled_after_crash(&cluster);
            done += i64::from(is_decided);
            assert_eq!(runs(&cluster), [done; 2], "{at} {worker}");
        }
    }
}

/// The server may still be about to crash when the fault has fired.
fn wait_settled_after_crash(cluster: &Cluster) {
    wait::until("it to be settled", LIMIT, || {
        let query =
            "SELECT count(*) FROM shard_executions() WHERE state IN ('running', 'prepared', 'committing')";
        let Ok(mut master) = cluster.superuser() else { return Ok(None) };
        Ok(master.query_one(query, &[]).is_ok_and(|row| row.get::<_, i64>(0) == 0).then_some(()))
    })
    .unwrap();
    assert_eq!(prepared(cluster), 0);
}

/// A caller who is cancelled, or whose process ends, leaves it to the worker, which comes soon.
#[test]
fn a_caller_leaves_it_to_the_worker() {
    let cluster = stage(2);
    let mut done = 0;
    // That a process is gone is seen by the worker's clock.
    for (ends, soon) in [("pg_cancel_backend", 4), ("pg_terminate_backend", 12)] {
        for (point, is_decided) in POINTS {
            let call = held(&cluster, point, INSERT);
            let began = Instant::now();
            let end = format!(
                "SELECT {ends}(pid) FROM pg_stat_activity WHERE usename = 'dba' AND state = 'active'"
            );
            cluster.superuser().unwrap().batch_execute(&end).unwrap();
            let (state, message) = call.join().unwrap().unwrap();
            assert!(state.starts_with("57") || state == "none", "{ends} {point}: {state} {message}");
            assert!(began.elapsed() < Duration::from_secs(2), "{point}: {:?}", began.elapsed());
            wait_settled(&cluster);
            assert!(began.elapsed() < Duration::from_secs(soon), "{ends} {point}: {:?}", began.elapsed());
            done += i64::from(is_decided);
            assert_eq!(runs(&cluster), [done; 2], "{point}");
        }
    }
}

#[test]
fn a_split_and_a_statement_in_two_phases_keep_out_of_each_others_way() {
    let cluster = stage(3);
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    for point in ["execution_prepared", "execution_decided"] {
        let call = held(&cluster, point, INSERT);
        split.call("start_dual_write").unwrap();
        let waits =
            "SELECT waiting_for LIKE '%of a statement on shard \"shard_a\"%' FROM shard_split_metrics(1)";
        wait::until_true(&mut cluster.superuser().unwrap(), "the split to wait", LIMIT, waits).unwrap();
        cluster.fault("").unwrap();
        assert_eq!(call.join().unwrap(), None);
        split.wait("dual_write", LIMIT).unwrap();
        let refused = "split 1 is under way on shard \"shard_a\"";
        assert_eq!(error(&mut dba(&cluster), INSERT), ("55006".to_owned(), refused.to_owned()));
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
    }
    // Asked for when the sessions are written down and before anything is done: one of the two waits, or is refused.
    let call = held(&cluster, "execution_running", INSERT);
    split.call("start_dual_write").unwrap();
    cluster.fault("").unwrap();
    let refused = call.join().unwrap().unwrap();
    assert_eq!(refused.0, "55006");
    assert_eq!(states(&cluster)[6..], ["failed", "failed", "waiting"]);
    split.wait("dual_write", LIMIT).unwrap();
    assert_eq!((runs(&cluster), prepared(&cluster)), (vec![2; 3], 0));
}

/// The login is what it was begun with, as long as anything of it is left; without one an operator is told.
#[test]
fn a_login_that_is_no_longer_there_is_said() {
    let cluster = stage(2);
    let mut master = cluster.superuser().unwrap();
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'";
    for (id, takes, says) in [
        (1, "SELECT shard_login_drop('dba')", "role \"dba\" has no login for shard \"shard_a\""),
        (
            2,
            "SELECT shard_login_set('dba', 'other')",
            "it was begun there as \"deployer\", and the login is \"other\" by now",
        ),
    ] {
        by_superusers(&cluster, "DROP ROLE IF EXISTS other; CREATE ROLE other LOGIN");
        let call = held(&cluster, "execution_decided", INSERT);
        master.batch_execute(takes).unwrap();
        master.batch_execute(end).unwrap();
        assert!(call.join().unwrap().is_some());
        let said = format!(
            "SELECT count(*) > 0 FROM shard_status() WHERE item = 'execution {id}' AND NOT ok AND strpos(value, '{says}') > 0"
        );
        wait::until_true(&mut master, "the operator to be told", LIMIT, &said).unwrap();
        let said = format!(
            "SELECT count(*) > 0 FROM shard_executions({id}) WHERE state = 'committing' AND strpos(message, '{says}') > 0"
        );
        wait::until_true(&mut master, "the operator to be told", LIMIT, &said).unwrap();
        assert_eq!(prepared(&cluster), 2);
        master.batch_execute("SELECT shard_login_set('dba', 'deployer')").unwrap();
        wait_settled(&cluster);
        assert_eq!(runs(&cluster), [id; 2]);
    }
}

/// One shard is away: the others are ended all the same, and it as soon as it comes back.
#[test]
fn a_shard_that_is_away_keeps_no_other_waiting() {
    let mut cluster = stage(3);
    let mut done = 0;
    for (id, point, is_decided) in [(1, "execution_prepared", false), (2, "execution_decided", true)] {
        let call = held(&cluster, point, INSERT);
        cluster.servers[0].stop(Stop::Immediate).unwrap();
        cluster
            .superuser()
            .unwrap()
            .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'")
            .unwrap();
        assert!(call.join().unwrap().is_some());
        cluster.fault("").unwrap();
        let (left, ended) = if is_decided { ("committing", "done") } else { ("prepared", "waiting") };
        let all = format!(
            "SELECT array_agg(state ORDER BY shard) = '{{{left},{ended},{ended}}}' FROM shard_executions({id})"
        );
        wait::until_true(&mut cluster.superuser().unwrap(), "the others to be ended", LIMIT, &all).unwrap();
        let mut dba = dba(&cluster);
        // Nobody begins anew, or gives it up, before it is known of all.
        let resumed = wait::until("the worker to let go", LIMIT, || {
            let (state, message) =
                error(&mut dba, &format!("CALL shard_execute_resume({id}, timeout => '5 s')"));
            Ok((state != "55006").then_some((state, message)))
        })
        .unwrap();
        assert!(resumed.0.starts_with("08") && resumed.1.contains("shard_a"), "{resumed:?}");
        let given_up = wait::until("the worker to let go", LIMIT, || {
            let (state, message) =
                error(&mut dba, &format!("SELECT shard_execute_abandon({id}, timeout => '5 s')"));
            Ok((state != "55006").then_some((state, message)))
        })
        .unwrap();
        assert!(given_up.0.starts_with("08") && given_up.1.contains("shard_a"), "{given_up:?}");
        // What it has is not forgotten.
        for (statement, says) in [
            ("SELECT shard_drop('shard_a')", format!("shard \"shard_a\" is in use by execution {id}")),
            (
                "DROP EXTENSION shardmaster CASCADE",
                "cannot drop extension \"shardmaster\" while a statement in two phases is under way"
                    .to_owned(),
            ),
        ] {
            assert_eq!(error(&mut cluster.superuser().unwrap(), statement), ("55006".to_owned(), says));
        }
        // Another server that answers in its place has nothing of it, and says nothing of it.
        let set = |server: usize| {
            let conninfo = cluster.servers[server].conninfo(DATABASE, "mover");
            cluster
                .superuser()
                .unwrap()
                .execute(
                    "UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'",
                    &[&conninfo],
                )
                .unwrap();
        };
        if !is_decided {
            set(1);
            let said = format!(
                "SELECT message LIKE '%another server%' FROM shard_executions({id}) WHERE shard = 'shard_a' AND state = '{left}'"
            );
            wait::until_true(&mut cluster.superuser().unwrap(), "the other server to be seen", LIMIT, &said)
                .unwrap();
            set(0);
        }
        cluster.servers[0].run().unwrap();
        wait_settled(&cluster);
        done += i64::from(is_decided);
        assert_eq!(runs(&cluster), [done; 3]);
    }
    // For good.
    let call = held(&cluster, "execution_prepared", INSERT);
    cluster.servers[0].stop(Stop::Immediate).unwrap();
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'dba'")
        .unwrap();
    assert!(call.join().unwrap().is_some());
    let mut dba = dba(&cluster);
    wait::until("the worker to let go", LIMIT, || {
        let abandon = dba.batch_execute("SELECT shard_execute_abandon(3, force => true, timeout => '5 s')");
        Ok(abandon.is_ok().then_some(()))
    })
    .unwrap();
    assert_eq!(states(&cluster)[6..], ["abandoned"; 3]);
    let named = "SELECT count(*) = 1 FROM shard_executions(3) WHERE shard = 'shard_a' AND gid LIKE 'shardmaster_3_1_%'";
    assert!(cluster.superuser().unwrap().query_one(named, &[]).unwrap().get::<_, bool>(0));
    assert_eq!(number(&cluster, 1, "SELECT count(*) FROM pg_prepared_xacts"), 0);
}

/// What others have ended by hand is not told otherwise than it is.
#[test]
fn what_others_have_ended_is_seen() {
    let cluster = stage(2);
    let call = held(&cluster, "execution_decided", INSERT);
    let mut shard = cluster.servers[1].superuser(DATABASE).unwrap();
    let gid: String = shard.query_one("SELECT gid FROM pg_prepared_xacts", &[]).unwrap().get(0);
    shard.batch_execute(&format!("ROLLBACK PREPARED '{gid}'")).unwrap();
    cluster.fault("").unwrap();
    let unknown = "execution 1: nobody knows whether shard \"shard_b\" has done it";
    assert_eq!(call.join().unwrap(), Some(("55000".to_owned(), unknown.to_owned())));
    assert_eq!(
        (states(&cluster), runs(&cluster)),
        (vec!["done".to_owned(), "unknown".to_owned()], vec![1, 0])
    );
    assert_eq!(error(&mut dba(&cluster), "CALL shard_execute_resume(1)").0, "55000");
    dba(&cluster).batch_execute("CALL shard_execute_resume(1, retry => true)").unwrap();
    assert_eq!((states(&cluster), runs(&cluster)), (vec!["done".to_owned(); 2], vec![1, 1]));
    // By hand as it was decided.
    let call = held(&cluster, "execution_decided", INSERT);
    let gid: String = shard.query_one("SELECT gid FROM pg_prepared_xacts", &[]).unwrap().get(0);
    shard.batch_execute(&format!("COMMIT PREPARED '{gid}'")).unwrap();
    cluster.fault("").unwrap();
    assert_eq!(call.join().unwrap(), None);
    assert_eq!((states(&cluster)[2..].to_vec(), runs(&cluster)), (vec!["done".to_owned(); 2], vec![2, 2]));
}

#[test]
fn two_of_them_do_not_wait_for_each_other_without_an_end() {
    let cluster = stage(2);
    let call = held(
        &cluster,
        "execution_prepared",
        "CALL shard_execute('ALTER TABLE items ADD one int', two_phase => true)",
    );
    let began = Instant::now();
    let second = "CALL shard_execute('ALTER TABLE items ADD two int', two_phase => true)";
    let mut other = dba(&cluster);
    assert_eq!(error(&mut other, second).0, "55P03");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    cluster.fault("").unwrap();
    assert_eq!(call.join().unwrap(), None);
    other.batch_execute("CALL shard_execute_resume(2)").unwrap();
    assert_eq!((states(&cluster), prepared(&cluster)), (vec!["done".to_owned(); 4], 0));
}
