//! The fault matrix: at a named point the worker, its master or one of its servers
//! comes to harm, and the split must come to its end as if nothing had been.

use crate::cluster::{Cluster, DATABASE, OWNER};
use crate::server::Stop;
use crate::{Result, wait};
use postgres::Client;
use std::collections::BTreeMap;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// What happens at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// By `shardmaster.fault`: error, exit or kill.
    Fault(&'static str),
    /// pg_terminate_backend of the worker that is held there.
    Terminate,
    /// An immediate stop of a server while the worker is held there, and its start.
    Restart(Place),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Source,
    Target,
    Master,
}

/// Rows of the cell's tenant, by id, as acknowledged.
type Rows = BTreeMap<i32, String>;

/// A cluster of two servers, with tables that split after split moves tenants of.
pub struct Matrix {
    cluster: Cluster,
    tenants: usize,
}

impl Matrix {
    pub fn new() -> Result<Matrix> {
        let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 20"])?;
        for shard in &cluster.shards {
            cluster.owner_of(shard)?.batch_execute(&format!(
                "SET ROLE {OWNER};
                 CREATE TABLE items (tenant text, id int, val text, PRIMARY KEY (tenant, id));
                 CREATE TABLE notes (tenant text, id int, item int, val text, PRIMARY KEY (tenant, id),
                                     FOREIGN KEY (tenant, item) REFERENCES items ON DELETE CASCADE);
                 INSERT INTO items SELECT 'stays', i, i::text FROM generate_series(1, 50) i"
            ))?;
        }
        let mut client = cluster.superuser()?;
        client.batch_execute(
            "SELECT shard_table_add('items', 'tenant', key_type => 'text');
             SELECT shard_table_add('notes', 'tenant', key_type => 'text')",
        )?;
        Ok(Matrix { cluster, tenants: 0 })
    }

    /// Every point that the server names.
    pub fn points(&self) -> Result<Vec<String>> {
        let rows = self.cluster.superuser()?.query("SELECT point FROM shard_split_points()", &[])?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// One cell: a split of a tenant of its own, with harm at one point.
    pub fn cell(&mut self, point: &str, harm: Harm) -> Result<()> {
        let mut cell = Cell::prepare(self, point, harm)?;
        let outcome = cell.run();
        outcome.map_err(|e| format!("{point}, {harm:?}: {e}\n{}", cell.history()).into())
    }
}

struct Cell<'a> {
    cluster: &'a mut Cluster,
    point: &'a str,
    harm: Harm,
    tenant: String,
    rows: Rows,
    split: i64,
    version: i64,
    harmed: bool,
}

impl<'a> Cell<'a> {
    fn prepare(matrix: &'a mut Matrix, point: &'a str, harm: Harm) -> Result<Cell<'a>> {
        matrix.tenants += 1;
        let tenant = format!("tenant {}", matrix.tenants);
        let cluster = &mut matrix.cluster;
        let mut cell =
            Cell { cluster, point, harm, tenant, rows: Rows::new(), split: 0, version: 0, harmed: false };
        cell.write(0, 0, 200)?;
        let mut client = cell.cluster.superuser()?;
        client.batch_execute("DELETE FROM shardmaster.fault_fired")?;
        cell.version = client.query_one("SELECT shard_assign($1, 'shard_a')", &[&cell.tenant])?.get(0);
        let plan = "SELECT shard_split_plan('shard_a', 'shard_b', ARRAY[$1::text])";
        cell.split = client.query_one(plan, &[&cell.tenant])?.get(0);
        Ok(cell)
    }

    fn run(&mut self) -> Result<()> {
        let fault = match self.harm {
            Harm::Fault(action) => format!("{}={action}", self.point),
            Harm::Terminate | Harm::Restart(_) => format!("{}=hold", self.point),
        };
        self.cluster.fault(&fault)?;
        let rolls_back = self.point.starts_with("rollback_");
        self.call("shard_split_start_dual_write")?;
        self.reach("dual_write")?;
        self.write(0, 150, 250)?;
        self.call("shard_split_run_backfill")?;
        self.reach("cutover_pending")?;
        self.write(0, 240, 300)?;
        if rolls_back {
            self.call("shard_split_rollback")?;
            self.reach("rolled_back")?;
            self.write(0, 290, 310)?;
            self.call("shard_split_start_dual_write")?;
            self.call("shard_split_run_backfill")?;
            self.reach("cutover_pending")?;
        }
        self.call("shard_split_cutover")?;
        self.reach("completed")?;
        self.write(1, 300, 350)?;
        self.call("shard_split_finish")?;
        self.reach("finished")?;
        if !self.harmed && !self.fired()? {
            return Err("the point was never reached".into());
        }
        self.cluster.fault("")?;
        self.check()
    }

    /// A call that is made again until a server takes it.
    fn call(&mut self, function: &str) -> Result<()> {
        let query = format!("SELECT {function}($1)");
        wait::until(function, LIMIT, || {
            let called = self.cluster.superuser().and_then(|mut c| Ok(c.execute(&query, &[&self.split])?));
            match called {
                Ok(_) => Ok(Some(())),
                // A lost answer: the call may have been carried out already.
                Err(e) if e.sqlstate() == Some("55000") => Ok(Some(())),
                Err(e) if e.sqlstate().is_none_or(|s| s.starts_with("57P") || s.starts_with("08")) => {
                    Ok(None)
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Waits for a phase, and does the harm when the worker comes to the point.
    fn reach(&mut self, phase: &str) -> Result<()> {
        let query = "SELECT CASE WHEN finished_at IS NOT NULL THEN 'finished' ELSE phase END, activity,
                coalesce(waiting_for, ''), coalesce(error_message, '') FROM shard_split_metrics($1)";
        let deadline = std::time::Instant::now() + LIMIT;
        loop {
            let row = self.cluster.superuser().and_then(|mut c| Ok(c.query_one(query, &[&self.split])?));
            let Ok(row) = row else {
                if std::time::Instant::now() > deadline {
                    return Err("the master does not come back".into());
                }
                self.pause()?;
                continue;
            };
            let (now, activity, waiting, error): (String, String, String, String) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            // The master may be struck between two looks: then the next one tells.
            if now == phase && self.is_settled(phase).unwrap_or(false) {
                return Ok(());
            }
            if activity == "failed" {
                return Err(format!("failed in {now}: {error}").into());
            }
            if !self.harmed && waiting == format!("held at point \"{}\"", self.point) {
                self.harm()?;
            }
            if std::time::Instant::now() > deadline {
                return Err(format!("still {now}, {activity}, waiting for {waiting}, error {error}").into());
            }
            self.pause()?;
        }
    }

    /// Between two looks at a condition.
    fn pause(&self) -> Result<()> {
        let mut looked = false;
        wait::until("the next look", LIMIT, || Ok(std::mem::replace(&mut looked, true).then_some(())))
    }

    /// A phase whose last steps are behind it.
    fn is_settled(&self, phase: &str) -> Result<bool> {
        if phase != "completed" {
            return Ok(true);
        }
        let query = "SELECT cutover_step = 'moved' FROM shardmaster.split_plan WHERE id = $1";
        Ok(self.cluster.superuser()?.query_one(query, &[&self.split])?.get(0))
    }

    fn harm(&mut self) -> Result<()> {
        self.harmed = true;
        match self.harm {
            Harm::Fault(_) => {}
            Harm::Terminate => {
                self.cluster.fault("")?;
                let query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = $1";
                let name = format!("shardmaster split {}", self.split);
                self.cluster.superuser()?.query(query, &[&name])?;
            }
            Harm::Restart(Place::Source) => self.cluster.servers[0].restart(Stop::Immediate)?,
            Harm::Restart(Place::Target) => self.cluster.servers[1].restart(Stop::Immediate)?,
            Harm::Restart(Place::Master) => self.cluster.master.restart(Stop::Immediate)?,
        }
        self.cluster.fault("")
    }

    fn fired(&self) -> Result<bool> {
        let query = "SELECT EXISTS (SELECT 1 FROM shardmaster.fault_fired)";
        Ok(self.cluster.superuser()?.query_one(query, &[])?.get(0))
    }

    /// Inserts, updates and deletes of the tenant's rows with ids in a range.
    fn write(&mut self, server: usize, from: i32, to: i32) -> Result<()> {
        let mut client = self.cluster.servers[server].superuser(DATABASE)?;
        let mut transaction = client.transaction()?;
        for id in from..to {
            let val = format!("{id} of {}", self.rows.len());
            transaction.execute(
                "INSERT INTO items VALUES ($1, $2, $3) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val",
                &[&self.tenant, &id, &val],
            )?;
            transaction.execute(
                "INSERT INTO notes VALUES ($1, $2, $2, $3) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val",
                &[&self.tenant, &id, &val],
            )?;
            self.rows.insert(id, val);
            if id % 7 == 3 {
                transaction
                    .execute("DELETE FROM items WHERE tenant = $1 AND id = $2", &[&self.tenant, &(id - 1)])?;
                self.rows.remove(&(id - 1));
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Nothing lost, nothing twice, nothing left behind.
    fn check(&mut self) -> Result<()> {
        for table in ["items", "notes"] {
            let found = self.rows_of(1, table)?;
            if found != self.rows {
                return Err(format!("{table} of the target: {}", difference(&self.rows, &found)).into());
            }
            let left = self.rows_of(0, table)?;
            if !left.is_empty() {
                return Err(format!("{table} of the source still holds {} rows", left.len()).into());
            }
        }
        let mut client = self.cluster.superuser()?;
        let version: i64 = client.query_one("SELECT shard_routing_version()", &[])?.get(0);
        if version != self.version + 1 {
            return Err(format!("routing version {} -> {version}", self.version).into());
        }
        client.execute("SELECT shard_guard_drop($1)", &[&self.split])?;
        for server in &self.cluster.servers {
            let left = leftovers(&mut server.superuser(DATABASE)?)?;
            if !left.is_empty() {
                return Err(format!("left on {}: {}", server.name(), left.join(", ")).into());
            }
        }
        Ok(())
    }

    fn rows_of(&self, server: usize, table: &str) -> Result<Rows> {
        let mut client = self.cluster.servers[server].superuser(DATABASE)?;
        let query = format!("SELECT id, val FROM {table} WHERE tenant = $1");
        let rows = client.query(&query, &[&self.tenant])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    fn history(&self) -> String {
        let lines = || -> Result<Vec<String>> {
            let query =
                "SELECT format('%s %s %s %s', at, from_phase, to_phase, detail) FROM shard_split_events($1)";
            let rows = self.cluster.superuser()?.query(query, &[&self.split])?;
            Ok(rows.iter().map(|row| row.get(0)).collect())
        };
        let events = lines().map(|l| l.join("\n")).unwrap_or_default();
        format!("{events}\n{}", self.cluster.master.log_tail(3_000))
    }
}

/// Every object of ours in a database.
pub fn leftovers(client: &mut Client) -> Result<Vec<String>> {
    let rows = client.query(
        "SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname LIKE 'shardmaster%'
         UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgname LIKE '%shardmaster%'",
        &[],
    )?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

fn difference(expected: &Rows, found: &Rows) -> String {
    let missing: Vec<_> =
        expected.iter().filter(|(id, _)| !found.contains_key(id)).map(|(id, _)| id).collect();
    let extra: Vec<_> = found.keys().filter(|id| !expected.contains_key(id)).collect();
    let other: Vec<_> =
        expected.iter().filter(|(id, v)| found.get(id).is_some_and(|f| f != *v)).map(|(id, _)| id).collect();
    format!("missing {missing:?}, extra {extra:?}, of another version {other:?}")
}
