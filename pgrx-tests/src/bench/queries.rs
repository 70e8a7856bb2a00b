//! What it costs to query all shards at once, compared with querying them by hand.

use super::Size;
use super::stats::{Goal, Measure};
use crate::cluster::{CLIENT, Cluster, DATABASE};
use crate::{Result, env};
use std::process::{Command, Stdio};
use std::time::Instant;

const CONFIG: [&str; 2] = ["fsync = off", "max_parallel_workers_per_gather = 0"];

/// Makes `shards` servers, each with a table of `rows` rows. The superuser queries them as a client.
fn cluster(shards: usize, rows: i64) -> Result<Cluster> {
    let cluster = Cluster::servers(shards, &CONFIG)?;
    for server in &cluster.servers {
        let mut client = server.superuser(DATABASE)?;
        client.batch_execute(&format!(
            "CREATE TABLE items AS SELECT g AS id, (g % 100)::int AS tenant_id, md5(g::text) AS filler FROM generate_series(1, {rows}) g;
             GRANT SELECT ON items TO {CLIENT}"
        ))?;
        client.batch_execute("VACUUM (ANALYZE, FREEZE) items")?;
    }
    cluster.superuser()?.execute("SELECT shard_login_set('postgres', $1)", &[&CLIENT])?;
    Ok(cluster)
}

fn milliseconds(body: impl FnOnce() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    body()?;
    Ok(began.elapsed().as_secs_f64() * 1000.0)
}

/// Runs COPY in psql on all servers at once, and discards the output.
fn copies(cluster: &Cluster, query: &str) -> Result<()> {
    let psql = env::bindir()?.join("psql");
    let children: Vec<_> = cluster
        .servers
        .iter()
        .map(|server| {
            let copy = format!("COPY ({query}) TO STDOUT");
            let conninfo = server.conninfo(DATABASE, CLIENT);
            Command::new(&psql).args(["-X", "-q", "-d", &conninfo, "-c", &copy]).stdout(Stdio::null()).spawn()
        })
        .collect::<std::io::Result<_>>()?;
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a COPY has failed".into());
        }
    }
    Ok(())
}

/// A statement must take as long on each of four shards as on one. The second measure reads many rows of two shards.
pub fn queries(size: Size) -> Result<Vec<Measure>> {
    let four = cluster(4, 10)?;
    let mut master = four.superuser()?;
    let mut beside =
        Measure::new("a query of 200 ms on each of 4 shards, against on one", "ms", Goal::RatioAtMost(1.3));
    // The statement sleeps, because this machine may have fewer processors than there are shards.
    let sleep = "SELECT count(*) FROM (SELECT pg_sleep(0.2)) s";
    let mut one = four.servers[0].connect(DATABASE, CLIENT)?;
    for _ in 0..size.pairs(20) {
        let alone = milliseconds(|| Ok(one.query(sleep, &[]).map(drop)?))?;
        let all = format!("SELECT * FROM shard_query('{sleep}') AS t (n bigint)");
        beside.pair(alone, milliseconds(|| Ok(master.query(&all, &[]).map(drop)?))?);
    }
    drop((master, one, four));

    let rows = size.rows(500_000);
    let two = cluster(2, rows)?;
    let mut master = two.superuser()?;
    master.batch_execute(
        "SELECT shard_table_add('items', 'tenant_id', key_type => 'int'); SELECT shard_import()",
    )?;
    let name = |form: &str| format!("{} rows of 2 shards {form}, a second, against two COPY", 2 * rows);
    let mut measures = [
        ("declared", "SELECT count(*) FROM shard_query('{}') AS t (id int, tenant_id int, filler text)"),
        ("as JSON", "SELECT count(*) FROM (SELECT shard_query_json('{}')) j"),
        ("of a foreign table", "SELECT count(id), count(tenant_id), count(filler) FROM shards.items"),
    ]
    .map(|(form, call)| (Measure::new(name(form), "rows", Goal::RatioAtLeast(0.8)), call));
    let query = "SELECT id, tenant_id, filler FROM items";
    for _ in 0..size.pairs(7) {
        for (measure, call) in &mut measures {
            let by_hand = milliseconds(|| copies(&two, query))?;
            let ours = milliseconds(|| Ok(master.query_one(&call.replace("{}", query), &[]).map(drop)?))?;
            let speed = |ms: f64| 2.0 * rows as f64 / ms * 1000.0;
            measure.pair(speed(by_hand), speed(ours));
        }
    }
    let mut all = vec![beside];
    all.extend(measures.map(|(measure, _)| measure));
    Ok(all)
}
