//! A derived column is filled beside clients that write, whatever ends the worker, and taken back.

use postgres::Client;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, state_of};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const TABLES: &str = "
    CREATE TABLE orders (id bigint PRIMARY KEY, tenant text NOT NULL, note text);
    CREATE TABLE lines (id bigserial PRIMARY KEY, order_id bigint NOT NULL REFERENCES orders ON UPDATE CASCADE ON DELETE CASCADE, sku text);
    CREATE INDEX ON lines (order_id);
    CREATE TABLE notes (id bigserial PRIMARY KEY, line_id bigint REFERENCES lines ON DELETE CASCADE, text text)";

const DERIVE: &str = "SELECT shard_table_derive('lines', 'tenant', '{order_id}')";
const DONE: &str = "SELECT NOT EXISTS (SELECT FROM shard_jobs() WHERE state <> 'done')";
/// Rows whose value is not that of their order.
const WRONG: &str = "SELECT count(*) FROM lines l JOIN orders o ON o.id = l.order_id WHERE l.tenant IS DISTINCT FROM o.tenant";

/// Makes two servers, the first of which has orders with lines.
fn cluster(config: &[&str]) -> Cluster {
    let cluster = Cluster::servers(2, config).unwrap();
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard).unwrap();
        let grants = format!(
            "GRANT ALL ON ALL TABLES IN SCHEMA public TO {CLIENT}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {CLIENT}"
        );
        owner.batch_execute(&format!("SET ROLE {OWNER}; {TABLES}; {grants}; RESET ROLE")).unwrap();
    }
    on(&cluster, 0)
        .batch_execute(
            "INSERT INTO orders SELECT i, 't' || i % 10, NULL FROM generate_series(1, 2000) i;
             INSERT INTO lines (order_id, sku) SELECT 1 + i % 2000, repeat('s', 100) FROM generate_series(1, 40000) i;
             INSERT INTO notes (line_id, text) SELECT nullif(1 + i % 5000, 1), 'n' FROM generate_series(1, 10000) i",
        )
        .unwrap();
    cluster
        .superuser()
        .unwrap()
        .batch_execute("SELECT shard_table_add('orders', 'tenant', key_type => 'text')")
        .unwrap();
    cluster
}

fn on(cluster: &Cluster, server: usize) -> Client {
    cluster.servers[server].superuser(DATABASE).unwrap()
}

fn count(client: &mut Client, query: &str) -> i64 {
    client.query_one(query, &[]).unwrap().get(0)
}

fn jobs(cluster: &Cluster) -> String {
    let query = "SELECT string_agg(concat_ws(' ', job_id, kind, state, shard, step, percent, waiting_for, error), '; ') FROM shard_jobs()";
    cluster
        .superuser()
        .unwrap()
        .query_one(query, &[])
        .unwrap()
        .get::<_, Option<String>>(0)
        .unwrap_or_default()
}

fn wait_done(cluster: &Cluster) {
    // The server of the master may have crashed.
    let is_done = || {
        let asked = cluster.superuser().ok().and_then(|mut master| master.query_one(DONE, &[]).ok());
        Ok(asked.filter(|row| row.get(0)).map(drop))
    };
    wait::until("the job to end", LIMIT, is_done).map_err(|e| e.context(&jobs(cluster))).unwrap();
}

/// A client that inserts lines, leads them elsewhere, and gives orders to other tenants, until it is stopped. Returns
/// the number of its writes, and the longest of them.
fn writer(cluster: &Cluster, number: i64, stop: &Arc<AtomicBool>) -> thread::JoinHandle<(i64, Duration)> {
    let mut client = cluster.servers[0].connect(DATABASE, CLIENT).unwrap();
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let (mut writes, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let order = 1 + (writes * 7 + number * 13) % 2000;
            let statement = match writes % 4 {
                0 | 1 => format!("INSERT INTO lines (order_id, sku) VALUES ({order}, 'new')"),
                2 => format!("UPDATE lines SET order_id = {order} WHERE id = {}", 1 + (writes * 31) % 40_000),
                _ => format!("UPDATE orders SET tenant = 't' || {} WHERE id = {order}", writes % 10),
            };
            let began = Instant::now();
            let written = client.batch_execute(&statement).map_err(shardmaster_tests::Error::from);
            written.unwrap_or_else(|error| panic!("{statement}: {error}"));
            longest = longest.max(began.elapsed());
            writes += 1;
        }
        (writes, longest)
    })
}

#[test]
fn rows_get_their_tenant_beside_clients_that_write() {
    let cluster = cluster(&[]);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2).map(|number| writer(&cluster, number, &stop)).collect();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute(DERIVE).unwrap();
    wait_done(&cluster);
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        let (writes, longest) = writer.join().unwrap();
        assert!(writes > 100, "{writes}");
        println!("    {writes} writes, the longest took {longest:?}");
    }
    let mut source = on(&cluster, 0);
    assert_eq!(count(&mut source, WRONG), 0);
    for server in [0, 1] {
        let shape = "SELECT count(*) FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indkey[0] = a.attnum AND i.indisvalid
                      WHERE a.attrelid = 'lines'::regclass AND a.attname = 'tenant' AND a.attnotnull";
        assert_eq!(count(&mut on(&cluster, server), shape), 1);
    }
    // A table below it waits for the column that its values come from.
    let paused = "SELECT shard_job_pause(shard_table_derive('lines', 'tenant', '{order_id}'))";
    master.batch_execute(paused).unwrap();
    master.batch_execute("SELECT shard_table_derive('notes', 'tenant', '{line_id}')").unwrap();
    let waits =
        "SELECT EXISTS (SELECT FROM shard_jobs() WHERE object = 'notes' AND waiting_for LIKE 'job 2,%')";
    let waiting = wait::until_true(&mut master, "the job to wait for the other", LIMIT, waits);
    waiting.map_err(|e| e.context(&jobs(&cluster))).unwrap();
    master.batch_execute("SELECT shard_job_retry(2)").unwrap();
    wait_done(&cluster);
    master.batch_execute("SELECT shard_table_add('lines', 'tenant')").unwrap();
    source.batch_execute("DELETE FROM notes WHERE line_id IS NULL").unwrap();
    master.batch_execute("SELECT shard_table_add('notes', 'tenant')").unwrap();
    let assign = "SELECT shard_assign_many(array_agg('t' || i), 'shard_a') FROM generate_series(0, 9) i";
    master.batch_execute(assign).unwrap();
    master.batch_execute("SELECT shard_sequences_spread('default')").unwrap();
    let expected = count(&mut source, "SELECT count(*) FROM notes WHERE tenant = 't3'");
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["t3"]).unwrap();
    split.accept_remarks().unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    assert!(expected > 0);
    assert_eq!(count(&mut on(&cluster, 1), "SELECT count(*) FROM notes WHERE tenant = 't3'"), expected);
    let mut client = cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    client.batch_execute("INSERT INTO lines (order_id, sku) SELECT min(id), 'there' FROM orders").unwrap();
    assert_eq!(count(&mut on(&cluster, 1), WRONG), 0);
}

/// Each piece of the job can be repeated.
#[test]
fn a_worker_that_is_killed_goes_on() {
    let points = [
        "derive_batch",
        "derive_triggers",
        "derive_column",
        "derive_rows",
        "derive_not_null",
        "derive_index",
    ];
    for point in points.into_iter().take(at_most(2)) {
        let cluster = cluster(&[&format!("shardmaster.fault = '{point}=kill'")]);
        cluster.superuser().unwrap().batch_execute(DERIVE).unwrap();
        wait_done(&cluster);
        assert_eq!(count(&mut on(&cluster, 0), WRONG), 0, "{point}");
        let log = std::fs::read_to_string(cluster.master.log_path()).unwrap();
        assert!(log.contains("was terminated by signal 9"), "{point}: the worker was not killed");
    }
}

/// Two sessions, of which one waits for the other, agree on the tenant.
#[test]
fn a_tenant_that_changes_takes_its_rows_along() {
    let cluster = cluster(&[]);
    cluster.superuser().unwrap().batch_execute(DERIVE).unwrap();
    wait_done(&cluster);
    let mut admin = on(&cluster, 0);
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND backend_type = 'client backend')";
    let [insert, change] = [
        "INSERT INTO lines (order_id) VALUES (100)",
        "UPDATE orders SET tenant = tenant || 'x' WHERE id = 100",
    ];
    for [first, second] in [[insert, change], [change, insert]] {
        let mut holder = on(&cluster, 0);
        let mut held = holder.transaction().unwrap();
        held.batch_execute(first).unwrap();
        let mut other = on(&cluster, 0);
        let waiting = thread::spawn(move || other.batch_execute(second));
        wait::until_true(&mut admin, "the second session to wait", LIMIT, waits).unwrap();
        held.commit().unwrap();
        waiting.join().unwrap().unwrap();
        assert_eq!(count(&mut admin, WRONG), 0, "{first}, then {second}");
    }
    // With an older snapshot it could not find all rows.
    let older = "BEGIN ISOLATION LEVEL REPEATABLE READ; UPDATE orders SET tenant = 'y' WHERE id = 100";
    assert_eq!(state_of(&on(&cluster, 0).batch_execute(older).unwrap_err()), "0A000");
    // What the client says of the column does not count.
    admin.batch_execute("INSERT INTO lines (order_id, tenant) VALUES (7, 'other'); UPDATE lines SET tenant = 'z' WHERE order_id = 7").unwrap();
    assert_eq!(count(&mut admin, WRONG), 0);
}

#[test]
fn a_derived_column_is_taken_back() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let objects = "SELECT (SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal) + (SELECT count(*) FROM pg_proc WHERE proname LIKE 'shardmaster%')
                        + (SELECT count(*) FROM pg_attribute WHERE attname = 'tenant' AND attrelid = 'lines'::regclass AND NOT attisdropped)";
    let before = count(&mut on(&cluster, 0), objects);
    cluster.hold("derive_batch").unwrap();
    master.batch_execute(DERIVE).unwrap();
    let at_rows = "SELECT EXISTS (SELECT FROM shard_jobs() WHERE step = 'rows')";
    wait::until_true(&mut master, "rows to be filled", LIMIT, at_rows)
        .map_err(|e| e.context(&jobs(&cluster)))
        .unwrap();
    assert!(count(&mut on(&cluster, 0), objects) > before);
    cluster.fault("").unwrap();
    master.batch_execute("SELECT shard_table_derive_drop('lines')").unwrap();
    wait_done(&cluster);
    assert_eq!(count(&mut on(&cluster, 0), objects), before, "{}", jobs(&cluster));
    // And made again, as if it had never been there.
    master.batch_execute(DERIVE).unwrap();
    wait_done(&cluster);
    assert_eq!(count(&mut on(&cluster, 0), WRONG), 0);
    let again = master.batch_execute("SELECT shard_table_derive('lines', 'note', '{order_id}')").unwrap_err();
    assert_eq!(state_of(&again), "42710");
    master.batch_execute("SELECT shard_table_add('lines', 'tenant')").unwrap();
    let registered = master.batch_execute("SELECT shard_table_derive_drop('lines')").unwrap_err();
    assert_eq!(state_of(&registered), "55006");
}
