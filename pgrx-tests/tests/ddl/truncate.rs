//! Tables that change during a split: TRUNCATE and rewrites at every point of a step, partitions that appear,
//! disappear and are truncated; and rows of every type.

use postgres::NoTls;
use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::fixture::{
    LIMIT, client, cluster, cluster_of, cut_over_and_compare, insert, plan, rows, source, to_pending,
};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Runs the statements while the worker is held at the point. The worker continues when they are done or wait
/// for a lock of the step.
fn while_held(cluster: &Cluster, split: &Split<'_>, point: &str, statements: &'static [&'static str]) {
    split.wait_held(point, LIMIT).unwrap();
    let mut config = cluster.servers[0].config(DATABASE, "postgres");
    let thread = std::thread::spawn(move || {
        let mut session = config.application_name("changes").connect(NoTls).unwrap();
        for statement in statements {
            session.batch_execute(statement).unwrap();
        }
    });
    let mut watch = source(cluster);
    let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'changes' AND wait_event_type = 'Lock'";
    wait::until("the change to be done or to wait", LIMIT, || {
        let yes: bool = watch.query_one(waiting, &[])?.get(0);
        Ok((yes || thread.is_finished()).then_some(()))
    })
    .unwrap();
    cluster.fault("").unwrap();
    thread.join().unwrap();
}

/// Waits until the target has the same rows as the source.
fn wait_equal(cluster: &Cluster, split: &Split<'_>, what: &str) {
    wait::until(what, LIMIT, || {
        split.call("replay_tail").ok();
        Ok((rows(cluster, 0) == rows(cluster, 1)).then_some(()))
    })
    .unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
}

const CHANGES: [&[&str]; 3] = [
    &["TRUNCATE items", "INSERT INTO items SELECT 'moves', i, 'after', i FROM generate_series(1, 50) i"],
    &["VACUUM FULL items"],
    &[
        "BEGIN; INSERT INTO items SELECT 'moves', i, 'before', i FROM generate_series(10001, 10050) i; TRUNCATE items; INSERT INTO items VALUES ('moves', 7, 'after', 7); COMMIT",
    ],
];

#[test]
fn truncate_and_rewrites_at_every_point_of_a_step() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let query = "SELECT point FROM shard_split_points() WHERE point LIKE 'step%' OR point IN ('backfill_done', 'tail_caught_up')";
    let points: Vec<String> = master.query(query, &[]).unwrap().iter().map(|row| row.get(0)).collect();
    // Long runs try each point, and others every fourth.
    for (number, point) in points.iter().enumerate().step_by(if is_long_run() { 1 } else { 4 }) {
        source(&cluster)
            .batch_execute("TRUNCATE items; INSERT INTO items SELECT 'moves', i, i::text, i FROM generate_series(1, 300) i")
            .unwrap();
        let split = plan(&cluster);
        cluster.hold(point).unwrap();
        split.call("start_dual_write").unwrap();
        split.wait("dual_write", LIMIT).unwrap();
        split.call("run_backfill").unwrap();
        while_held(&cluster, &split, point, CHANGES[number % CHANGES.len()]);
        split.wait("cutover_pending", LIMIT).unwrap();
        wait_equal(&cluster, &split, point);
        // This is repeated at a step that only applies changes.
        if point.starts_with("step_") {
            cluster.hold(point).unwrap();
            let mut writer = client(&cluster);
            // The write is repeated, because the worker may see the setting later than a change.
            wait::until("a step with changes to be held", LIMIT, || {
                writer
                    .batch_execute("UPDATE items SET val = val || '.' WHERE tenant = 'moves' AND id < 20")?;
                let waiting: Option<String> = split.metric("waiting_for")?;
                Ok(waiting.is_some_and(|text| text.contains(point.as_str())).then_some(()))
            })
            .unwrap();
            while_held(&cluster, &split, point, CHANGES[(number + 1) % CHANGES.len()]);
            wait_equal(&cluster, &split, point);
        }
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        assert!(rows(&cluster, 1).is_empty(), "{point}");
    }
    let split = plan(&cluster);
    to_pending(&split);
    cut_over_and_compare(&cluster, &split);
}

/// If a client empties a table all the time, the master's events do not grow.
#[test]
#[ignore = "make test-all: how often it is told; make test has truncate_and_rewrites_at_every_point_of_a_step"]
fn what_happens_again_and_again_is_told_once() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    for id in 20_001..20_006 {
        client(&cluster).batch_execute(&format!("TRUNCATE items; {}", insert("moves", id))).unwrap();
        wait::until("the row", LIMIT, || Ok(rows(&cluster, 1).contains_key(&id).then_some(()))).unwrap();
    }
    assert_eq!(split.events().unwrap().matches("the copy starts again").count(), 1);
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&cluster, &split);
}

#[test]
#[ignore = "make test-all: many changes in one split; make test has ddl::partitions::partitions_made_during_a_split_are_captured_and_guarded"]
fn partitions_come_go_and_are_truncated() {
    let cluster = cluster_of(
        &[],
        "CREATE TABLE items (tenant text, id int, val text, code int, PRIMARY KEY (tenant, id)) PARTITION BY RANGE (id);
         CREATE TABLE items_1 PARTITION OF items FOR VALUES FROM (0) TO (200);
         CREATE TABLE items_2 PARTITION OF items FOR VALUES FROM (200) TO (400) PARTITION BY HASH (tenant);
         CREATE TABLE items_2a PARTITION OF items_2 FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE items_2b PARTITION OF items_2 FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         CREATE TABLE items_3 PARTITION OF items FOR VALUES FROM (400) TO (1000)",
    );
    let split = plan(&cluster);
    cluster.hold("step_consumed").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_consumed", LIMIT).unwrap();
    // A row moves to another partition, and one partition is emptied.
    source(&cluster)
        .batch_execute(
            "UPDATE items SET id = id + 301 WHERE tenant = 'moves' AND id BETWEEN 150 AND 160;
             TRUNCATE items_3; INSERT INTO items VALUES ('moves', 500, 'after the truncate', 500)",
        )
        .unwrap();
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    wait_equal(&cluster, &split, "the truncated partition");
    for server in [1, 0] {
        let mut owner = cluster.servers[server].superuser(DATABASE).unwrap();
        owner
            .batch_execute(&format!(
                "SET ROLE {OWNER}; CREATE TABLE items_4 PARTITION OF items FOR VALUES FROM (1000) TO (9000);
                 GRANT ALL ON items_4 TO {CLIENT}"
            ))
            .unwrap();
    }
    source(&cluster)
        .batch_execute(
            "INSERT INTO items SELECT 'moves', i, 'in the new one', i FROM generate_series(1000, 1200) i",
        )
        .unwrap();
    wait_equal(&cluster, &split, "the new partition");
    // This writes by the name of the partition itself.
    client(&cluster).batch_execute("UPDATE items_4 SET val = 'leaf' WHERE id < 1100").unwrap();
    source(&cluster).batch_execute("ALTER TABLE items DETACH PARTITION items_1").unwrap();
    wait_equal(&cluster, &split, "the detached partition");
    // It is in no keyspace now, and its rows would stay unnoticed.
    let stays = "SELECT shard_table_add('items_1', NULL, policy => 'global')";
    cluster.superuser().unwrap().batch_execute(stays).unwrap();
    cut_over_and_compare(&cluster, &split);
    assert!(rows(&cluster, 1).keys().all(|id| *id >= 200));
}

/// A small tenant of a big table costs only its own rows, and not a scan of the table.
#[test]
#[ignore = "make test-all: a big table; make test has split::round_trips::a_step_that_finds_nothing_is_three_ways_there_and_back"]
fn a_small_scope_is_found_by_an_index() {
    let cluster = cluster(&[]);
    source(&cluster)
        .batch_execute(
            "INSERT INTO items SELECT 'stays', i, repeat('x', 300), i FROM generate_series(1001, 60000) i;
             ANALYZE items; SELECT pg_stat_reset()",
        )
        .unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    let chunks = "SELECT chunks_ok, rows_copied FROM shard_split_tables($1)";
    let row = cluster.superuser().unwrap().query_one(chunks, &[&split.id]).unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (1, 300));
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    split.finish(LIMIT).unwrap();
    let scans = "SELECT pg_stat_force_next_flush() IS NOT NULL, seq_scan, n_live_tup
                   FROM pg_stat_user_tables WHERE relname = 'items'";
    let row = source(&cluster).query_one(scans, &[]).unwrap();
    assert_eq!(row.get::<_, i64>(1), 0, "walks over the table");
    // Without the index, the copy goes block by block.
    let mut other = source(&cluster);
    other
        .batch_execute("ALTER TABLE items DROP CONSTRAINT items_pkey, DROP CONSTRAINT items_tenant_code_key")
        .unwrap();
    other
        .batch_execute(
            "ALTER TABLE items ADD PRIMARY KEY (id, tenant); INSERT INTO items VALUES ('new', 1, 'v', 1)",
        )
        .unwrap();
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target
        .batch_execute(
            "ALTER TABLE items DROP CONSTRAINT items_pkey, DROP CONSTRAINT items_tenant_code_key; ALTER TABLE items ADD PRIMARY KEY (id, tenant)",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SELECT shard_assign('new', 'shard_a')").unwrap();
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["new"]).unwrap();
    to_pending(&split);
    let row = master.query_one(chunks, &[&split.id]).unwrap();
    assert_eq!((row.get::<_, i64>(0) > 1, row.get::<_, i64>(1)), (true, 1));
}

/// A target's statistics do not include rows that were just copied. A window still costs only its own rows,
/// and neither a scan of the table nor one of all copied rows.
#[test]
#[ignore = "make test-all: windows; make test has split::round_trips::a_step_that_finds_nothing_is_three_ways_there_and_back"]
fn a_window_is_found_by_its_keys() {
    let cluster = cluster(&[]);
    let off = "ALTER TABLE items SET (autovacuum_enabled = off)";
    let mut there = cluster.servers[1].superuser(DATABASE).unwrap();
    there
        .batch_execute(&format!(
            "INSERT INTO items SELECT 'lives here', i, 'v', i FROM generate_series(100001, 120000) i; {off}; ANALYZE items"
        ))
        .unwrap();
    let mut here = source(&cluster);
    here.batch_execute(
        "INSERT INTO items SELECT 'moves', i, 'v', i FROM generate_series(10001, 20000) i; ANALYZE items",
    )
    .unwrap();
    let split = plan(&cluster);
    to_pending(&split);
    there.batch_execute("SELECT pg_stat_reset()").unwrap();
    here.batch_execute(
        "UPDATE items SET val = 'changed' WHERE tenant = 'moves' AND id BETWEEN 10001 AND 10020",
    )
    .unwrap();
    // Statistics of a session are reported within a second.
    let written = "SELECT n_tup_del >= 20 FROM pg_stat_user_tables WHERE relname = 'items'";
    wait::until_true(&mut there, "the window to be written", LIMIT, written).unwrap();
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = 'items'";
    let read: i64 = there.query_one(read, &[]).unwrap().get(0);
    assert!(read < 2_000, "{read} rows were read for a window of 20");
    cut_over_and_compare(&cluster, &split);
    split.finish(LIMIT).unwrap();
}

/// The types' text and binary forms are those of the servers, and do not depend on the settings of the
/// mover's role, which are as odd as possible here.
#[test]
#[ignore = "make test-all: the server's own forms; make test has split::types::every_type_of_value_moves"]
fn every_type_arrives_unchanged() {
    let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    for (number, server) in cluster.servers.iter().enumerate() {
        let mut admin = server.superuser(DATABASE).unwrap();
        admin
            .batch_execute(
                "ALTER ROLE mover SET DateStyle = 'SQL, DMY'; ALTER ROLE mover SET IntervalStyle = 'sql_standard';
                 ALTER ROLE mover SET extra_float_digits = 0; ALTER ROLE mover SET bytea_output = 'escape';
                 ALTER ROLE mover SET TimeZone = 'Asia/Kathmandu'; ALTER ROLE mover SET search_path = 'nowhere';
                 ALTER ROLE mover SET statement_timeout = '1s'; ALTER ROLE mover SET lock_timeout = '1s';
                 ALTER ROLE mover SET default_transaction_isolation = 'serializable';
                 ALTER ROLE mover SET default_transaction_read_only = on; ALTER ROLE mover SET synchronous_commit = off;
                 ALTER ROLE mover SET xmloption = 'document'; ALTER ROLE mover SET standard_conforming_strings = off;
                 ALTER ROLE mover SET client_encoding = 'LATIN1'",
            )
            .unwrap();
        // The target has the columns in another order, and one that was dropped.
        let (first, second) = if number == 0 { ("f8 float8", "gone int") } else { ("gone int", "f8 float8") };
        admin
            .batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'happy'); CREATE TYPE pair AS (a int, b text);
                 CREATE DOMAIN code AS text CHECK (VALUE <> '');
                 CREATE TABLE zoo (tenant char(8) NOT NULL, id bigint GENERATED ALWAYS AS IDENTITY, {first}, {second},
                    f4 real, n numeric, ts timestamp, tz timestamptz, d date, t time, ttz timetz, i interval, by bytea,
                    j json, jb jsonb, ta text[], ia int[], r tstzrange, m mood, ma mood[], p pair, c code, u uuid,
                    ip inet, ci cidr, bi bit(5), vb varbit, x xml, tv tsvector, o oid, rc regclass, mo money,
                    ch \"char\", vc varchar(20), pt point, twice numeric GENERATED ALWAYS AS (n * 2) STORED,
                    PRIMARY KEY (tenant, id));
                 ALTER TABLE zoo DROP COLUMN gone; GRANT ALL ON zoo TO {CLIENT};
                 ALTER TABLE zoo ENABLE ROW LEVEL SECURITY"
            ))
            .unwrap();
    }
    fill_the_zoo(&cluster, "true");
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute("SELECT shard_table_add('zoo', 'tenant'); SELECT shard_assign('moves', 'shard_a')")
        .unwrap();
    let split = plan(&cluster);
    split.accept_remarks().unwrap();
    cluster.hold("step_consumed").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_consumed", LIMIT).unwrap();
    fill_the_zoo(&cluster, "i < 20");
    source(&cluster)
        .batch_execute(
            "UPDATE zoo SET n = n + 0.5, f8 = -f8 WHERE id % 3 = 0; DELETE FROM zoo WHERE id % 7 = 0",
        )
        .unwrap();
    cluster.fault("").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let found: Vec<(i64, String)> = cluster.servers.iter().map(picture).collect();
    assert!(found[0].0 > 80, "{}", found[0].0);
    assert_eq!(found[0], found[1]);
    split.finish(LIMIT).unwrap();
    // The identity continues after the highest value that has moved.
    cluster.servers[1]
        .superuser(DATABASE)
        .unwrap()
        .batch_execute("INSERT INTO zoo (tenant) VALUES ('moves')")
        .unwrap();
}

fn fill_the_zoo(cluster: &Cluster, which: &str) {
    source(cluster)
        .batch_execute(&format!(
            "INSERT INTO zoo (tenant, f8, f4, n, ts, tz, d, t, ttz, i, by, j, jb, ta, ia, r, m, ma, p, c, u, ip, ci, bi, vb, x,
                              tv, o, rc, mo, ch, vc, pt)
             SELECT 'moves', CASE i % 4 WHEN 0 THEN 'NaN' WHEN 1 THEN '-Infinity' ELSE 1 / (i + 2.0)::float8 END,
                    1 / (i + 3.0)::real, CASE i % 5 WHEN 0 THEN 'NaN' ELSE i::numeric / 7 END,
                    CASE i % 6 WHEN 0 THEN 'infinity' ELSE timestamp '2024-02-03 04:05:06.789' + i * interval '1 day' END,
                    timestamptz '2024-02-03 04:05:06.789+05:45' - i * interval '31 hours', date '0044-03-15 BC' + i,
                    time '23:59:59.999999', timetz '12:00:00+05:45', i * interval '1 month -3 days 4 hours',
                    decode(md5(i::text), 'hex') || '\\x00', '{{\"b\": 1, \"a\": \"\\u00e9\"}}', jsonb_build_object('i', i, 'n', 1.50),
                    ARRAY['a,b', 'NULL', NULL, 'q\"{{}}', E'\\\\ \\n ü €'], ARRAY[[1, i], [NULL, 3]],
                    tstzrange(now(), NULL, '(]'), 'it''s ok', ARRAY['sad', 'happy']::mood[], (i, E'x,\"y\\\\')::pair, 'c' || i,
                    md5(i::text)::uuid, '10.1.2.3/24', '10.1.0.0/16', B'10101', B'101', '<a b=\"1\">t</a>',
                    to_tsvector('simple', 'one two ' || i), i, 'pg_class', i * 1.01::numeric::money, 'c', 'vc ' || i, point(i, 1/3.0)
               FROM generate_series(0, 99) i WHERE {which}"
        ))
        .unwrap();
}

/// Returns the number of rows, and a digest of their text with all digits.
fn picture(server: &shardmaster_tests::server::Server) -> (i64, String) {
    let columns = "id, tenant, f8, f4, n, ts, tz, d, t, ttz, i, by, j, jb, ta, ia, r, m, ma, p, c, u, ip, ci, bi, vb, x::text,
                   tv, o, rc, mo, ch, vc, pt::text, twice";
    let query = format!(
        "SELECT count(*), md5(string_agg(ROW({columns})::text, E'\\n' ORDER BY id)) FROM zoo WHERE tenant = 'moves'"
    );
    let row = server.superuser(DATABASE).unwrap().query_one(&query, &[]).unwrap();
    (row.get(0), row.get(1))
}
