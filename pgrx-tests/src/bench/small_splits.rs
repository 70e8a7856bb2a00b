//! Splits of small tenants, which show what a split costs apart from its rows, and splits without any changes.

use super::Size;
use super::rig::LIMIT;
use super::stats::{Goal, Measure};
use crate::Result;
use crate::cluster::{CLIENT, Cluster, DATABASE, OWNER};
use crate::server::Server;
use crate::split::Split;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

const TABLES: usize = 20;
/// Rows of a tenant, in all tables together.
const ROWS: usize = 1000;
const AT_ONCE: usize = 16;
const OPEN: usize = 8;

/// One split from its plan to its end compared with moving the same rows by hand, several splits at once, and
/// open splits of tenants to which nobody writes.
pub fn small(size: Size) -> Result<Vec<Measure>> {
    let pairs = size.pairs(9);
    let cluster = prepared(2 * pairs + AT_ONCE + OPEN)?;
    let what = format!("{TABLES} tables, {ROWS} rows");
    let mut time = Measure::new(format!("split of {what}; by hand beside it"), "s", Goal::AtMost(1.0));
    let mut until_routed = Measure::new(format!("to its cutover: {what}"), "s", Goal::AtMost(0.5));
    let mut sessions = Measure::new("sessions of it on both shards", "", Goal::AtMost(12.0));
    let mut commits = Measure::new("transactions of it on both shards", "", Goal::AtMost(300.0));
    moved(&cluster, "k0")?;
    for number in 1..pairs {
        let by_hand = by_hand(&cluster, &format!("k{}", 2 * number))?;
        let before = counted(&cluster)?;
        let took = moved(&cluster, &format!("k{}", 2 * number + 1))?;
        let after = counted(&cluster)?;
        time.pair(by_hand, took.1);
        until_routed.single(took.0);
        sessions.single((after.0 - before.0) as f64);
        commits.single((after.1 - before.1) as f64);
    }
    let mut rate = Measure::new(format!("{AT_ONCE} of them at once"), "/min", Goal::AtLeast(120.0));
    let keys: Vec<String> = (2 * pairs..2 * pairs + AT_ONCE).map(|number| format!("k{number}")).collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let all: Vec<_> =
            keys.iter().map(|key| scope.spawn(|| moved(&cluster, key).map_err(|e| e.to_string()))).collect();
        all.into_iter()
            .try_for_each(|one| one.join().map_err(|_| "a split has panicked".to_owned())?.map(drop))
    })?;
    rate.single(AT_ONCE as f64 * 60.0 / began.elapsed().as_secs_f64());
    Ok(vec![time, until_routed, sessions, commits, rate, idle(&cluster, 2 * pairs + AT_ONCE, size)?])
}

fn prepared(tenants: usize) -> Result<Cluster> {
    let config = ["autovacuum = off", "shardmaster.max_split_workers = 16", "max_worker_processes = 40"];
    let cluster = Cluster::servers(2, &config)?;
    let mut master = cluster.superuser()?;
    for shard in &cluster.shards {
        let mut owner = cluster.owner_of(shard)?;
        for number in 0..TABLES {
            owner.batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TABLE t{number} (tenant text, id bigint, v text, PRIMARY KEY (tenant, id));
                 CREATE INDEX ON t{number} (tenant, v); GRANT ALL ON t{number} TO {CLIENT}; RESET ROLE"
            ))?;
        }
    }
    let mut source = cluster.servers[0].superuser(DATABASE)?;
    for number in 0..TABLES {
        source.batch_execute(&format!(
            "INSERT INTO t{number} SELECT 'k' || k, i, 'v' || i
               FROM generate_series(0, {tenants} - 1) k, generate_series(1, {ROWS} / {TABLES}) i;
             ANALYZE t{number}"
        ))?;
        master
            .batch_execute(&format!("SELECT shard_table_add('t{number}', 'tenant', key_type => 'text')"))?;
    }
    let keys: Vec<String> = (0..tenants).map(|number| format!("k{number}")).collect();
    master.execute("SELECT shard_assign_many($1, 'shard_a')", &[&keys])?;
    Ok(cluster)
}

/// Returns the seconds until clients are sent to the target, and until the split is finished.
fn moved(cluster: &Cluster, key: &str) -> Result<(f64, f64)> {
    let began = Instant::now();
    let split = Split::plan(cluster, "shard_a", "shard_b", &[key])?;
    split.run(|_| ())?;
    let routed = began.elapsed().as_secs_f64();
    split.finish(LIMIT)?;
    Ok((routed, began.elapsed().as_secs_f64()))
}

/// Moves the same rows by COPY and DELETE, without keeping any writes that happen meanwhile.
fn by_hand(cluster: &Cluster, key: &str) -> Result<f64> {
    let began = Instant::now();
    let [mut source, mut target] =
        [cluster.servers[0].superuser(DATABASE)?, cluster.servers[1].superuser(DATABASE)?];
    for number in 0..TABLES {
        let mut rows = Vec::new();
        let out = format!("COPY (SELECT * FROM t{number} WHERE tenant = '{key}') TO STDOUT");
        source.copy_out(out.as_str())?.read_to_end(&mut rows)?;
        let mut into = target.copy_in(format!("COPY t{number} FROM STDIN").as_str())?;
        into.write_all(&rows)?;
        into.finish()?;
        source.batch_execute(&format!("DELETE FROM t{number} WHERE tenant = '{key}'"))?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the numbers of sessions and transactions that both shards have had.
fn counted(cluster: &Cluster) -> Result<(i64, i64)> {
    // Sessions report their statistics a moment after they end.
    std::thread::sleep(Duration::from_millis(1500));
    let mut sum = (0, 0);
    for server in &cluster.servers[..2] {
        let asked = "SELECT sessions, xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
        let row = server.superuser(DATABASE)?.query_one(asked, &[])?;
        sum = (sum.0 + row.get::<_, i64>(0), sum.1 + row.get::<_, i64>(1));
    }
    Ok(sum)
}

/// The processor time that open splits take on all servers while nobody writes, in percent of one processor.
fn idle(cluster: &Cluster, first: usize, size: Size) -> Result<Measure> {
    let mut measure = Measure::new(
        format!("processor of {OPEN} open splits to which nobody writes"),
        "%",
        Goal::AtMost(2.0),
    );
    for number in first..first + OPEN {
        let split = Split::plan(cluster, "shard_a", "shard_b", &[&format!("k{number}")])?;
        split.call("start_dual_write")?;
        split.call("run_backfill")?;
        split.wait("cutover_pending", LIMIT)?;
    }
    // Steps become rarer the longer no change arrives.
    std::thread::sleep(Duration::from_secs(size.seconds(20)));
    for _ in 0..size.pairs(5) {
        let (began, before) = (Instant::now(), spent(cluster)?);
        std::thread::sleep(Duration::from_secs(size.seconds(10)));
        measure.single((spent(cluster)? - before) * 100.0 / began.elapsed().as_secs_f64());
    }
    Ok(measure)
}

/// Returns the processor time of the servers' current processes, in seconds.
fn spent(cluster: &Cluster) -> Result<f64> {
    let mut sum = 0.0;
    let servers: Vec<&Server> = cluster.servers.iter().chain([&cluster.master]).collect();
    for server in servers {
        for row in server
            .superuser(DATABASE)?
            .query("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()", &[])?
        {
            let Ok(text) = std::fs::read_to_string(format!("/proc/{}/schedstat", row.get::<_, i32>(0)))
            else {
                continue;
            };
            let nanoseconds: u64 = text.split(' ').next().ok_or("an empty schedstat")?.parse()?;
            sum += nanoseconds as f64 / 1e9;
        }
    }
    Ok(sum)
}

/// What the metrics of splits cost after many have ended, compared with none.
pub fn finished(size: Size) -> Result<Vec<Measure>> {
    let cluster = prepared(1)?;
    moved(&cluster, "k0")?;
    let mut master = cluster.superuser()?;
    let ask = |master: &mut postgres::Client, what: &str| -> Result<f64> {
        let began = Instant::now();
        master.query(&format!("SELECT * FROM {what}"), &[])?;
        Ok(began.elapsed().as_secs_f64() * 1e3)
    };
    let many = size.rows(10_000);
    let mut measures = Vec::new();
    let calls = ["shard_splits()", "shard_split_metrics()"];
    for call in calls {
        let name = format!("{call} after {many} finished splits, beside one");
        measures.push(Measure::new(name, "ms", Goal::AtMost(20.0)));
    }
    let mut before = [Vec::new(), Vec::new()];
    for _ in 0..size.pairs(9) {
        for (call, before) in calls.into_iter().zip(&mut before) {
            before.push(ask(&mut master, call)?);
        }
    }
    // A hundred splits a day have ended.
    master.batch_execute(&format!(
        "CREATE TEMPORARY TABLE ended AS SELECT * FROM shardmaster.split_plan WHERE reverse_of IS NULL;
         DO $$ BEGIN FOR n IN 1..{many} LOOP
             UPDATE ended SET id = 1000000 + n, token = 'ended ' || n, finished_at = clock_timestamp() - n * interval '0.01 day';
             INSERT INTO shardmaster.split_plan SELECT * FROM ended;
         END LOOP; END $$; ANALYZE shardmaster.split_plan"
    ))?;
    for number in 0..size.pairs(9) {
        for ((call, before), measure) in calls.into_iter().zip(&before).zip(&mut measures) {
            measure.pair(before[number], ask(&mut master, call)?);
        }
    }
    Ok(measures)
}
