//! What a reservation costs, beside a model of it in plain SQL.

use super::Size;
use super::stats::{Goal, Measure, at};
use crate::cluster::{Cluster, DATABASE};
use crate::{Result, env};
use postgres::Client;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const REFERENCE: &str = include_str!("../../sql/reference_placement.sql");
/// The lease is long enough that none expires during a benchmark.
const OURS: &str = "SELECT shard_reserve_slot($1, $2, 'tenant', '1 h')";
const THEIRS: &str = "SELECT reference.reserve($1 || $2, 'tenant', '1 h')";

fn cluster() -> Result<Cluster> {
    let cluster = Cluster::namespaces(0, &["max_wal_size = '4GB'", "checkpoint_timeout = '1h'"])?;
    cluster.superuser()?.batch_execute(REFERENCE)?;
    Ok(cluster)
}

/// Fills the shards of a kind as reservations would: all but the last one are full.
fn fill(client: &mut Client, kind: &str, shards: i64, capacity: i64) -> Result<()> {
    client.batch_execute(&format!(
        "SELECT count(shard_add('{kind}' || lpad(n::text, 6, '0'), kind => '{kind}', capacity => {capacity}))
           FROM generate_series(1, {shards}) n;
         INSERT INTO shardmaster.shard_slots (shard_id, slot_no, fresh_no)
         SELECT id, n, n FROM shardmaster.shard, generate_series(next_slot, capacity - 1) n WHERE kind = '{kind}';
         UPDATE shardmaster.shard SET next_slot = capacity WHERE kind = '{kind}';
         INSERT INTO shardmaster.shard_reservation
                (kind, logical_key, tenant_id, shard_id, slot_no, status, resource_id, confirmed_at)
         SELECT '{kind}', format('%s/%s', s.id, l.slot_no), 'tenant', s.id, l.slot_no, 'confirmed', 'r', now()
           FROM shardmaster.shard s JOIN shardmaster.shard_slots l ON l.shard_id = s.id
          WHERE s.kind = '{kind}' AND s.shard_key <> '{kind}' || lpad({shards}::text, 6, '0');
         UPDATE shardmaster.shard_slots l
            SET fresh_no = NULL, reservation_id = r.id, tenant_id = r.tenant_id, resource_id = r.resource_id
           FROM shardmaster.shard_reservation r
          WHERE r.shard_id = l.shard_id AND r.slot_no = l.slot_no AND r.kind = '{kind}';
         UPDATE shardmaster.shard_room m SET room = 0
           FROM shardmaster.shard s WHERE s.id = m.shard_id AND s.kind = '{kind}'
            AND s.shard_key <> '{kind}' || lpad({shards}::text, 6, '0');"
    ))?;
    client.batch_execute("VACUUM ANALYZE")?;
    Ok(())
}

/// Calls with `count` new keys, and returns the milliseconds of each call.
fn calls(client: &mut Client, query: &str, kind: &str, count: usize) -> Result<Vec<f64>> {
    let statement = client.prepare(query)?;
    let mark: String = client.query_one("SELECT gen_random_uuid()::text", &[])?.get(0);
    let mut times = Vec::with_capacity(count);
    for call in 0..count {
        let key = format!("{mark}-{call}");
        let began = Instant::now();
        client.execute(&statement, &[&kind, &key])?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    at(&times, 0.5)
}

/// The cost of one reservation depending on the number of shards.
pub fn shards(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let slots = size.rows(1_000).max(400);
    fill(&mut client, "one", 1, slots)?;
    fill(&mut client, "thousand", 1_000, slots)?;
    fill(&mut client, "ten", 10, slots)?;
    fill(&mut client, "tenthousand", size.rows(10_000), 100)?;
    let mut thousand = Measure::new("a reservation, 1,000 shards against 1", "ms", Goal::RatioAtMost(1.5));
    let mut most = Measure::new("a reservation, 10,000 shards against 10", "ms", Goal::RatioAtMost(1.5));
    for _ in 0..size.pairs(10) {
        for (measure, few, many) in [(&mut thousand, "one", "thousand"), (&mut most, "ten", "tenthousand")] {
            // The first calls after a change of the tables plan their queries.
            for kind in [few, many] {
                calls(&mut client, OURS, kind, 5)?;
            }
            let few = median(calls(&mut client, OURS, few, 30)?);
            measure.pair(few, median(calls(&mut client, OURS, many, 30)?));
            client.batch_execute(
                "SELECT count(shard_cancel_slot(id)) FROM shardmaster.shard_reservation WHERE status = 'pending'",
            )?;
        }
    }
    Ok(vec![thousand, most])
}

/// Reservations beside the reference, with no slots in use and with 100,000.
pub fn reservations(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let used = size.rows(100_000);
    let shards = 101;
    let capacity = used / 100;
    client.batch_execute(
        "SELECT count(shard_add('empty' || n, kind => 'empty', capacity => 100000)) FROM generate_series(1, 3) n;
         INSERT INTO reference.shard SELECT n, 'empty' || n, 100000 FROM generate_series(1, 3) n",
    )?;
    let mut empty = Measure::new("reservations against plain SQL, empty", "/s", Goal::RatioAtLeast(1.0));
    for round in 0..size.pairs(10) {
        pair(&mut client, &mut empty, "empty", 100, round)?;
    }
    client.batch_execute(&format!(
        "TRUNCATE reference.reservation, reference.slot, reference.shard;
         INSERT INTO reference.shard SELECT n, 's' || n, {capacity}, CASE WHEN n < {shards} THEN {capacity} ELSE 0 END
           FROM generate_series(1, {shards}) n;
         INSERT INTO reference.slot SELECT s.id, n, 't', 'r', s.id * 1000000 + n
           FROM reference.shard s, generate_series(0, next_slot - 1) n"
    ))?;
    fill(&mut client, "used", shards, capacity)?;
    let mut cost = Measure::new("processor time of a reservation", "µs", Goal::AtMost(100.0));
    for _ in 0..size.pairs(10) {
        cost.single(processor_time(&mut client, 2_000)?);
    }
    let mut full = Measure::new("the same with 100,000 slots in use", "/s", Goal::RatioAtLeast(20.0));
    for round in 0..size.pairs(10) {
        pair(&mut client, &mut full, "used", 20, round)?;
    }
    Ok(vec![empty, cost, full])
}

/// Measures reservations a second of both, in turn.
fn pair(client: &mut Client, measure: &mut Measure, kind: &str, count: usize, round: usize) -> Result<()> {
    let mut rates = [0.0; 2];
    for step in 0..2 {
        let which = (step + round) % 2;
        let query = [THEIRS, OURS][which];
        calls(client, query, kind, 6)?;
        rates[which] = 1e3 / median(calls(client, query, kind, count)?);
    }
    measure.pair(rates[0], rates[1]);
    Ok(())
}

/// Returns the processor time of the session for each of `count` reservations, in microseconds. Each is
/// committed, and the first ones, which plan, are left out.
fn processor_time(client: &mut Client, count: u32) -> Result<f64> {
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[])?.get(0);
    let spent = || -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat"))?;
        let nanoseconds: u64 = text.split(' ').next().ok_or("an empty schedstat")?.parse()?;
        Ok(nanoseconds as f64 / 1e3)
    };
    let reserve = |count: u32| {
        format!(
            "DO $$ BEGIN FOR n IN 1 .. {count} LOOP
                 PERFORM shard_reserve_slot('empty', gen_random_uuid()::text, 'tenant', '1 h'); COMMIT;
             END LOOP; END $$"
        )
    };
    client.batch_execute(&reserve(count / 20))?;
    let before = spent()?;
    client.batch_execute(&reserve(count))?;
    Ok((spent()? - before) / f64::from(count))
}

/// Returns transactions a second of a pgbench script.
fn pgbench(cluster: &Cluster, script: &str, clients: usize, seconds: u64) -> Result<f64> {
    let path: PathBuf = env::run_dir()?.join("placement.pgbench");
    std::fs::write(&path, script)?;
    let mut pgbench = Command::new(env::bindir()?.join("pgbench"));
    pgbench.args([
        "-n",
        "-M",
        "prepared",
        "-j",
        "2",
        "-p",
        "5432",
        "-U",
        "postgres",
        "-c",
        &clients.to_string(),
    ]);
    pgbench
        .arg("-h")
        .arg(cluster.master.socket_dir())
        .args(["-T", &seconds.to_string(), "-f"])
        .arg(&path)
        .arg(DATABASE);
    let output = env::run(&mut pgbench)?;
    let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
    let value = line.and_then(|rest| rest.split(' ').next()).and_then(|text| text.parse().ok());
    Ok(value.ok_or_else(|| format!("no tps in the output of pgbench:\n{output}"))?)
}

/// The speed-up from 1 to 16 clients, beside that of a one-row INSERT.
pub fn clients(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    cluster.superuser()?.batch_execute("SELECT shard_add('big', kind => 'big', capacity => 100000000)")?;
    let reserve = "SELECT * FROM shard_reserve_slot('big', gen_random_uuid()::text, 'tenant', '1 h')";
    let insert = "INSERT INTO reference.plain (key) VALUES (gen_random_uuid()::text)";
    let seconds = size.seconds(3);
    let mut speed_up =
        Measure::new("speed-up of 16 clients against that of INSERT", "x", Goal::RatioAtLeast(0.7));
    let mut rate = Measure::new("reservations by 16 clients against 1", "/s", Goal::RatioAtLeast(1.0));
    pgbench(&cluster, reserve, 4, seconds)?;
    for _ in 0..size.pairs(10) {
        let one = (pgbench(&cluster, insert, 1, seconds)?, pgbench(&cluster, reserve, 1, seconds)?);
        let many = (pgbench(&cluster, insert, 16, seconds)?, pgbench(&cluster, reserve, 16, seconds)?);
        speed_up.pair(many.0 / one.0, many.1 / one.1);
        rate.pair(one.1, many.1);
    }
    Ok(vec![speed_up, rate])
}

/// Reservations while 100,000 leases expire.
pub fn expiry(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let leases = size.rows(100_000);
    client.batch_execute(&format!(
        "SELECT shard_add('first', kind => 'e', capacity => {leases}), shard_add('second', kind => 'e', capacity => 10000000)"
    ))?;
    let mut p99 = Measure::new("p99 of reservations while leases expire", "ms", Goal::RatioAtMost(3.0));
    for _ in 0..size.pairs(3) {
        // A transaction holds a lock for each key that it reserves.
        client.batch_execute(&format!(
            "DO $$ BEGIN FOR batch IN 1 .. {leases} / 1000 LOOP
                 PERFORM count(r.*) FROM generate_series(1, 1000) n,
                         shard_reserve_slot('e', n || gen_random_uuid()::text, 'tenant', '1 h') r;
                 COMMIT;
             END LOOP; END $$"
        ))?;
        client.batch_execute("VACUUM ANALYZE")?;
        client.batch_execute("CHECKPOINT")?;
        let percentile = |mut times: Vec<f64>| {
            times.sort_by(f64::total_cmp);
            at(&times, 0.99)
        };
        calls(&mut client, OURS, "e", 50)?;
        let quiet = percentile(calls(&mut client, OURS, "e", 1_000)?);
        // The leases' times are moved into the past. The worker looks every 5 s, and is woken here.
        client.batch_execute(
            "UPDATE shardmaster.shard_reservation SET lease_expires_at = clock_timestamp()
              WHERE kind = 'e' AND status = 'pending' AND created_at < clock_timestamp() - interval '1 s'",
        )?;
        let mut times = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            times.extend(calls(&mut client, OURS, "e", 200)?);
            let left = "SELECT count(*) FROM shardmaster.shard_reservation
                         WHERE kind = 'e' AND status = 'pending' AND lease_expires_at <= clock_timestamp()";
            if client.query_one(left, &[])?.get::<_, i64>(0) == 0 || Instant::now() > deadline {
                break;
            }
        }
        p99.pair(quiet, percentile(times));
        client.batch_execute(
            "SELECT count(shard_cancel_slot(id)) FROM shardmaster.shard_reservation WHERE status = 'pending'",
        )?;
    }
    Ok(vec![p99])
}
