//! How long it takes to move rows from the wrong shard to the right one, and how the time grows with their number.

use super::Size;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::{Cluster, DATABASE};
use crate::fixture::{by_superuser, by_superusers};
use crate::repair::{counts, dba, number, stage};
use std::time::Instant;

const SIZES: [i64; 2] = [50_000, 400_000];
const BETWEEN: i64 = 200_000;

/// Makes the given number of rows, moves them, and returns the seconds of the move.
type Shape = fn(i64) -> Result<f64>;

/// Rows of one key in one table, rows of one key in two tables with a foreign key between them, and rows that
/// each have a key of their own.
pub fn misplaced(size: Size) -> Result<Vec<Measure>> {
    let shapes: [(&str, Shape); 3] =
        [("one table", one_table), ("two tables that go together", family), ("a key for each row", keys)];
    let mut measures = Vec::new();
    for (shape, run) in shapes {
        let mut growth =
            Measure::new(format!("{shape}: time for 8 times the rows"), "s", Goal::RatioAtMost(10.0));
        let [small, large] = SIZES.map(|rows| size.rows(rows));
        let (small, between) = (run(small)?, run(size.rows(BETWEEN))?);
        growth.pair(small, run(large)?);
        println!("  {shape}: {between:.1} s for {} rows", size.rows(BETWEEN));
        measures.push(growth);
    }
    Ok(measures)
}

fn seconds(cluster: &Cluster, call: &str) -> Result<f64> {
    let mut dba = dba(cluster);
    let began = Instant::now();
    dba.batch_execute(call)?;
    Ok(began.elapsed().as_secs_f64())
}

fn one_table(rows: i64) -> Result<f64> {
    let cluster = stage(rows.try_into()?);
    let took = seconds(&cluster, "CALL shard_misplaced_move('shard_a', '{moves}')")?;
    if counts(&cluster) != [0, rows, rows, 0] {
        return Err("rows are not where they should be".into());
    }
    Ok(took)
}

fn family(rows: i64) -> Result<f64> {
    let cluster = stage(1);
    by_superusers(
        &cluster,
        "CREATE TABLE parent (tenant text, id int PRIMARY KEY);
         CREATE TABLE child (tenant text, id int PRIMARY KEY, parent int REFERENCES parent);
         CREATE INDEX ON child (parent);
         GRANT SELECT, INSERT, UPDATE, DELETE ON parent, child TO mender",
    );
    by_superuser(
        &cluster,
        0,
        &format!(
            "INSERT INTO parent SELECT 'moves', i FROM generate_series(1, {rows} / 5) i;
             INSERT INTO child SELECT 'moves', i, 1 + i % ({rows} / 5) FROM generate_series(1, {rows} - {rows} / 5) i"
        ),
    );
    cluster
        .superuser()?
        .batch_execute("SELECT shard_table_add('parent', 'tenant'), shard_table_add('child', 'tenant')")?;
    let call = "CALL shard_misplaced_move('shard_a', '{moves}', tables => '{parent,child}')";
    let took = seconds(&cluster, call)?;
    let there = number(&cluster, 1, "SELECT (SELECT count(*) FROM parent) + (SELECT count(*) FROM child)");
    if there != rows {
        return Err("rows are not where they should be".into());
    }
    Ok(took)
}

fn keys(rows: i64) -> Result<f64> {
    let cluster = stage(1);
    by_superusers(
        &cluster,
        "CREATE TABLE things (id bigint PRIMARY KEY, val text); GRANT SELECT, INSERT, DELETE ON things TO mender",
    );
    by_superuser(
        &cluster,
        0,
        &format!("INSERT INTO things SELECT i, 'v' || i FROM generate_series(1, {rows}) i"),
    );
    cluster.superuser()?.batch_execute(
        "SELECT shard_keyspace_add('k', strategy => 'hash', buckets => 8, key_type => 'bigint', shards => '{shard_b}');
         SELECT shard_table_add('things', 'id', keyspace => 'k')",
    )?;
    let query = format!("SELECT array_agg(i::text)::text FROM generate_series(1, {rows}) i");
    let list: String = cluster.servers[0].superuser(DATABASE)?.query_one(&query, &[])?.get(0);
    let took = seconds(&cluster, &format!("CALL shard_misplaced_move('shard_a', '{list}', 'k')"))?;
    if number(&cluster, 1, "SELECT count(*) FROM things") != rows {
        return Err("rows are not where they should be".into());
    }
    Ok(took)
}
