//! Chunks are copied at the same time. Whatever clients do to their rows meanwhile, and whatever fails
//! between two chunks, the target has each row once and unchanged.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::copy_streams::{TABLE, busy_writers, fill, stage, to_backfill, wait_until_they_end};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{
    LIMIT, by_owner, by_superuser, cut_over_and_compare, plan, rows, source, state_of,
};
use shardmaster_tests::random::{Random, seed};
use shardmaster_tests::relay::Relay;
use shardmaster_tests::relayed_cluster::RelayedCluster;
use shardmaster_tests::server::Stop;
use shardmaster_tests::single_fault::SingleFault;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// The table has a constraint for whose values rows compete.
const UNIQUE: &str = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant), UNIQUE (code, tenant))";
/// The rows fill three chunks, and one more.
const IDS: [i32; 2] = [1001, 25_000];
/// The number of rows for a table with twelve leaves, each of which is a chunk.
const FEW: i32 = 4_000;
const FEW_IDS: [i32; 2] = [1001, 5_000];

fn filled(streams: usize) -> Cluster {
    let cluster = stage(UNIQUE, streams, &[]);
    fill(&cluster, IDS);
    cluster
}

/// A client that moves rows from block to block, and values of unique columns from row to row.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Writer {
    fn start(cluster: &Cluster, seed: u64) -> Writer {
        Writer::start_on(cluster, 0, seed)
    }

    fn start_on(cluster: &Cluster, server: usize, seed: u64) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let config = cluster.servers[server].config(DATABASE, CLIENT);
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut random, mut done) = (Random::new(seed), 0);
            let mut session: Option<Client> = None;
            while !is_over.load(Ordering::Relaxed) {
                // The server may be down for a while.
                let Some(client) = session.as_mut() else {
                    session = config.connect(postgres::NoTls).ok();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    continue;
                };
                match client.batch_execute(&statement(&mut random)) {
                    Ok(()) => {
                        done += 1;
                        wait::rest();
                    }
                    Err(error) => match state_of(&error) {
                        "SM001" => break,
                        "SM002" | "40001" | "40P01" | "23505" => {
                            let _ = client.batch_execute("ROLLBACK");
                        }
                        "none" | "57P01" | "57P02" | "57P03" => session = None,
                        _ => panic!("{error}"),
                    },
                }
            }
            done
        });
        Writer { stop, thread: Some(thread) }
    }

    /// Returns how many of its transactions were committed.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn statement(random: &mut Random) -> String {
    let [one, other] = [(); 2].map(|()| 1001 + random.below(usize::try_from(FEW).unwrap()));
    let of = |id: usize| format!("tenant = 'moves' AND id = {id}");
    match random.below(6) {
        // The row moves to another block.
        0 => format!("UPDATE items SET val = repeat('y', 1100) || {} WHERE {}", random.below(1000), of(one)),
        1 => format!("DELETE FROM items WHERE {}", of(one)),
        2 => format!("INSERT INTO items VALUES ('moves', {one}, 'again', {one}) ON CONFLICT DO NOTHING"),
        // The row gets another row's value in the transaction that deletes that row.
        3 => format!(
            "BEGIN; DELETE FROM items WHERE {}; UPDATE items SET code = {other} WHERE {}; COMMIT",
            of(other),
            of(one)
        ),
        // Two rows exchange their values.
        4 => format!(
            "BEGIN;
             UPDATE items SET code = -code WHERE tenant = 'moves' AND id IN ({one}, {other}) AND code > 0;
             UPDATE items t SET code = -o.code FROM items o WHERE t.tenant = 'moves' AND o.tenant = 'moves' AND t.code < 0 AND o.code < 0 AND t.id <> o.id;
             UPDATE items SET code = -code WHERE tenant = 'moves' AND code < 0;
             COMMIT"
        ),
        _ => format!("UPDATE items SET val = val || 'z' WHERE {}", of(one)),
    }
}

/// Each chunk is copied by a session of its own, and chunks are committed in their order.
#[test]
#[ignore = "make test-all: no fault; make test has a_worker_that_ends_goes_on"]
fn streams_copy_at_the_same_time() {
    let cluster = filled(3);
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(busy_writers(&cluster), 3);
    let before = rows(&cluster, 1).len();
    cluster.hold("stream_committed").unwrap();
    split.wait_held("stream_committed", LIMIT).unwrap();
    assert_eq!(busy_writers(&cluster), 2);
    assert!(rows(&cluster, 1).len() > before);
    let writer = Writer::start(&cluster, 1);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    // None of them is needed from here on.
    wait_until_they_end(&cluster);
    cut_over_and_compare(&cluster, &split);
    assert!(writer.end() > 0);
}

/// Returns a table with twelve leaves, each of which is a chunk.
fn leaves() -> String {
    let leaf =
        |n| format!("CREATE TABLE items_{n} PARTITION OF items FOR VALUES WITH (modulus 12, remainder {n})");
    let leaves: Vec<String> = (0..12).map(leaf).collect();
    format!(
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY HASH (id); {}",
        leaves.join("; ")
    )
}

/// Plans a split from one server to the other. The next one goes back.
fn plan_from(cluster: &Cluster, from: usize) -> Split<'_> {
    let [source, target] = [from, 1 - from].map(|server| &*cluster.shards[server].key);
    Split::plan(cluster, source, target, &["moves"]).unwrap()
}

/// Moves the tenant with a fault while a client writes.
fn survives(cluster: &mut Cluster, (from, seed): (usize, usize), fault: impl FnOnce(&mut Cluster, i64)) {
    let writer = Writer::start_on(cluster, from, seed as u64);
    let id = plan_from(cluster, from).id;
    let split = Split::of(cluster, id);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    fault(cluster, id);
    arrives(cluster, &Split::of(cluster, id), (from, seed), writer);
}

fn arrives(cluster: &Cluster, split: &Split<'_>, (from, seed): (usize, usize), writer: Writer) {
    split.wait("cutover_pending", LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    writer.end();
    assert_eq!(rows(cluster, 0), rows(cluster, 1), "{seed}");
    split.finish(LIMIT).unwrap();
    assert!(rows(cluster, from).is_empty(), "{seed}");
}

/// Each of these points is tried with each kind of fault.
const POINTS: [&str; 3] = ["streams_begun", "streams_copied", "stream_committed"];

#[test]
fn a_worker_that_ends_goes_on() {
    let mut cluster = stage(&leaves(), 3, &[]);
    fill(&cluster, FEW_IDS);
    let faults = POINTS.iter().flat_map(|point| ["error", "exit", "kill"].map(|action| (*point, action)));
    // One fault is tried at each point, and another one the next time.
    let turn = (seed() % 3) as usize;
    let is_its_turn = |number: usize| (number + number / 3) % 3 == turn;
    let chosen = faults.enumerate().filter(|(number, _)| is_long_run() || is_its_turn(*number));
    for (count, (number, (point, action))) in chosen.enumerate() {
        survives(&mut cluster, (count % 2, number), |cluster, id| {
            let fault = SingleFault::arm(cluster, point, action).unwrap();
            let mut asks = cluster.superuser().unwrap();
            fault.by(|| asks.execute("SELECT shard_split_run_backfill($1)", &[&id])).unwrap();
            fault.wait(LIMIT).unwrap();
        });
    }
}

#[test]
#[ignore = "make test-all: servers that stop; make test has a_worker_that_ends_goes_on"]
fn servers_that_stop_lose_no_chunk() {
    let mut cluster = stage(&leaves(), 3, &[]);
    fill(&cluster, FEW_IDS);
    let stops = POINTS.iter().flat_map(|point| [(point, 0), (point, 1)]);
    let chosen = stops.enumerate().filter(|(number, _)| is_long_run() || number % 2 == 1);
    for (count, (number, (point, server))) in chosen.enumerate() {
        survives(&mut cluster, (count % 2, 100 + number), |cluster, id| {
            cluster.hold(point).unwrap();
            let split = Split::of(cluster, id);
            split.call("run_backfill").unwrap();
            split.wait_held(point, LIMIT).unwrap();
            cluster.servers[server].restart(Stop::Immediate).unwrap();
            cluster.fault("").unwrap();
        });
    }
}

/// A line ends or falls silent while chunks are copied.
#[test]
#[ignore = "make test-all: lines that are lost; make test has a_worker_that_ends_goes_on"]
fn lines_that_are_lost_lose_no_chunk() {
    let stage = RelayedCluster::of(stage(&leaves(), 3, &["shardmaster.remote_timeout = '1s'"]));
    let cluster = &stage.cluster;
    fill(cluster, FEW_IDS);
    let lost: [fn([&Relay; 2]); 3] =
        [|[_, target]| target.cut(), |[source, _]| source.silence(), |[_, target]| target.silence()];
    for (number, lose) in lost.iter().enumerate() {
        let from = number % 2;
        let split = plan_from(cluster, from);
        let writer = Writer::start_on(cluster, from, 200 + number as u64);
        cluster.hold("streams_begun").unwrap();
        to_backfill(&split);
        split.wait_held("streams_begun", LIMIT).unwrap();
        let relays = [&stage.source, &stage.target];
        lose([relays[from], relays[1 - from]]);
        cluster.fault("").unwrap();
        wait::until("the split to notice", LIMIT, || {
            Ok(split.metric::<i32>("attempts")?.is_positive().then_some(()))
        })
        .unwrap();
        relays.iter().for_each(|relay| relay.mend());
        arrives(cluster, &split, (from, number), writer);
    }
}

/// A session that waits for a lock on a table waits for one step at most, and streams do not wait behind it.
#[test]
#[ignore = "make test-all: locks of others; make test has split::stream_locks::nobody_comes_to_a_table_of_a_round_between_its_locks"]
fn streams_do_not_wait_behind_others() {
    let cluster = filled(3);
    let split = plan(&cluster);
    // The very first step copies alone.
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    cluster.hold("step_snapshot").unwrap();
    split.wait_held("step_snapshot", LIMIT).unwrap();
    // The lock is requested after the step, and before its streams.
    let config = cluster.servers[0].config(DATABASE, "postgres");
    let locker = std::thread::spawn(move || {
        let mut session = config.connect(postgres::NoTls).unwrap();
        session.batch_execute("BEGIN; LOCK TABLE items IN ACCESS EXCLUSIVE MODE; COMMIT").unwrap();
    });
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'items'::regclass AND NOT granted";
    wait::until("somebody to wait for the table", LIMIT, || {
        let count: i64 = source(&cluster).query_one(waits, &[])?.get(0);
        Ok((count > 0).then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    locker.join().unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Rows of different chunks that violate the target's constraints together are named, as in a step alone.
#[test]
#[ignore = "make test-all: rows of one's own in the way; make test has split::collisions::a_row_of_another_moving_split_is_waited_for"]
fn a_value_that_two_chunks_have_is_named() {
    let cluster = stage(TABLE, 4, &[]);
    fill(&cluster, IDS);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    by_superuser(&cluster, 1, "CREATE UNIQUE INDEX codes ON items (code)");
    let taken = "UPDATE items SET code = 7 WHERE tenant = 'moves' AND id IN (3001, 12001, 20001)";
    by_superuser(&cluster, 0, taken);
    split.call("run_backfill").unwrap();
    let failure = split.failure(LIMIT).unwrap();
    assert!(failure.contains("collides") && failure.contains("codes"), "{failure}");
    by_superuser(&cluster, 1, "DROP INDEX codes");
    split.call("resume").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Each leaf of a partitioned table has its own chunks. A leaf that a client attaches meanwhile is copied, too.
#[test]
#[ignore = "make test-all: partitions; make test has a_worker_that_ends_goes_on"]
fn partitions_come_in_streams() {
    let table = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY RANGE (id);
         CREATE TABLE items_0 PARTITION OF items FOR VALUES FROM (0) TO (2000); CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (2000) TO (3000);
         CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (3000) TO (4000); CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (4000) TO (4500); CREATE TABLE items_4 PARTITION OF items FOR VALUES FROM (4500) TO (9000)";
    let cluster = stage(table, 3, &[]);
    fill(&cluster, FEW_IDS);
    let split = plan(&cluster);
    let writer = Writer::start(&cluster, 5);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    // It depends on timing how many of the leaves the previous step has copied.
    assert!(busy_writers(&cluster) > 1);
    let new = "CREATE TABLE items_9 PARTITION OF items FOR VALUES FROM (9000) TO (9100)";
    std::thread::scope(|scope| {
        // On the target this waits for the streams.
        let owner = scope.spawn(|| by_owner(&cluster, 1, new));
        let waits = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted";
        let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
        wait::until_true(&mut target, "the partition to wait", LIMIT, waits).unwrap();
        cluster.fault("").unwrap();
        owner.join().unwrap();
    });
    by_owner(&cluster, 0, new);
    source(&cluster).batch_execute("INSERT INTO items VALUES ('moves', 9001, 'x', 9001)").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
    writer.end();
}

/// If a target accepts few sessions, so many streams copy to it.
#[test]
#[ignore = "make test-all: a limit on sessions; make test has split::stream_locks::for_want_of_locks_there_are_fewer_which_is_said"]
fn a_target_that_is_full_gets_fewer_streams() {
    let cluster = filled(8);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    by_superuser(&cluster, 1, &format!("ALTER ROLE {MOVER} CONNECTION LIMIT 2"));
    split.call("run_backfill").unwrap();
    split.wait_for_event("shardmaster.copy_streams", LIMIT).unwrap();
    by_superuser(&cluster, 1, &format!("ALTER ROLE {MOVER} CONNECTION LIMIT -1"));
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// By default the number depends on the cores of a server, if the mover may read it.
#[test]
#[ignore = "make test-all: a number by default; make test has a_worker_that_ends_goes_on"]
fn by_themselves_there_are_as_many_as_the_cores_allow() {
    let cluster = filled(0);
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    // It may not, so there are two.
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(busy_writers(&cluster), 2);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: a number by default; make test has a_worker_that_ends_goes_on"]
fn where_the_mover_may_read_them_half_of_the_cores_are_used() {
    let cluster = filled(0);
    for server in [0, 1] {
        let may = format!(
            "GRANT pg_read_server_files TO {MOVER}; GRANT EXECUTE ON FUNCTION pg_read_file(text, bigint, bigint, boolean) TO {MOVER}"
        );
        by_superuser(&cluster, server, &may);
    }
    // Both servers are on the same host, and there are three chunks.
    let listed = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let of = |part: &str| -> usize {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        to.parse::<usize>().unwrap() + 1 - from.parse::<usize>().unwrap()
    };
    let cores: usize = listed.trim().split(',').map(of).sum();
    let wanted = (cores / 2).clamp(1, 3);
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    if wanted > 1 {
        split.wait_held("streams_copied", LIMIT).unwrap();
        assert_eq!(busy_writers(&cluster), wanted as i64);
        cluster.fault("").unwrap();
    }
    // A single stream copies as part of the step and never reaches this point.
    split.wait("cutover_pending", LIMIT).unwrap();
    cluster.fault("").unwrap();
    cut_over_and_compare(&cluster, &split);
}
