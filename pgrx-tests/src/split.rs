//! A split, operated as an operator would.

use crate::cluster::{Cluster, DATABASE};
use crate::{Error, Result, wait};
use postgres::{Client, NoTls};
use std::time::Duration;

/// The state of a split, for code that polls. `shard_split_metrics` would ask the source for the lag each
/// time, in a session of its own.
const STATE: &str = "
    SELECT phase, activity, coalesce(shardmaster.split_waits_for(id), ''), coalesce(error_message, '')
      FROM shardmaster.split_plan WHERE id = $1";

/// What a split does at one moment.
#[derive(Debug)]
struct State {
    phase: String,
    activity: String,
    waiting_for: String,
    error: String,
}

/// A split of a cluster, by its id.
pub struct Split<'a> {
    cluster: &'a Cluster,
    pub id: i64,
}

impl Split<'_> {
    /// Opens a superuser's session on the master.
    pub fn superuser(&self) -> Result<Client> {
        self.cluster.superuser()
    }

    /// Waits until the split is caught up again and nothing blocks it.
    pub fn wait_settled(&self, limit: Duration) -> Result<()> {
        let settled = wait::until("the split to be caught up again", limit, || {
            let state = self.state()?;
            let settled = state.phase == "cutover_pending"
                && ["idle", "working"].contains(&state.activity.as_str())
                && state.waiting_for == "waiting for shard_split_cutover";
            Ok(settled.then_some(()))
        });
        settled.map_err(|e| e.context(&self.describe()))
    }

    /// Waits until it has cut over and both shards know it. Before that only the target does.
    pub fn wait_told(&self, limit: Duration) -> Result<()> {
        self.wait("completed", limit)?;
        let query = "SELECT cutover_step = 'moved' FROM shardmaster.split_plan WHERE id = $1";
        let told = || Ok(self.cluster.kept()?.query_one(query, &[&self.id])?.get::<_, bool>(0).then_some(()));
        wait::until("the shards to be told", limit, told)
    }

    /// Calls `shard_split_plan` for the default keyspace.
    pub fn plan<'a>(cluster: &'a Cluster, source: &str, target: &str, tenants: &[&str]) -> Result<Split<'a>> {
        let query = "SELECT shard_split_plan($1, $2, $3)";
        let id = cluster.kept()?.query_one(query, &[&source, &target, &tenants])?.get(0);
        Ok(Split { cluster, id })
    }

    /// Plans a split by a query, which returns its id.
    pub fn plan_by<'a>(cluster: &'a Cluster, query: &str) -> Result<Split<'a>> {
        let id = cluster.kept()?.query_one(query, &[])?.get(0);
        Ok(Split { cluster, id })
    }

    /// Returns a split that was planned before.
    pub fn of(cluster: &Cluster, id: i64) -> Split<'_> {
        Split { cluster, id }
    }

    /// Makes one of the calls that record a goal: `start_dual_write`, `cutover`, `rollback`, ...
    pub fn call(&self, name: &str) -> Result<()> {
        let query = format!("SELECT shard_split_{name}($1)");
        let mut client = self.cluster.kept()?;
        client
            .execute(&query, &[&self.id])
            .map_err(|e| Error::from(e).context(&format!("shard_split_{name}")))?;
        Ok(())
    }

    /// Accepts every remark of its check.
    pub fn accept_remarks(&self) -> Result<()> {
        let query = "SELECT shard_split_accept($1, check_name, object) FROM shard_split_check($1) WHERE NOT ok AND object IS NOT NULL";
        self.cluster.kept()?.execute(query, &[&self.id])?;
        Ok(())
    }

    /// Calls `shard_split_wait`. The error says what the split was doing.
    pub fn wait(&self, phase: &str, limit: Duration) -> Result<String> {
        let query = "SELECT shard_split_wait($1, $2, $3::text::interval)";
        let seconds = format!("{} s", limit.as_secs());
        let reached = self.cluster.kept()?.query_one(query, &[&self.id, &phase, &seconds]);
        match reached {
            Ok(row) => Ok(row.get(0)),
            Err(e) => Err(Error::from(e).context(&format!("waiting for {phase}; {}", self.describe()))),
        }
    }

    /// Calls `shard_split_run`, from any phase. Each line of progress goes to `say`.
    pub fn run(&self, say: impl Fn(&str) + Send + Sync + 'static) -> Result<()> {
        let mut config = self.cluster.master.config(DATABASE, "postgres");
        config.notice_callback(move |notice| say(notice.message()));
        let mut client: Client = config.connect(NoTls)?;
        let outcome = client.batch_execute(&format!("CALL shard_split_run({})", self.id));
        outcome.map_err(|e| Error::from(e).context(&self.describe()))
    }

    /// Removes the moved rows from the source.
    pub fn finish(&self, limit: Duration) -> Result<()> {
        self.call("finish")?;
        self.wait("finished", limit).map(drop)
    }

    /// Finishes a split, and accepts deleting rows that the target does not have.
    pub fn finish_accepting(&self, limit: Duration) -> Result<()> {
        let query = "SELECT shard_split_finish($1, accept_missing => true)";
        self.cluster.kept()?.execute(query, &[&self.id])?;
        self.wait("finished", limit).map(drop)
    }

    /// Returns its events as one text.
    pub fn events(&self) -> Result<String> {
        let query = "SELECT coalesce(string_agg(detail, '; ' ORDER BY at), '') FROM shard_split_events($1)";
        Ok(self.cluster.kept()?.query_one(query, &[&self.id])?.get(0))
    }

    /// Waits until its events contain a text. The master may restart meanwhile.
    pub fn wait_for_event(&self, text: &str, limit: Duration) -> Result<()> {
        let told = wait::until(&format!("the event \"{text}\""), limit, || {
            Ok(self.events().unwrap_or_default().contains(text).then_some(()))
        });
        let events = || self.events().unwrap_or_default();
        told.map_err(|e| e.context(&format!("{}; {}", self.describe(), events())))
    }

    /// Waits until it has failed, and returns its error.
    pub fn failure(&self, limit: Duration) -> Result<String> {
        wait::until("the split to fail", limit, || {
            Ok(self.metric::<Option<String>>("error_message")?.filter(|text| !text.is_empty()))
        })
    }

    /// Returns the findings of `shard_split_check`, each as "name: detail".
    pub fn findings(&self) -> Result<Vec<String>> {
        self.check("check_name || ': ' || detail")
    }

    /// Returns the findings with their hints, where the check gives one: "name: detail HINT: hint".
    pub fn findings_with_hints(&self) -> Result<Vec<String>> {
        self.check("check_name || ': ' || detail || coalesce(' HINT: ' || hint, '')")
    }

    /// Evaluates an expression over the rows of the check that are not ok, in their order.
    fn check(&self, what: &str) -> Result<Vec<String>> {
        let query = format!("SELECT {what} FROM shard_split_check($1) WHERE NOT ok");
        let rows = self.cluster.kept()?.query(&query, &[&self.id])?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Drops the redirect, so that the old shard no longer refuses clients with an old route.
    pub fn drop_guard(&self) -> Result<()> {
        self.cluster.kept()?.execute("SELECT shard_split_redirect_drop($1)", &[&self.id])?;
        Ok(())
    }

    /// Waits until the worker holds at a named point; see `Cluster::hold`. A worker that has failed never
    /// reaches the point.
    pub fn wait_held(&self, point: &str, limit: Duration) -> Result<()> {
        let held = wait::until(&format!("the worker to hold at {point}"), limit, || {
            let state = self.state()?;
            if state.activity == "failed" {
                return Err(format!("failed before {point}: {}", state.error).into());
            }
            Ok(state.waiting_for.contains(point).then_some(()))
        });
        held.map_err(|e| e.context(&self.describe()))
    }

    fn state(&self) -> Result<State> {
        let row = self.cluster.kept()?.query_one(STATE, &[&self.id])?;
        Ok(State { phase: row.get(0), activity: row.get(1), waiting_for: row.get(2), error: row.get(3) })
    }

    /// Returns one column of `shard_split_metrics`.
    pub fn metric<T: for<'b> postgres::types::FromSql<'b>>(&self, column: &str) -> Result<T> {
        let query = format!("SELECT {column} FROM shard_split_metrics($1)");
        Ok(self.cluster.kept()?.query_one(&query, &[&self.id])?.try_get(0)?)
    }

    /// Returns the most memory that the split's worker has had, in bytes, or `None` if it has no worker now.
    pub fn worker_memory(&self) -> Result<Option<u64>> {
        let query =
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'shardmaster split ' || $1::bigint::text";
        let Some(row) = self.superuser()?.query_opt(query, &[&self.id])? else { return Ok(None) };
        let pid: i32 = row.get(0);
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with("VmHWM:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Ok(kilobytes.map(|kilobytes| kilobytes << 10))
    }

    pub fn phase(&self) -> Result<String> {
        Ok(self.state()?.phase)
    }

    /// Says in one line what the split does and why it waits.
    pub fn describe(&self) -> String {
        let query = "SELECT format('split %s: %s, %s, waiting for %s, %s rows copied, error: %s',
                split_id, phase, activity, coalesce(waiting_for, 'nothing'), total_rows_copied,
                coalesce(error_message, 'none')) FROM shard_split_metrics($1)";
        let line =
            || -> Result<String> { Ok(self.cluster.superuser()?.query_one(query, &[&self.id])?.get(0)) };
        line().unwrap_or_else(|e| format!("split {}: no metrics: {e}", self.id))
    }
}
