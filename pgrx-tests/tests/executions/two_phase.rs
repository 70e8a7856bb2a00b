//! One statement on all shards or on none, whatever dies meanwhile. No transaction stays prepared.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::LIMIT;
use shardmaster_tests::queries::error;
use shardmaster_tests::server::Stop;
use shardmaster_tests::two_phase::{INSERT, dba, held, number, prepared, runs, stage, states, wait_settled};
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// The points that a session passes, and whether it has decided there.
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
#[ignore = "make test-all: a shard; make test has the_master_dies_at_each_point"]
fn a_shard_dies_at_each_point() {
    let mut cluster = stage(3);
    let mut done = 0;
    // Prepared transactions survive, and decided ones are committed.
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

/// Terminates the session of the shard that waits for a standby, after it has done its work.
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
    // The answer to PREPARE is lost, and nothing is decided.
    let call = held(&cluster, "execution_ran", INSERT);
    waits_for_standbys(&cluster, 1, "nobody");
    cluster.fault("").unwrap();
    loses_the_answer(&cluster, 1);
    // The rollback also waits for the standby.
    waits_for_standbys(&cluster, 1, "");
    assert!(call.join().unwrap().is_some());
    wait_settled(&cluster);
    assert_eq!(runs(&cluster), [0; 3]);
    // The answer to COMMIT PREPARED is lost. The shard is asked, and has committed.
    let call = held(&cluster, "execution_decided", INSERT);
    waits_for_standbys(&cluster, 1, "nobody");
    cluster.fault("").unwrap();
    loses_the_answer(&cluster, 1);
    // The query waits for the standby as well, because the commit must last.
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
            // It is settled at once. The fault is set for the next one, after it is held.
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

/// If a caller is cancelled or its process ends, the worker settles the execution soon.
#[test]
#[ignore = "make test-all: a caller who leaves; make test has the_worker_dies_while_it_settles"]
fn a_caller_leaves_it_to_the_worker() {
    let cluster = stage(2);
    let mut done = 0;
    // The worker notices by its timer that a process is gone.
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

/// One shard is away. The others' transactions are ended, and its own as soon as it is back.
#[test]
#[ignore = "make test-all: a shard that is away; make test has executions::statements::a_resume_goes_on_beside_a_shard_that_is_away"]
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
        // Nobody can retry or abandon it before the state of all shards is known. Both calls wait for the
        // worker, which tries repeatedly.
        let resumed = error(&mut dba, &format!("CALL shard_execute_resume({id}, timeout => '5 s')"));
        assert!(resumed.0.starts_with("08") && resumed.1.contains("shard_a"), "{resumed:?}");
        let given_up = error(&mut dba, &format!("SELECT shard_execute_abandon({id}, timeout => '5 s')"));
        assert!(given_up.0.starts_with("08") && given_up.1.contains("shard_a"), "{given_up:?}");
        // What the shard has prepared is not forgotten.
        for (statement, says) in [
            ("SELECT shard_drop('shard_a')", format!("shard \"shard_a\" is in use by execution {id}")),
            (
                "DROP EXTENSION shardmaster CASCADE",
                "cannot drop extension \"shardmaster\" while an execution in two phases is unfinished"
                    .to_owned(),
            ),
        ] {
            assert_eq!(error(&mut cluster.superuser().unwrap(), statement), ("55006".to_owned(), says));
        }
        // Another server that answers in its place has nothing of it, and this proves nothing.
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
                "SELECT message LIKE '%is not the server that ran%' FROM shard_executions({id}) WHERE shard = 'shard_a' AND state = '{left}'"
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
    // The shard is gone for good.
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
