//! Checks of a split after a fault: nothing is lost, nothing is there twice, and nothing is left behind.

use super::{Cell, LIMIT, leftovers};
use crate::ack_log::{self, Rows};
use crate::{Result, wait};

impl Cell<'_> {
    /// Checks that nothing is lost, nothing is there twice, and nothing is left behind.
    pub(super) fn check(&mut self) -> Result<()> {
        self.check_rows()?;
        let version = self.routing_version()?;
        if version != self.version + 1 {
            return Err(format!("routing version {} -> {version}", self.version).into());
        }
        let metrics = "SELECT total_rows_copied, routing_version_cutover FROM shard_split_metrics($1)";
        let row = self.look(metrics)?;
        let (copied, recorded): (i64, Option<i64>) = (row.get(0), row.get(1));
        if copied != self.to_copy || recorded != Some(version) {
            let expected = self.to_copy;
            return Err(format!("{copied} rows copied, not {expected}; version {recorded:?}").into());
        }
        let client = self.sessions.master(self.cluster)?;
        for split in self.earlier.iter().chain([&self.split]) {
            client.execute("SELECT shard_split_redirect_drop($1)", &[split])?;
        }
        self.check_nothing_is_left()
    }

    /// Checks that each row is on the target, and none on the source.
    fn check_rows(&mut self) -> Result<()> {
        let closed = self.ack_log.take().ok_or("no ack_log")?.close()?;
        let (items, notes) = (self.rows_of(1, "items")?, self.rows_of(1, "notes")?);
        for (table, found) in [("items", &items), ("notes", &notes)] {
            let own: Rows = found.range(..ack_log::FIRST_ID).map(|(id, val)| (*id, val.clone())).collect();
            if own != self.rows {
                return Err(format!("{table} of the target: {}", difference(&self.rows, &own)).into());
            }
            let left = self.rows_of(0, table)?;
            if !left.is_empty() {
                return Err(format!("{table} of the source still holds {} rows", left.len()).into());
            }
        }
        let differences = closed.differences(&items, &notes);
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n").into()) }
    }

    pub(super) fn check_rolled_back(&mut self) -> Result<()> {
        let left = self.rows_of(1, "items")?.len() + self.rows_of(1, "notes")?.len();
        if left > 0 {
            return Err(format!("{left} rows left on the target by the rollback").into());
        }
        let query = "SELECT shard_routing_version($2), total_rows_copied FROM shard_split_metrics($1)";
        let master = self.sessions.master(self.cluster)?;
        let row = master.query_one(query, &[&self.split, &self.what.keyspace()])?;
        if (row.get::<_, i64>(0), row.get::<_, i64>(1)) != (self.version, 0) {
            return Err(format!("after the rollback: {row:?}").into());
        }
        self.check_nothing_is_left()?;
        self.client_goes_on()
    }

    /// Checks that no object and no session of ours is left on a shard.
    fn check_nothing_is_left(&mut self) -> Result<()> {
        for (index, server) in self.cluster.servers.iter().enumerate() {
            let client = self.sessions.shard(self.cluster, index)?;
            let left = leftovers(client)?;
            if !left.is_empty() {
                return Err(format!("left on {}: {}", server.name(), left.join(", ")).into());
            }
            let ended = "SELECT NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'shardmaster%')";
            wait::until_true(client, "the worker's sessions to end", LIMIT, ended)?;
        }
        Ok(())
    }

    fn rows_of(&mut self, server: usize, table: &str) -> Result<Rows> {
        let client = self.sessions.shard(self.cluster, server)?;
        let query = format!("SELECT id, val FROM {table} WHERE tenant = $1");
        let rows = client.query(&query, &[&self.tenant])?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }
}

fn difference(expected: &Rows, found: &Rows) -> String {
    let missing: Vec<_> =
        expected.iter().filter(|(id, _)| !found.contains_key(id)).map(|(id, _)| id).collect();
    let extra: Vec<_> = found.keys().filter(|id| !expected.contains_key(id)).collect();
    let other: Vec<_> =
        expected.iter().filter(|(id, v)| found.get(id).is_some_and(|f| f != *v)).map(|(id, _)| id).collect();
    format!("missing {missing:?}, extra {extra:?}, of another version {other:?}")
}
