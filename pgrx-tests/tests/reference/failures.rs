//! Reference tables while servers and workers die, are silent, are full or are set back.

use super::replication::{
    ADD, ALL, COUNTRIES, WAIT, Writer, alike, all, contents, held, master, states, zoo,
};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, by_owner as run, by_superuser, cluster_of};
use shardmaster_tests::server::Stop;
use shardmaster_tests::single_fault::SingleFault;
use shardmaster_tests::wait;
use std::time::Duration;

const WORKER: &str =
    "SELECT pid::text FROM pg_stat_activity WHERE backend_type = 'shardmaster reference tables'";

pub fn end_worker(cluster: &Cluster) {
    master(cluster, &WORKER.replace("pid::text", "pg_terminate_backend(pid)"));
}

/// Ends the worker, and waits until another one follows.
pub fn restart_worker(cluster: &Cluster) {
    let mut session = cluster.superuser().unwrap();
    let before = all(&mut session, WORKER);
    end_worker(cluster);
    wait::until("another worker", LIMIT, || {
        let now = all(&mut session, WORKER);
        Ok((!now.is_empty() && now != before).then_some(()))
    })
    .unwrap();
}

#[test]
fn who_dies_at_a_point_goes_on_right() {
    let cluster = zoo(2);
    let writer = Writer::start(&cluster, 2);
    for point in ["begin", "snapshot", "applied", "durable", "committed", "consumed"] {
        for action in ["kill", "exit"].into_iter().take(at_most(1)) {
            // A worker that reaches the point dies there.
            SingleFault::arm(&cluster, &format!("reference_{point}"), action).unwrap().wait(LIMIT).unwrap();
        }
    }
    assert!(writer.stop() > 20);
    alike(&cluster, &ALL);
}

/// Points that are passed once: the action that leads there is done while the fault is armed.
#[test]
fn who_dies_while_it_installs_opens_or_removes_goes_on_right() {
    let cluster = zoo(2);
    alike(&cluster, &ALL);
    let writer = Writer::start(&cluster, 2);
    let (full, off) = (
        "SELECT setval('shardmaster_agent.reference_queue_1_seq', 2)",
        "ALTER TABLE plans DISABLE TRIGGER USER",
    );
    for (point, lead) in [("attached", ""), ("installed", off), ("full", full), ("dropped", "")] {
        for action in ["kill", "exit"].into_iter().take(at_most(1)) {
            let fault = SingleFault::arm(&cluster, &format!("reference_{point}"), action).unwrap();
            match point {
                "attached" => end_worker(&cluster),
                "dropped" => {
                    let mut asks = cluster.superuser().unwrap();
                    fault.by(|| asks.batch_execute("SELECT shard_table_drop('countries')")).unwrap();
                }
                _ => by_superuser(&cluster, 0, &format!("SET lock_timeout = '20s'; {lead}")),
            }
            fault.wait(LIMIT).unwrap();
            if point == "dropped" {
                nothing_is_left_of_countries(&cluster);
                master(&cluster, ADD);
            }
            wait::until("them to follow", LIMIT, || Ok(cluster.superuser()?.batch_execute(WAIT).ok()))
                .unwrap();
        }
    }
    assert!(writer.stop() > 20);
    alike(&cluster, &ALL);
}

fn nothing_is_left_of_countries(cluster: &Cluster) {
    let known = "SELECT count(*)::text FROM shardmaster.reference_table WHERE dropped";
    wait::until("it to be forgotten", LIMIT, || Ok((all(&mut *cluster.kept()?, known) == "0").then_some(())))
        .unwrap();
    let left = "SELECT count(*)::text FROM pg_trigger
                 WHERE tgname LIKE '00_shardmaster%' AND tgrelid = 'countries'::regclass";
    for server in &cluster.servers {
        assert_eq!(all(&mut server.superuser(DATABASE).unwrap(), left), "0");
    }
}

#[test]
#[ignore = "make test-all: reference tables; make test has lookups::consistency::a_shard_that_hangs_holds_up_its_own_keys_alone"]
fn others_follow_while_one_is_silent() {
    let mut cluster = zoo(3);
    alike(&cluster, &ALL);
    cluster.servers[1].hang().unwrap();
    run(&cluster, 0, "INSERT INTO countries VALUES ('while it is silent')");
    let follows = |server: usize| {
        wait::until("a shard to follow", Duration::from_secs(40), || {
            Ok((contents(&cluster, 0, "countries") == contents(&cluster, server, "countries")).then_some(()))
        })
        .unwrap();
    };
    follows(2);
    wait::until("it to be away", LIMIT, || {
        Ok(states(&cluster).contains("countries shard_a shard_b away").then_some(()))
    })
    .unwrap();
    run(&cluster, 0, "UPDATE countries SET name = 'twice'");
    follows(2);
    cluster.servers[1].wake().unwrap();
    alike(&cluster, &ALL);
    cluster.servers[1].stop(Stop::Immediate).unwrap();
    run(&cluster, 0, "DELETE FROM countries; UPDATE plans SET amount = 5");
    cluster.servers[1].run().unwrap();
    alike(&cluster, &ALL);
}

#[test]
#[ignore = "make test-all: a full queue; make test has faults::bad_input::a_worker_that_ends_while_it_clears_a_full_queue_is_followed_by_one_that_does"]
fn a_queue_that_is_full_costs_no_writer_anything() {
    let cluster = zoo(3);
    alike(&cluster, &ALL);
    // The queue is limited to a megabyte.
    cluster.set("shardmaster.queue_max_size", "1MB").unwrap();
    let told = "SELECT max_bytes = 1024 * 1024 FROM shardmaster_agent.reference_origin";
    wait::until_true(&mut cluster.servers[0].superuser(DATABASE).unwrap(), "writers to be told", LIMIT, told)
        .unwrap();
    cluster.hold("reference_begin").unwrap();
    held(&cluster, "reference_begin");
    let mut open = cluster.servers[0].superuser(DATABASE).unwrap();
    let full = "SELECT coalesce(max(last_value), 0) > 1 FROM pg_sequences
                 WHERE schemaname = 'shardmaster_agent' AND sequencename LIKE 'reference_queue%'";
    let mut round = 0;
    let mut session = cluster.servers[0].superuser(DATABASE).unwrap();
    wait::until("a queue to be full", LIMIT, || {
        round += 1;
        run(
            &cluster,
            0,
            &format!("UPDATE plans SET amount = {round} FROM generate_series(1, 20) i WHERE id <= 200"),
        );
        Ok(session.query_one(full, &[])?.get::<_, bool>(0).then_some(()))
    })
    .unwrap();
    // No queue has this change, which commits once writers are allowed again.
    open.batch_execute(
        "BEGIN; UPDATE plans SET doc = '7' WHERE id = 9; INSERT INTO countries VALUES ('late')",
    )
    .unwrap();
    run(&cluster, 0, "UPDATE plans SET doc = '8' WHERE id = 10; DELETE FROM prices WHERE plan = 11");
    cluster.fault("").unwrap();
    wait::until("the queues to be open again", LIMIT, || {
        Ok((!session.query_one(full, &[])?.get::<_, bool>(0)).then_some(()))
    })
    .unwrap();
    run(&cluster, 0, "UPDATE plans SET doc = '12' WHERE id = 12");
    std::thread::sleep(Duration::from_secs(2));
    open.batch_execute("COMMIT").unwrap();
    alike(&cluster, &ALL);
}

/// Another master replaces a lost one. The old one's remains are removed, and then the shards are like new ones.
#[test]
#[ignore = "make test-all: another master; make test has check::refusals::a_new_master_cleans_up_after_a_lost_one"]
fn what_a_lost_master_has_left_is_removed() {
    let mut cluster = cluster_of(&[], COUNTRIES);
    run(&cluster, 0, "INSERT INTO countries VALUES ('de')");
    master(&cluster, ADD);
    alike(&cluster, &["countries"]);
    cluster.master.stop(Stop::Immediate).unwrap();
    cluster.replace_master(&["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    master(&cluster, ADD);
    wait::until("the other master to be told", LIMIT, || {
        Ok(states(&cluster).contains("belongs to another master").then_some(()))
    })
    .unwrap();
    for shard in ["shard_a", "shard_b"] {
        master(&cluster, &format!("SELECT shard_adopt('{shard}')"));
        let mut session = cluster.superuser().unwrap();
        let removed = all(&mut session, &format!("SELECT object FROM shard_cleanup('{shard}')"));
        assert!(removed.contains("reference tables 1"), "{removed}");
    }
    run(&cluster, 0, "INSERT INTO countries VALUES ('fr')");
    wait::until("it to follow", LIMIT, || {
        Ok((contents(&cluster, 0, "countries") == contents(&cluster, 1, "countries")).then_some(()))
    })
    .unwrap();
    alike(&cluster, &["countries"]);
}

/// Transactions that nobody remembers, whose numbers are assigned again.
#[test]
#[ignore = "make test-all: shards of before; make test has reference::divergence::an_origin_may_fail_over"]
fn what_was_set_back_is_copied_again() {
    let mut cluster = zoo(3);
    alike(&cluster, &ALL);
    for server in [0, 1, 2] {
        cluster.servers[server].copy_disk().unwrap();
        run(&cluster, 0, "UPDATE plans SET amount = amount + 1");
        run(
            &cluster,
            0,
            &format!("INSERT INTO countries VALUES ('lost{server}'); DELETE FROM prices WHERE plan = 5"),
        );
        alike(&cluster, &ALL);
        cluster.servers[server].set_disk_back(Stop::Immediate).unwrap();
        cluster.servers[server].run().unwrap();
        for round in 0..20 {
            run(&cluster, 0, &format!("UPDATE plans SET amount = {round} WHERE id > {}", 180 + round));
        }
        alike(&cluster, &ALL);
    }
    for server in [1, 2] {
        assert!(!contents(&cluster, server, "countries").iter().any(|row| row.contains("lost0")));
    }
}
