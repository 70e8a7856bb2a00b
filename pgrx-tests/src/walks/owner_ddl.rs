//! Changes by the tables' owners during a walk: they rename columns and tables, attach and detach partitions,
//! and empty a partition.

use super::comparison;
use super::keys::{KeyIndex, Space};
use super::stage::{BOUND, SHARDS};
use super::walk::Walk;
use crate::cluster::OWNER;
use crate::{Error, Result};
use std::time::{Duration, Instant};

/// The time between a renaming and its reversal, in which workers notice it.
const NOTICED: Duration = Duration::from_millis(250);

/// Partitions of one shard without rows.
#[derive(Clone, Debug, Default)]
pub struct Spares {
    attached: Vec<usize>,
    detached: Vec<usize>,
    next: usize,
}

impl Walk {
    pub(super) fn act(&mut self) -> Result<String> {
        let shard = self.random.below(SHARDS);
        match self.random.below(10) {
            0..2 => self.rename_column(shard),
            2..4 => self.rename_table(shard),
            4..8 => self.change_partitions(shard),
            _ => self.truncate_leaf(shard),
        }
    }

    /// Runs statements as the tables' owner. Returns false if a lock was not available, and then nothing has
    /// happened.
    fn own(&mut self, shard: usize, statements: &str) -> Result<bool> {
        let outcome = self.stage.cluster.owner_of(&self.stage.cluster.shards[shard]).and_then(|mut owner| {
            let batch = format!("SET lock_timeout = '2s'; SET ROLE {OWNER}; {statements}");
            Ok(owner.batch_execute(&batch)?)
        });
        match outcome {
            Ok(()) => Ok(true),
            Err(error) if error.sqlstate().is_none_or(is_patience) => Ok(false),
            Err(error) => Err(error.context(statements)),
        }
    }

    /// Renames a column for a while. Clients of the table wait meanwhile, since they name the column, but the
    /// probes do not.
    fn rename_column(&mut self, shard: usize) -> Result<String> {
        let space = *self.random.one_of(&Space::ALL);
        let table = *self.random.one_of(&space.tables());
        let column = *self.random.one_of(&[space.column(), "val"]);
        let shared = self.writers.shared.clone();
        let quiet = shared.quiet();
        self.excuse_failures();
        let there = format!("ALTER TABLE {table} RENAME COLUMN {column} TO renamed");
        if self.own(shard, &there)? {
            std::thread::sleep(NOTICED);
            self.check()?;
            self.until_owned(shard, &format!("ALTER TABLE {table} RENAME COLUMN renamed TO {column}"))?;
        }
        self.excuse_failures();
        drop(quiet);
        Ok(format!("{column} of {table} on shard {shard} renamed, and back"))
    }

    fn rename_table(&mut self, shard: usize) -> Result<String> {
        let space = *self.random.one_of(&Space::ALL);
        let table = *self.random.one_of(&space.tables());
        let shared = self.writers.shared.clone();
        let quiet = shared.quiet();
        self.excuse_failures();
        if self.own(shard, &format!("ALTER TABLE {table} RENAME TO renamed"))? {
            std::thread::sleep(NOTICED);
            self.until_owned(shard, &format!("ALTER TABLE renamed RENAME TO {table}"))?;
        }
        self.excuse_failures();
        drop(quiet);
        Ok(format!("{table} on shard {shard} renamed, and back"))
    }

    /// Runs statements that must succeed in the end, however long others hold the lock.
    pub(super) fn until_owned(&mut self, shard: usize, statements: &str) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.own(shard, statements)? {
            if Instant::now() > deadline {
                return Err(format!("no lock for a minute: {statements}").into());
            }
        }
        Ok(())
    }

    /// Attaches, detaches or drops an empty partition. Splits continue, whatever partitions the other side has.
    fn change_partitions(&mut self, shard: usize) -> Result<String> {
        let table = Space::Hash.tables()[0];
        let spares = &mut self.spares[shard];
        let (statements, after) = match self.random.below(3) {
            0 if !spares.attached.is_empty() => {
                let mut after = spares.clone();
                let number = after.attached.remove(0);
                after.detached.push(number);
                (format!("ALTER TABLE {table} DETACH PARTITION {table}_{number}"), after)
            }
            1 if !spares.detached.is_empty() => {
                let mut after = spares.clone();
                let number = after.detached.remove(0);
                let from = 1_000_000 + 10 * number;
                let bounds = format!("FOR VALUES FROM ({from}) TO ({})", from + 10);
                if self.random.percent(30) {
                    (format!("DROP TABLE {table}_{number}"), after)
                } else {
                    after.attached.push(number);
                    (format!("ALTER TABLE {table} ATTACH PARTITION {table}_{number} {bounds}"), after)
                }
            }
            _ => {
                let mut after = spares.clone();
                let number = after.next;
                after.next += 1;
                after.attached.push(number);
                let from = 1_000_000 + 10 * number;
                let bounds = format!("FOR VALUES FROM ({from}) TO ({})", from + 10);
                (format!("CREATE TABLE {table}_{number} PARTITION OF {table} {bounds}"), after)
            }
        };
        let done = self.own(shard, &statements)?;
        if done {
            self.spares[shard] = after;
        }
        Ok(format!("{statements} on shard {shard}: {}", if done { "done" } else { "no lock" }))
    }

    /// A client empties one partition of the second table. The rows that are expected there are written again.
    fn truncate_leaf(&mut self, shard: usize) -> Result<String> {
        let leaf = format!("{}_low", Space::Hash.tables()[1]);
        let shared = self.writers.shared.clone();
        let _quiet = shared.quiet();
        let outcome = self.stage.client_of(shard).and_then(|mut client| {
            Ok(client.batch_execute(&format!("SET lock_timeout = '2s'; TRUNCATE {leaf}"))?)
        });
        let told = match outcome {
            Ok(()) => "done".to_owned(),
            Err(error)
                if error
                    .sqlstate()
                    .is_none_or(|s| is_patience(s) || s.starts_with("SM00") || s == "55006") =>
            {
                error.to_string()
            }
            Err(error) => return Err(error.context(&format!("TRUNCATE {leaf} on shard {shard}"))),
        };
        let keys: Vec<KeyIndex> = self.stage.keys_of(Space::Hash).collect();
        let deadline = Instant::now() + 6 * BOUND;
        while !self.write_again(&keys).unwrap_or(false) {
            if Instant::now() > deadline {
                return Err("rows of the second table could not be written again".into());
            }
            std::thread::sleep(Duration::from_millis(50)); // between two attempts
        }
        Ok(format!("TRUNCATE {leaf} on shard {shard}: {told}"))
    }

    /// Writes the missing row of the second table for each row of the first. Returns false if this was not
    /// possible for all.
    fn write_again(&mut self, keys: &[KeyIndex]) -> Result<bool> {
        let routes = self.routed()?;
        let [_, child] = Space::Hash.tables();
        for shard in 0..SHARDS {
            let held = comparison::held(&self.stage, shard)?;
            for key in keys.iter().filter(|key| routes[**key].is_some_and(|(at, _)| at == shard)) {
                let [parents, children] = &held[key];
                for (id, value) in parents.iter().filter(|(id, _)| !children.contains_key(*id)) {
                    let name = &self.stage.keys[*key].text;
                    let mut client = self.stage.client_of(shard)?;
                    let insert = format!("INSERT INTO {child} VALUES ('{name}', {id}, '{value}')");
                    client.batch_execute(&insert).map_err(Error::from)?;
                }
            }
        }
        Ok(routes == self.routed()? && keys.iter().all(|key| routes[*key].is_none_or(|(_, settled)| settled)))
    }
}

/// Whether the error is a lock that was not available in time, a deadlock, or a server that restarts.
fn is_patience(state: &str) -> bool {
    ["55P03", "40P01"].contains(&state) || state.starts_with("57P") || state.starts_with("08")
}
