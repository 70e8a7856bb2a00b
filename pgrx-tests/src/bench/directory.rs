//! A directory of many millions of tenants on ten thousand shards: its size on disk, the cost of a route that
//! the session does not know, and the time that it takes to plan the move of a shard with two million of
//! them. All of it is measured in processor time of the backend, so other load on the machine does not count.

use super::Size;
use super::routing::cost;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::Cluster;
use postgres::Client;

const SHARDS: i64 = 10_000;
/// One transaction assigns the tenants of this many shards.
const AT_ONCE: usize = 500;

pub fn directory(size: Size) -> Result<Vec<Measure>> {
    let mut assigned = Measure::new("tenants assigned, each", "µs", Goal::AtMost(3.0));
    let mut planned = Measure::new("plan of two million tenants' move", "s", Goal::AtMost(4.0));
    let mut unknown = Measure::new("route that the session does not know", "µs", Goal::AtMost(2.0));
    for millions in [20, 4] {
        let tenants = size.rows(millions * 1_000_000);
        let of_one_shard = size.rows(2_000_000);
        let cluster = Cluster::namespaces(0, &["max_wal_size = '16GB'", "checkpoint_timeout = '1h'"])?;
        let mut client = cluster.superuser()?;
        let seconds = fill(&mut client, tenants, of_one_shard)?;
        println!("  {tenants} tenants:");
        assigned.single(seconds * 1e6 / tenants as f64);
        print_sizes(&mut client)?;
        unknown.single(of_unknown(&mut client, tenants)?);
        planned.single(cost(&mut client, "SELECT shard_split_plan_all('s0', 's1')")? / 1e9);
    }
    Ok(vec![assigned, unknown, planned])
}

/// Assigns `of_one_shard` tenants to the first shard and the others to all others. Returns the processor time
/// of the assignments in seconds.
fn fill(client: &mut Client, tenants: i64, of_one_shard: i64) -> Result<f64> {
    client.batch_execute(&format!(
        "SELECT shard_table_add('items', 'tenant', key_type => 'text');
         SELECT count(shard_add('s' || n, namespace => 's' || n)) FROM generate_series(0, {SHARDS} - 1) n"
    ))?;
    let mut nanoseconds = cost(
        client,
        &format!(
            "SELECT shard_assign_many(array_agg('tenant-' || n), 's0') FROM generate_series(1, {of_one_shard}) n"
        ),
    )?;
    for first in (1..SHARDS).step_by(AT_ONCE) {
        let last = (first + AT_ONCE as i64).min(SHARDS) - 1;
        nanoseconds += cost(
            client,
            &format!(
                "SELECT count(shard_assign_many(ARRAY(
                     SELECT 'tenant-' || n FROM generate_series({of_one_shard} + s, {tenants}, {SHARDS} - 1) n), 's' || s))
                   FROM generate_series({first}, {last}) s"
            ),
        )?;
    }
    client.batch_execute("VACUUM ANALYZE")?;
    Ok(nanoseconds / 1e9)
}

/// Prints the tables that take more than a megabyte.
fn print_sizes(client: &mut Client) -> Result<()> {
    let query = "SELECT relname::text, pg_table_size(oid)::float8 / 1e6, pg_indexes_size(oid)::float8 / 1e6
                   FROM pg_class WHERE relnamespace = 'shardmaster'::regnamespace AND relkind = 'r' AND pg_total_relation_size(oid) > 1e6
                  ORDER BY pg_total_relation_size(oid) DESC";
    for row in client.query(query, &[])? {
        let (name, table, indexes): (String, f64, f64) = (row.get(0), row.get(1), row.get(2));
        println!("    {name}: {table:.0} MB, its indexes {indexes:.0} MB");
    }
    Ok(())
}

/// Returns the processor time for a key of any shard, in microseconds, in a session that keeps a thousandth
/// of the keys.
fn of_unknown(client: &mut Client, tenants: i64) -> Result<f64> {
    client.batch_execute(&format!("SET shardmaster.route_cache_size = {}", tenants / 1_000))?;
    let calls = 200_000;
    let sample = format!(
        "(SELECT 'tenant-' || 1 + n * 7919::bigint % {tenants} AS key FROM generate_series(1, {calls}) n) call"
    );
    let scan = cost(client, &format!("SELECT count(key) FROM {sample}"))?;
    let asked = cost(client, &format!("SELECT count(shard_of(key)) FROM {sample}"))?;
    Ok((asked - scan) / f64::from(calls) / 1e3)
}
