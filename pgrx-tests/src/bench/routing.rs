//! The costs of a route, a hash and an identifier.

use super::Size;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::Cluster;
use postgres::Client;
use std::time::Instant;

/// Returns the seconds of a statement.
pub(super) fn time(client: &mut Client, query: &str) -> Result<f64> {
    let began = Instant::now();
    client.batch_execute(query)?;
    Ok(began.elapsed().as_secs_f64())
}

fn cluster() -> Result<Cluster> {
    Cluster::namespaces(0, &["shardmaster.machine_id = 1", "max_parallel_workers_per_gather = 0"])
}

/// The hash of a key, beside the server's own.
pub fn hash(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let rows = size.rows(5_000_000);
    client.batch_execute(&format!(
        "CREATE UNLOGGED TABLE key AS SELECT id FROM generate_series(1::bigint, {rows}) id"
    ))?;
    client.batch_execute("VACUUM ANALYZE")?;
    let mut measure = Measure::new("shard_for(bigint), 5 million rows", "ms", Goal::RatioAtMost(1.5));
    for _ in 0..size.pairs(10) {
        let theirs = time(&mut client, "SELECT count(hashint8extended(id, 0) % 16) FROM key")?;
        let ours = time(&mut client, "SELECT count(shard_for(id, 16)) FROM key")?;
        measure.pair(theirs * 1e3, ours * 1e3);
    }
    Ok(vec![measure])
}

/// Routes of 100,000 tenants: a million in one statement, and one by one.
pub fn routes(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let (tenants, calls) = (size.rows(100_000), size.rows(1_000_000));
    client.batch_execute(&format!(
        "SELECT count(shard_add('s' || n)) FROM generate_series(1, 10) n;
         CREATE UNLOGGED TABLE tenant AS SELECT 'tenant-' || n AS key, n FROM generate_series(1, {tenants}) n;
         SELECT shard_assign_many(array_agg(key), 's' || 1 + n % 10) FROM tenant GROUP BY n % 10;
         CREATE UNLOGGED TABLE call AS SELECT 'tenant-' || 1 + n * 7919::bigint % {tenants} AS key FROM generate_series(1, {calls}) n"
    ))?;
    client.batch_execute("VACUUM ANALYZE")?;
    let mut md5 =
        Measure::new("shard_of, a million in a statement, against md5", "ms", Goal::RatioAtMost(3.0));
    let mut each = Measure::new("one of them above the scan", "ns", Goal::AtMost(400.0));
    client.batch_execute("SELECT count(shard_of(key)) FROM tenant")?;
    for _ in 0..size.pairs(10) {
        let scan = time(&mut client, "SELECT count(key) FROM call")?;
        let theirs = time(&mut client, "SELECT count(md5(key)) FROM call")?;
        let ours = time(&mut client, "SELECT count(shard_of(key)) FROM call")?;
        md5.pair(theirs * 1e3, ours * 1e3);
        each.single((ours - scan) * 1e9 / calls as f64);
    }
    let by_lookup = through_lookup(&mut client, size)?;
    let mut rate =
        Measure::new("shard_of, prepared, one by one, against SELECT 1", "/s", Goal::RatioAtLeast(0.85));
    let (nothing, route) = (client.prepare("SELECT 1")?, client.prepare("SELECT shard_of($1)")?);
    let count = size.rows(20_000);
    for round in 0..size.pairs(10) {
        let mut rates = [0.0; 2];
        for step in 0..2 {
            let which = (step + round) % 2;
            let began = Instant::now();
            for call in 0..count {
                if which == 0 {
                    client.query_one(&nothing, &[])?;
                } else {
                    client.query_one(&route, &[&format!("tenant-{}", 1 + call % tenants)])?;
                }
            }
            rates[which] = count as f64 / began.elapsed().as_secs_f64();
        }
        rate.pair(rates[0], rates[1]);
    }
    Ok(vec![md5, each, by_lookup, rate])
}

/// Returns the processor time of the session's backend so far, in nanoseconds.
fn processor(client: &mut Client) -> Result<f64> {
    let query =
        "SELECT split_part(pg_read_file('/proc/' || pg_backend_pid() || '/schedstat'), ' ', 1)::float8";
    Ok(client.query_one(query, &[])?.get(0))
}

/// Returns the processor time of a statement, in nanoseconds.
pub(super) fn cost(client: &mut Client, query: &str) -> Result<f64> {
    let before = processor(client)?;
    client.batch_execute(query)?;
    Ok(processor(client)? - before)
}

/// One call assigns a million tenants. A session that can keep 0.1 % of their routes asks for them, and is
/// compared with a session that keeps none and asks for each by a statement. Only processor time of the
/// backend counts, so other load on the machine does not matter.
pub fn unknown(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let tenants = size.rows(1_000_000);
    client.batch_execute(&format!(
        "SELECT count(shard_add('s' || n)) FROM generate_series(1, 10) n;
         CREATE UNLOGGED TABLE tenant AS SELECT 'tenant-' || n AS key, n FROM generate_series(1, {tenants}) n"
    ))?;
    let mut many = Measure::new("shard_assign_many, a key", "µs", Goal::AtMost(3.0));
    let all = "SELECT shard_assign_many(array_agg(key), 's1') FROM tenant";
    many.single(cost(&mut client, all)? / tenants as f64 / 1e3);
    client.batch_execute(
        "SELECT shard_assign_many(array_agg(key), 's' || 1 + n % 10, force => true) FROM tenant WHERE n % 10 > 0 GROUP BY n % 10",
    )?;
    client.batch_execute("VACUUM ANALYZE")?;
    let calls = size.rows(200_000);
    let sample = format!(
        "(SELECT 'tenant-' || 1 + n * 7919::bigint % {tenants} AS key FROM generate_series(1, {calls}) n) call"
    );
    let mut found = Measure::new("shard_of of a key that the session does not know", "µs", Goal::AtMost(2.0));
    for _ in 0..size.pairs(10) {
        let scan = cost(&mut client, &format!("SELECT count(key) FROM {sample}"))?;
        let of_one = |nanoseconds: f64| (nanoseconds - scan) / calls as f64 / 1e3;
        let asked = format!("SELECT count(shard_of(key)) FROM {sample}");
        client.batch_execute("SET shardmaster.route_cache_size = 0")?;
        let by_statement = cost(&mut client, &asked)?;
        client.batch_execute(&format!("SET shardmaster.route_cache_size = {}", tenants / 1_000))?;
        found.pair(of_one(by_statement), of_one(cost(&mut client, &asked)?));
    }
    Ok(vec![many, found])
}

/// Returns the processor time for a key that the session does not know, out of `tenants`, in microseconds.
pub(super) fn of_unknown(tenants: i64) -> Result<f64> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    client.batch_execute(&format!(
        "SELECT shard_add('s1');
         SELECT shard_assign_many(array_agg('tenant-' || n), 's1') FROM generate_series(1, {tenants}) n"
    ))?;
    client.batch_execute("VACUUM ANALYZE")?;
    client.batch_execute(&format!("SET shardmaster.route_cache_size = {}", tenants / 1_000))?;
    let calls = 100_000;
    let sample = format!(
        "(SELECT 'tenant-' || 1 + n * 7919::bigint % {tenants} AS key FROM generate_series(1, {calls}) n) call"
    );
    let scan = cost(&mut client, &format!("SELECT count(key) FROM {sample}"))?;
    let asked = cost(&mut client, &format!("SELECT count(shard_of(key)) FROM {sample}"))?;
    Ok((asked - scan) / f64::from(calls) / 1e3)
}

/// Makes the same calls by another key of each tenant.
fn through_lookup(client: &mut Client, size: Size) -> Result<Measure> {
    client.batch_execute(
        "SELECT shard_keyspace_add('mails', 'lookup', of => 'default');
         INSERT INTO shardmaster.lookup_entry SELECT 'mails', key || '@x.org', key, true, NULL, 1 FROM tenant;
         CREATE UNLOGGED TABLE mail AS SELECT key, key || '@x.org' AS mail FROM call",
    )?;
    client.batch_execute("VACUUM ANALYZE")?;
    let mut measure =
        Measure::new("shard_of by a lookup index, against shard_of", "ms", Goal::RatioAtMost(2.0));
    client.batch_execute(
        "SELECT count(shard_of(key)), count(shard_of(key || '@x.org', 'write', 'mails')) FROM tenant",
    )?;
    for _ in 0..size.pairs(10) {
        let direct = time(client, "SELECT count(shard_of(key)) FROM mail")?;
        let by_lookup = time(client, "SELECT count(shard_of(mail, 'write', 'mails')) FROM mail")?;
        measure.pair(direct * 1e3, by_lookup * 1e3);
    }
    Ok(measure)
}

/// Identifiers of one session in one statement, compared with the capacity of their layout.
pub fn identifiers(size: Size) -> Result<Vec<Measure>> {
    let cluster = cluster()?;
    let mut client = cluster.superuser()?;
    let count = size.rows(5_000_000);
    let mut measure = Measure::new("shard_snowflake_id, one session", "/ms", Goal::AtLeast(0.9 * 4_096.0));
    for _ in 0..size.pairs(10) {
        let query = format!(
            "SELECT count(id) FROM (SELECT shard_snowflake_id() AS id, generate_series(1, {count})) made"
        );
        measure.single(count as f64 / time(&mut client, &query)? / 1e3);
    }
    Ok(vec![measure])
}
