//! Chunks that are copied at the same time: whatever clients do to their rows meanwhile, and whoever fails between two
//! of them, the target has each row once, as it is.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, MOVER};
use shardmaster_tests::fixture::{
    LIMIT, by_owner, by_superuser, cluster_of, cut_over_and_compare, plan, rows, source, state_of,
};
use shardmaster_tests::random::{Random, seed};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::stage::Stage;
use shardmaster_tests::strike::Strike;
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

const TABLE: &str = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant), UNIQUE (code, tenant))";
/// Rows of which seven are in a block: three chunks, and one more.
const ROWS: i32 = 24_000;
/// The same where each of twelve leaves is a chunk.
const FEW: i32 = 4_000;

/// A table of many small chunks.
fn stage(streams: usize) -> Cluster {
    let cluster = stage_of(TABLE, streams);
    fill(&cluster, ROWS);
    cluster
}

fn stage_of(table: &str, streams: usize) -> Cluster {
    stage_with(table, streams, &[])
}

fn stage_with(table: &str, streams: usize, more: &[&str]) -> Cluster {
    let streams = format!("shardmaster.copy_streams = {streams}");
    let mut config = vec![&*streams, "shardmaster.step_time = '20ms'", "shardmaster.copy_share = 100"];
    config.extend_from_slice(more);
    cluster_of(&config, table)
}

fn fill(cluster: &Cluster, rows: i32) {
    source(cluster)
        .batch_execute(&format!(
            "INSERT INTO items SELECT CASE i % 8 WHEN 0 THEN 'another' ELSE 'moves' END, i, repeat('x', 1050) || i, i
               FROM generate_series(1001, {}) i; ANALYZE items",
            1000 + rows
        ))
        .unwrap();
}

/// A client that moves rows from block to block, and values of unique columns from row to row.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Writer {
    fn start(cluster: &Cluster, seed: u64) -> Writer {
        let stop = Arc::new(AtomicBool::new(false));
        let config = cluster.servers[0].config(DATABASE, CLIENT);
        let is_over = stop.clone();
        let thread = std::thread::spawn(move || {
            let (mut random, mut done) = (Random::new(seed), 0);
            let mut session: Option<Client> = None;
            while !is_over.load(Ordering::Relaxed) {
                // Its server may be away for a while.
                let Some(client) = session.as_mut() else {
                    session = config.connect(postgres::NoTls).ok();
                    std::thread::sleep(std::time::Duration::from_millis(5));
                    continue;
                };
                match client.batch_execute(&statement(&mut random)) {
                    Ok(()) => done += 1,
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

    /// How many of its transactions were committed.
    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

fn statement(random: &mut Random) -> String {
    let [one, other] = [(); 2].map(|()| 1001 + random.below(usize::try_from(FEW).unwrap()));
    let of = |id: usize| format!("tenant = 'moves' AND id = {id}");
    match random.below(6) {
        // To another block.
        0 => format!("UPDATE items SET val = repeat('y', 1100) || {} WHERE {}", random.below(1000), of(one)),
        1 => format!("DELETE FROM items WHERE {}", of(one)),
        2 => format!("INSERT INTO items VALUES ('moves', {one}, 'again', {one}) ON CONFLICT DO NOTHING"),
        // Another row's value, in one statement with that one's end.
        3 => format!(
            "BEGIN; DELETE FROM items WHERE {}; UPDATE items SET code = {other} WHERE {}; COMMIT",
            of(other),
            of(one)
        ),
        // Each the other's.
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

/// Sessions that are within a transaction on the target, as the mover's writers.
fn writers(cluster: &Cluster) -> i64 {
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % writer' AND xact_start IS NOT NULL";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.query_one(query, &[]).unwrap().get(0)
}

fn to_backfill(split: &Split<'_>) {
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split.call("run_backfill").unwrap();
}

/// The chunks come over by sessions of their own, and are committed in their order.
#[test]
fn streams_copy_at_the_same_time() {
    let cluster = stage(3);
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(writers(&cluster), 3);
    let before = rows(&cluster, 1).len();
    cluster.hold("stream_committed").unwrap();
    split.wait_held("stream_committed", LIMIT).unwrap();
    assert_eq!(writers(&cluster), 2);
    assert!(rows(&cluster, 1).len() > before);
    let writer = Writer::start(&cluster, 1);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    // None of them is needed for what follows.
    wait::until("the streams to end", LIMIT, || {
        let query =
            "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % writer'";
        let mut target = cluster.servers[1].superuser(DATABASE)?;
        Ok((target.query_one(query, &[])?.get::<_, i64>(0) == 1).then_some(()))
    })
    .unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(writer.end() > 0);
}

/// A table of twelve leaves, each of them a chunk.
fn leaves() -> String {
    let leaf =
        |n| format!("CREATE TABLE items_{n} PARTITION OF items FOR VALUES WITH (modulus 12, remainder {n})");
    let leaves: Vec<String> = (0..12).map(leaf).collect();
    format!(
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY HASH (id); {}",
        leaves.join("; ")
    )
}

/// While a client writes, the tenant moves there with a fault, and back.
fn survives(cluster: &mut Cluster, seed: usize, fault: impl FnOnce(&mut Cluster, i64)) {
    let writer = Writer::start(cluster, seed as u64);
    let id = plan(cluster).id;
    let split = Split::of(cluster, id);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    fault(cluster, id);
    let split = Split::of(cluster, id);
    split.wait("cutover_pending", LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    writer.end();
    assert_eq!(rows(cluster, 0), rows(cluster, 1), "{seed}");
    split.finish(LIMIT).unwrap();
    let back = Split::plan(cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    back.run(|_| ()).unwrap();
    back.finish(LIMIT).unwrap();
    assert!(rows(cluster, 1).is_empty());
}

/// Each of them with each kind of fault.
fn is_soak() -> bool {
    std::env::var_os("SHARDMASTER_SOAK").is_some()
}

const POINTS: [&str; 3] = ["streams_begun", "streams_copied", "stream_committed"];

#[test]
fn a_worker_that_ends_goes_on() {
    let mut cluster = stage_of(&leaves(), 3);
    fill(&cluster, FEW);
    let faults = POINTS.iter().flat_map(|point| ["error", "exit", "kill"].map(|action| (*point, action)));
    // At each point one of them, another one the next time.
    let turn = (seed() % 3) as usize;
    let is_its_turn = |number: usize| (number + number / 3) % 3 == turn;
    for (number, (point, action)) in
        faults.enumerate().filter(|(number, _)| is_soak() || is_its_turn(*number))
    {
        survives(&mut cluster, number, |cluster, id| {
            let strike = Strike::arm(cluster, point, action).unwrap();
            let mut asks = cluster.superuser().unwrap();
            strike.by(|| asks.execute("SELECT shard_split_run_backfill($1)", &[&id])).unwrap();
            strike.wait(LIMIT).unwrap();
        });
    }
}

#[test]
fn servers_that_stop_lose_no_chunk() {
    let mut cluster = stage_of(&leaves(), 3);
    fill(&cluster, FEW);
    let stops = POINTS.iter().flat_map(|point| [(point, 0), (point, 1)]);
    for (number, (point, server)) in stops.enumerate().filter(|(number, _)| is_soak() || number % 2 == 1) {
        survives(&mut cluster, 100 + number, |cluster, id| {
            cluster.hold(point).unwrap();
            let split = Split::of(cluster, id);
            split.call("run_backfill").unwrap();
            split.wait_held(point, LIMIT).unwrap();
            cluster.servers[server].restart(Stop::Immediate).unwrap();
            cluster.fault("").unwrap();
        });
    }
}

/// A line that ends, or falls silent, while chunks come over.
#[test]
fn lines_that_are_lost_lose_no_chunk() {
    let stage = Stage::of(stage_with(&leaves(), 3, &["shardmaster.remote_timeout = '1s'"]));
    let cluster = &stage.cluster;
    fill(cluster, FEW);
    let lost: [fn(&Stage); 3] =
        [|stage| stage.target.cut(), |stage| stage.source.silence(), |stage| stage.target.silence()];
    for (number, lose) in lost.iter().enumerate() {
        let split = plan(cluster);
        let writer = Writer::start(cluster, 200 + number as u64);
        cluster.hold("streams_begun").unwrap();
        to_backfill(&split);
        split.wait_held("streams_begun", LIMIT).unwrap();
        lose(&stage);
        cluster.fault("").unwrap();
        wait::until("the split to notice", LIMIT, || {
            Ok(split.metric::<i32>("attempts")?.is_positive().then_some(()))
        })
        .unwrap();
        stage.source.mend();
        stage.target.mend();
        split.wait("cutover_pending", LIMIT).unwrap();
        split.call("cutover").unwrap();
        split.wait("completed", LIMIT).unwrap();
        writer.end();
        assert_eq!(rows(cluster, 0), rows(cluster, 1), "{number}");
        split.finish(LIMIT).unwrap();
        let back = Split::plan(cluster, "shard_b", "shard_a", &["moves"]).unwrap();
        back.run(|_| ()).unwrap();
        back.finish(LIMIT).unwrap();
    }
}

/// Who waits for a lock on a table waits for one step at most, and streams do not wait behind him.
#[test]
fn streams_do_not_wait_behind_others() {
    let cluster = stage(3);
    let split = plan(&cluster);
    // The first step of all copies by itself.
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    cluster.hold("step_snapshot").unwrap();
    split.wait_held("step_snapshot", LIMIT).unwrap();
    // Behind the step, and before its streams.
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

/// Rows of other chunks that the target's constraints do not let stand together are named, as by a step alone.
#[test]
fn a_value_that_two_chunks_have_is_named() {
    const TABLE: &str =
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant))";
    let cluster = stage_of(TABLE, 4);
    fill(&cluster, ROWS);
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

/// Of a partitioned table each leaf has chunks of its own; one that a client attaches meanwhile is copied, too.
#[test]
fn partitions_come_in_streams() {
    let table = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY RANGE (id);
         CREATE TABLE items_0 PARTITION OF items FOR VALUES FROM (0) TO (2000); CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (2000) TO (3000);
         CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (3000) TO (4000); CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (4000) TO (4500); CREATE TABLE items_4 PARTITION OF items FOR VALUES FROM (4500) TO (9000)";
    let cluster = stage_of(table, 3);
    fill(&cluster, FEW);
    let split = plan(&cluster);
    let writer = Writer::start(&cluster, 5);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(writers(&cluster), 3);
    let new = "CREATE TABLE items_9 PARTITION OF items FOR VALUES FROM (9000) TO (9100)";
    by_owner(&cluster, 1, new);
    by_owner(&cluster, 0, new);
    source(&cluster).batch_execute("INSERT INTO items VALUES ('moves', 9001, 'x', 9001)").unwrap();
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
    writer.end();
}

/// A target that takes few sessions is copied to by as many as it takes.
#[test]
fn a_target_that_is_full_gets_fewer_streams() {
    let cluster = stage(8);
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

/// Room for 1600 locks: a quarter of it is the streams'.
const LITTLE_ROOM: [&str; 2] = ["max_connections = 25", "max_locks_per_transaction = 64"];

/// Many tables beside a big one, each of which is locked by the step: a stream locks those of its chunk.
#[test]
fn a_big_table_among_many_has_all_streams() {
    let others: String = (0..150)
        .map(|n| format!("; CREATE TABLE t{n} (tenant text, id int, PRIMARY KEY (id, tenant)); GRANT ALL ON t{n} TO {CLIENT}"))
        .collect();
    let cluster = stage_with(&format!("{TABLE}{others}"), 3, &LITTLE_ROOM);
    fill(&cluster, ROWS);
    let add = "SELECT shard_table_add('t' || n, 'tenant', key_type => 'text') FROM generate_series(0, 149) n";
    cluster.superuser().unwrap().batch_execute(add).unwrap();
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(writers(&cluster), 3);
    let locked = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation
                   WHERE a.application_name LIKE 'shardmaster split % writer' AND c.relname IN ('items', 't0') GROUP BY a.pid ORDER BY 1";
    let locked = cluster.servers[1].superuser(DATABASE).unwrap().query(locked, &[]).unwrap();
    assert_eq!(locked.iter().map(|row| row.get(0)).collect::<Vec<i64>>(), [1, 1, 2]);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// The tables that somebody else could alter on the target now.
const FREE: &str = "DO $$ DECLARE t text; BEGIN
    CREATE TEMP TABLE IF NOT EXISTS free (name text); TRUNCATE free;
    FOR t IN SELECT relname FROM pg_class WHERE relname ~ '^(f[0-9]|items)$' AND relkind = 'r' LOOP
        BEGIN
            EXECUTE format('LOCK TABLE %I IN SHARE ROW EXCLUSIVE MODE NOWAIT', t);
            RAISE EXCEPTION USING ERRCODE = 'ZZ001';
        EXCEPTION WHEN SQLSTATE 'ZZ001' THEN INSERT INTO free VALUES (t);
                  WHEN lock_not_available THEN NULL;
        END;
    END LOOP; END $$";

/// Behind the step's commit and before it has its locks again nobody comes to a table that the round writes to: not to
/// those of its own chunk either.
#[test]
fn nobody_comes_to_a_table_of_a_round_between_its_locks() {
    let others: String = (0..8)
        .map(|n| format!("; CREATE TABLE f{n} (tenant text, id int, val text, PRIMARY KEY (id, tenant)); GRANT ALL ON f{n} TO {CLIENT}"))
        .collect();
    let cluster = stage_with(&format!("{TABLE}{others}"), 3, &[]);
    fill(&cluster, FEW);
    for n in 0..8 {
        source(&cluster)
            .batch_execute(&format!("INSERT INTO f{n} SELECT 'moves', i, repeat('x', 1000) FROM generate_series(1, 2000) i; ANALYZE f{n}"))
            .unwrap();
        let add = format!("SELECT shard_table_add('f{n}', 'tenant', key_type => 'text')");
        cluster.superuser().unwrap().batch_execute(&add).unwrap();
    }
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    let filled = |target: &mut Client| -> Vec<(String, i64)> {
        let of = |name: String| format!("SELECT '{name}', count(*) FROM {name}");
        let names = (0..8).map(|n| format!("f{n}")).chain(["items".to_owned()]);
        let query = names.map(of).collect::<Vec<_>>().join(" UNION ALL ");
        target.query(&query, &[]).unwrap().iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let split = plan(&cluster);
    cluster.hold("streams_begun").unwrap();
    to_backfill(&split);
    split.wait_held("streams_begun", LIMIT).unwrap();
    let before = filled(&mut target);
    target.batch_execute(FREE).unwrap();
    let free: Vec<String> =
        target.query("SELECT name FROM free", &[]).unwrap().iter().map(|row| row.get(0)).collect();
    cluster.hold("streams_copied").unwrap();
    split.wait_held("streams_copied", LIMIT).unwrap();
    cluster.hold("step_begin").unwrap();
    split.wait_held("step_begin", LIMIT).unwrap();
    let after = filled(&mut target);
    let new: Vec<&String> = after.iter().filter(|of| !before.contains(of)).map(|(name, _)| name).collect();
    assert!(new.len() > 1, "{before:?}, {after:?}");
    assert!(new.iter().all(|name| !free.contains(name)), "{new:?} came, and {free:?} were free");
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// Partitions of one table are locked together, and where there is no room for that there are fewer streams.
#[test]
fn for_want_of_locks_there_are_fewer_which_is_said() {
    let leaves: String = (0..80)
        .map(|n| {
            format!("; CREATE TABLE items_{n} PARTITION OF items FOR VALUES WITH (modulus 80, remainder {n})")
        })
        .collect();
    let table = "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (id, tenant)) PARTITION BY HASH (id)";
    let cluster = stage_with(
        &format!("{table}{leaves}"),
        3,
        &["max_connections = 25", "max_locks_per_transaction = 25"],
    );
    fill(&cluster, FEW);
    let split = plan(&cluster);
    to_backfill(&split);
    split
        .wait_for_event(
            "1 of 3 streams (shardmaster.copy_streams): more would take more than a quarter",
            LIMIT,
        )
        .unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

/// By default a server's cores say how many, where the mover may read them.
#[test]
fn by_themselves_there_are_as_many_as_the_cores_allow() {
    let cluster = stage(0);
    let split = plan(&cluster);
    cluster.hold("streams_copied").unwrap();
    to_backfill(&split);
    // It may not: two.
    split.wait_held("streams_copied", LIMIT).unwrap();
    assert_eq!(writers(&cluster), 2);
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
fn where_the_mover_may_read_them_half_of_the_cores_are_used() {
    let cluster = stage(0);
    for server in [0, 1] {
        let may = format!(
            "GRANT pg_read_server_files TO {MOVER}; GRANT EXECUTE ON FUNCTION pg_read_file(text, bigint, bigint, boolean) TO {MOVER}"
        );
        by_superuser(&cluster, server, &may);
    }
    // The same host for both, and three chunks.
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
        assert_eq!(writers(&cluster), wanted as i64);
        cluster.fault("").unwrap();
    }
    // One copies by itself, and never comes by.
    split.wait("cutover_pending", LIMIT).unwrap();
    cluster.fault("").unwrap();
    cut_over_and_compare(&cluster, &split);
}
