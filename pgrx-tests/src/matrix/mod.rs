//! The fault matrix: the worker, its master or one of its servers fails at an injection point, and the split
//! must come to its end as if nothing had happened.

mod checks;
mod scope;
mod sessions;
mod tables;

pub use scope::SplitScope;
use sessions::Sessions;
pub use tables::{AGENT_HAS_MORE, create_tables, leftovers, name_tables, objects};

use crate::ack_log::{self, AckLog, Rows};
use crate::cluster::Cluster;
use crate::server::Stop;
use crate::{Result, wait};
use postgres::Row;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(180);
/// The interval between two looks at a split. Each look costs the master as much as a step of the split.
const LOOK: Duration = Duration::from_millis(20);

/// The fault at the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A value of `shardmaster.fault`: error, exit or kill.
    Fault(&'static str),
    /// pg_terminate_backend of the worker that is held there.
    Terminate,
    /// An immediate stop of a server while the worker is held there, and then its start.
    Restart(Place),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Fault("error") => f.write_str("the worker fails"),
            Fault::Fault("exit") => f.write_str("it ends"),
            Fault::Fault(_) => f.write_str("it is killed"),
            Fault::Terminate => f.write_str("it is terminated"),
            Fault::Restart(place) => write!(f, "the {} stops", format!("{place:?}").to_lowercase()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Source,
    Target,
    Master,
}

/// Where a fault is injected: the point, and the time in the life of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Injection {
    pub point: String,
    /// Whether it is injected not at the first time, but after the copy, at a step that only applies changes.
    pub tailing: bool,
}

/// A cluster of two servers with tables. One split after another moves tenants of them.
pub struct Matrix {
    cluster: Cluster,
    sessions: Sessions,
    what: SplitScope,
    tenants: usize,
}

impl Matrix {
    pub fn new(what: SplitScope) -> Result<Matrix> {
        let cluster = Cluster::servers(2, &["fsync = off", "shardmaster.tail_interval = 50"])?;
        what.set_up(&mut cluster.superuser()?)?;
        tables::create_tables_of(&cluster, what.keyspace())?;
        Ok(Matrix { cluster, sessions: Sessions::default(), what, tenants: 0 })
    }

    /// Returns every point that the server names, except for those of a full queue, streams, a redirect's
    /// end, a reverse split, changed tables, an aborted cutover and a withdrawn decision, which have tests of their
    /// own. Points of a step are there twice, because the steps of a copy and the steps after it find different work.
    pub fn injections(&self) -> Result<Vec<Injection>> {
        let rows = self.cluster.superuser()?.query(
            "SELECT point FROM shard_split_points() WHERE point !~ '^((overflow|recovery|redirect|restart|reverse|reshape|streams?|withdraw)_|cutover_reopened)'",
            &[],
        )?;
        let points = rows.iter().map(|row| row.get(0));
        let points: Vec<String> = points.filter(|point: &String| self.what.has(point)).collect();
        let injection = |tailing: bool| move |point: String| Injection { point, tailing };
        let again = points.iter().filter(|point| point.starts_with("step_")).cloned();
        let again: Vec<Injection> = again.map(injection(true)).collect();
        Ok(points.into_iter().map(injection(false)).chain(again).collect())
    }

    /// Runs one cell: a split of its own tenant, with a fault at each of these points. No point may be given twice.
    pub fn cell(&mut self, at: &[Injection], fault: Fault) -> Result<()> {
        let mut cell = Cell::prepare(self, at, fault)?;
        let outcome = cell.run();
        outcome.map_err(|e| format!("{at:?}, {fault:?}: {e}\n{}", cell.history()).into())
    }
}

struct Cell<'a> {
    cluster: &'a mut Cluster,
    sessions: &'a mut Sessions,
    what: SplitScope,
    at: &'a [Injection],
    fault: Fault,
    tenant: String,
    /// The rows that this cell has written itself. A client writes beside it.
    rows: Rows,
    ack_log: Option<AckLog>,
    split: i64,
    /// The splits before it, whose guards stay until the end.
    earlier: Vec<i64>,
    version: i64,
    /// The number of rows of both tables when the copy begins.
    to_copy: i64,
    /// Whether the copy is complete.
    tailing: bool,
    /// The points at which the worker was held and struck.
    struck: Vec<&'a str>,
}

impl<'a> Cell<'a> {
    fn prepare(matrix: &'a mut Matrix, at: &'a [Injection], fault: Fault) -> Result<Cell<'a>> {
        matrix.tenants += 1;
        let mut cell = Cell {
            cluster: &mut matrix.cluster,
            sessions: &mut matrix.sessions,
            what: matrix.what,
            at,
            fault,
            tenant: format!("tenant {}", matrix.tenants),
            rows: Rows::new(),
            ack_log: None,
            split: 0,
            earlier: Vec::new(),
            version: 0,
            to_copy: 0,
            tailing: false,
            struck: Vec::new(),
        };
        cell.write(0, 0, 200)?;
        let client = cell.sessions.master(cell.cluster)?;
        client.batch_execute("DELETE FROM shardmaster.fault_fired")?;
        match cell.what {
            SplitScope::Tenant => {
                client.execute("SELECT shard_assign($1, 'shard_a')", &[&cell.tenant])?;
            }
            SplitScope::ReturningRange => cell.move_there_and_back()?,
            SplitScope::Bucket | SplitScope::Range => {}
        }
        cell.split = cell.plan(("shard_a", "shard_b"))?;
        cell.version = cell.routing_version()?;
        cell.ack_log = Some(AckLog::open(cell.cluster, &cell.tenant, cell.what.keyspace())?);
        Ok(cell)
    }

    fn plan(&mut self, way: (&str, &str)) -> Result<i64> {
        self.what.plan(self.sessions.master(self.cluster)?, &self.tenant, way)
    }

    /// Leaves a guard on each shard.
    fn move_there_and_back(&mut self) -> Result<()> {
        for way in [("shard_a", "shard_b"), ("shard_b", "shard_a")] {
            let id = self.plan(way)?;
            let client = self.sessions.master(self.cluster)?;
            client.batch_execute(&format!("CALL shard_split_run({id})"))?;
            client.execute("SELECT shard_split_finish($1)", &[&id])?;
            client.execute("SELECT shard_split_wait($1, 'finished', '60 s')", &[&id])?;
            self.earlier.push(id);
        }
        Ok(())
    }

    fn routing_version(&mut self) -> Result<i64> {
        let client = self.sessions.master(self.cluster)?;
        Ok(client.query_one("SELECT shard_routing_version($1)", &[&self.what.keyspace()])?.get(0))
    }

    fn run(&mut self) -> Result<()> {
        self.set_faults(false)?;
        self.copy(150, 250)?;
        if self.at.iter().any(|one| one.tailing) {
            self.set_faults(true)?;
            self.write(0, 200, 260)?;
            self.reach_faults()?;
        }
        self.write(0, 240, 300)?;
        if self.at.iter().any(|one| one.point.starts_with("rollback_")) {
            self.call("shard_split_rollback")?;
            self.reach("rolled_back")?;
            self.check_rolled_back()?;
            self.copy(290, 310)?;
        }
        self.call("shard_split_cutover")?;
        self.reach("completed")?;
        self.write(1, 300, 350)?;
        self.client_goes_on()?;
        self.call("shard_split_finish")?;
        self.reach("finished")?;
        let unreached = self.unreached(|_| true)?;
        if !unreached.is_empty() {
            return Err(format!("never reached: {}", unreached.join(", ")).into());
        }
        self.set("")?;
        self.client_goes_on()?;
        self.check()
    }

    /// Copies up to cutover_pending. Meanwhile it writes rows with ids in a range.
    fn copy(&mut self, from: i32, to: i32) -> Result<()> {
        self.call("shard_split_start_dual_write")?;
        self.reach("dual_write")?;
        self.write(0, from, to)?;
        self.to_copy = 2 * (self.rows.len() as i64 + i64::from(ack_log::ROWS));
        self.call("shard_split_run_backfill")?;
        self.reach("cutover_pending")
    }

    fn set(&mut self, fault: &str) -> Result<()> {
        Cluster::set_by(self.sessions.master(self.cluster)?, "shardmaster.fault", fault)
    }

    /// Sets the remaining faults of this part: before the end of the copy, or after it.
    fn set_faults(&mut self, tailing: bool) -> Result<()> {
        self.tailing = tailing;
        let action = match self.fault {
            Fault::Fault(action) => action,
            Fault::Terminate | Fault::Restart(_) => "hold",
        };
        let now = self.at.iter().filter(|one| tailing || !one.tailing).map(|one| one.point.as_str());
        let left = now.filter(|point| !self.struck.contains(point));
        let faults: Vec<String> = left.map(|point| format!("{point}={action}")).collect();
        self.set(&faults.join(","))
    }

    /// Waits for faults that no change of phase follows.
    fn reach_faults(&mut self) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while self.unreached(|one| one.tailing).map_or(true, |left| !left.is_empty()) {
            if Instant::now() > deadline {
                return Err("the points were not reached while changes were applied".into());
            }
            self.reach("cutover_pending")?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Waits until routes, fences and guards let the client through to its rows.
    fn client_goes_on(&self) -> Result<()> {
        self.ack_log.as_ref().map_or(Ok(()), |ack_log| ack_log.wait_for(5, LIMIT))
    }

    /// Makes a call, again and again until a server accepts it.
    fn call(&mut self, function: &str) -> Result<()> {
        let query = format!("SELECT {function}($1)");
        wait::until(function, LIMIT, || {
            let master = self.sessions.master(self.cluster);
            let called = master.and_then(|client| Ok(client.execute(&query, &[&self.split])?));
            match called {
                Ok(_) => Ok(Some(())),
                // The answer was lost, and the call has been carried out already.
                Err(e) if e.sqlstate() == Some("55000") => Ok(Some(())),
                Err(e) if e.sqlstate().is_none_or(|s| s.starts_with("57P") || s.starts_with("08")) => {
                    Ok(None)
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Waits for a phase, and injects the fault when the worker reaches the point.
    fn reach(&mut self, phase: &str) -> Result<()> {
        // shard_split_metrics is not used here, because it asks the source each time.
        let query = "SELECT CASE WHEN finished_at IS NOT NULL THEN 'finished' ELSE phase END, activity,
                coalesce(shardmaster.split_waits_for(id), ''), coalesce(error_message, '')
           FROM shardmaster.split_plan WHERE id = $1";
        let deadline = Instant::now() + LIMIT;
        loop {
            let Ok(row) = self.look(query) else {
                if Instant::now() > deadline {
                    return Err("the master does not come back".into());
                }
                std::thread::sleep(LOOK);
                continue;
            };
            let (now, activity, waiting, error): (String, String, String, String) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            self.strike(&waiting)?;
            // The master may be struck between two looks. Then the next look tells.
            if now == phase && self.is_settled(phase).unwrap_or(false) {
                return Ok(());
            }
            // If a server's end has interrupted a cutover, it is reverted. The operator requests it again.
            if phase == "completed" && now == "cutover_pending" && error.starts_with("cutover aborted") {
                self.call("shard_split_cutover")?;
            }
            if activity == "failed" {
                return Err(format!("failed in {now}: {error}").into());
            }
            if Instant::now() > deadline {
                return Err(format!("still {now}, {activity}, waiting for {waiting}, error {error}").into());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Queries one row about the split.
    fn look(&mut self, query: &str) -> Result<Row> {
        Ok(self.sessions.master(self.cluster)?.query_one(query, &[&self.split])?)
    }

    /// Whether the last steps of a phase are over.
    fn is_settled(&mut self, phase: &str) -> Result<bool> {
        if phase != "completed" {
            return Ok(true);
        }
        let query = "SELECT cutover_step = 'moved' FROM shardmaster.split_plan WHERE id = $1";
        Ok(self.look(query)?.get(0))
    }

    /// Injects the fault where the worker is held, and lets it continue to the next point.
    fn strike(&mut self, waiting: &str) -> Result<()> {
        let held = |one: &&Injection| waiting == format!("held at point \"{}\"", one.point);
        let Some(held) = self.at.iter().find(held) else { return Ok(()) };
        if self.struck.contains(&held.point.as_str()) {
            return Ok(());
        }
        self.struck.push(&held.point);
        match self.fault {
            Fault::Fault(_) => {}
            Fault::Terminate => self.terminate()?,
            Fault::Restart(Place::Source) => self.cluster.servers[0].restart(Stop::Immediate)?,
            Fault::Restart(Place::Target) => self.cluster.servers[1].restart(Stop::Immediate)?,
            Fault::Restart(Place::Master) => self.cluster.master.restart(Stop::Immediate)?,
        }
        self.set_faults(self.tailing)
    }

    /// Ends the worker while it is held. The next worker may be held as well.
    fn terminate(&mut self) -> Result<()> {
        let query = "SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = $1";
        let client = self.sessions.master(self.cluster)?;
        let ended = client.query(query, &[&format!("shardmaster split {}", self.split)])?;
        let pids: Vec<i32> = ended.iter().map(|row| row.get(0)).collect();
        if pids.is_empty() {
            return Err("no worker to terminate".into());
        }
        wait::until("the terminated worker to end", LIMIT, || {
            let query = "SELECT count(*) FROM pg_stat_activity WHERE pid = ANY ($1)";
            Ok((client.query_one(query, &[&pids])?.get::<_, i64>(0) == 0).then_some(()))
        })
    }

    /// Returns points of a kind at which nothing has happened yet.
    fn unreached(&mut self, kind: impl Fn(&Injection) -> bool) -> Result<Vec<&'a str>> {
        let query = "SELECT split_part(fault, '=', 1) FROM shardmaster.fault_fired";
        let rows = self.sessions.master(self.cluster)?.query(query, &[])?;
        let fired: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let happened = |point: &str| self.struck.contains(&point) || fired.iter().any(|name| name == point);
        let points = self.at.iter().filter(|one| kind(one)).map(|one| one.point.as_str());
        Ok(points.filter(|point| !happened(point)).collect())
    }

    /// Inserts, updates and deletes the tenant's rows with ids in a range.
    fn write(&mut self, server: usize, from: i32, to: i32) -> Result<()> {
        let client = self.sessions.shard(self.cluster, server)?;
        let mut transaction = client.transaction()?;
        let item = transaction.prepare(
            "INSERT INTO items VALUES ($1, $2, $3) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val",
        )?;
        let note = transaction.prepare(
            "INSERT INTO notes VALUES ($1, $2, $2, $3) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val",
        )?;
        let delete = transaction.prepare("DELETE FROM items WHERE tenant = $1 AND id = $2")?;
        for id in from..to {
            let val = format!("{id} of {}", self.rows.len());
            transaction.execute(&item, &[&self.tenant, &id, &val])?;
            transaction.execute(&note, &[&self.tenant, &id, &val])?;
            self.rows.insert(id, val);
            if id % 7 == 3 {
                transaction.execute(&delete, &[&self.tenant, &(id - 1)])?;
                self.rows.remove(&(id - 1));
            }
        }
        transaction.commit()?;
        Ok(())
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
