//! Stress for splits that must not harm them: rewrites of tables, migrations on all shards, and transactions
//! that stay open or prepared.

use super::keys::{KeyIndex, Space};
use super::stage::SHARDS;
use super::walk::Walk;
use crate::Result;
use crate::cluster::OWNER;
use std::time::Duration;

/// The longest time that rows are held, in milliseconds, in addition to the call that is made meanwhile.
const HELD: usize = 800;

impl Walk {
    /// Stresses splits in long runs only, because it makes a walk slower.
    pub(super) fn strain(&mut self) -> Result<String> {
        if std::env::var_os("SHARDMASTER_WALK_SECONDS").is_none() {
            return self.drive();
        }
        match self.random.below(4) {
            0 => self.rewrite(),
            1 => self.migrate(),
            _ => self.hold_rows(),
        }
    }

    /// Rewrites a table. Afterwards its rows are in another file, in the same order or not.
    fn rewrite(&mut self) -> Result<String> {
        let (shard, space) = (self.random.below(SHARDS), *self.random.one_of(&Space::ALL));
        let table = *self.random.one_of(&space.tables());
        let told = self.stage.cluster.owner_of(&self.stage.cluster.shards[shard]).and_then(|mut owner| {
            owner.batch_execute(&format!("SET lock_timeout = '2s'; SET ROLE {OWNER}"))?;
            // VACUUM FULL cannot run in one batch with other statements.
            Ok(owner.batch_execute(&format!("VACUUM FULL {table}"))?)
        });
        self.forgive(&format!("VACUUM FULL {table} on shard {shard}"), told)
    }

    /// Adds a column to a table on all shards, or drops it. A split whose tables have changed since its
    /// cutover cannot be reversed, so no split may be open.
    fn migrate(&mut self) -> Result<String> {
        if !self.model.splits.iter().all(|split| split.seen.is_over()) {
            return self.rewrite();
        }
        // Detached partitions would not get the column.
        let space = *self.random.one_of(&[Space::Directory, Space::Range]);
        let table = *self.random.one_of(&space.tables());
        let change = *self.random.one_of(&[
            "ADD COLUMN IF NOT EXISTS extra int",
            "ADD COLUMN IF NOT EXISTS more text DEFAULT 'x'",
            "DROP COLUMN IF EXISTS extra",
            "DROP COLUMN IF EXISTS more",
        ]);
        self.excuse_failures();
        for shard in 0..SHARDS {
            self.until_owned(shard, &format!("ALTER TABLE {table} {change}"))?;
        }
        self.excuse_failures();
        Ok(format!("ALTER TABLE {table} {change} on all shards"))
    }

    /// Makes the next call while an open transaction has changed rows, without changing their values.
    fn hold_rows(&mut self) -> Result<String> {
        let space = *self.random.one_of(&Space::ALL);
        let keys: Vec<KeyIndex> = self.stage.keys_of(space).collect();
        let key = *self.random.one_of(&keys);
        let Some(shard) = self.model.routes[key] else { return self.rewrite() };
        let name = self.stage.keys[key].text.clone();
        let update =
            format!("UPDATE {} SET val = val WHERE {} = '{name}'", space.tables()[0], space.column());
        let is_prepared = self.random.percent(50);
        let end = if self.random.percent(50) { "COMMIT" } else { "ROLLBACK" };
        let opened = self.stage.client_of(shard).and_then(|mut client| {
            client.batch_execute(&format!("SET lock_timeout = '2s'; BEGIN; {update}"))?;
            if is_prepared {
                client.batch_execute("PREPARE TRANSACTION 'a walk'")?;
            }
            Ok(client)
        });
        let what = format!("rows of \"{name}\" on shard {shard} held, prepared: {is_prepared}, {end}");
        let mut client = match opened {
            Ok(client) => client,
            Err(error) => return self.forgive(&what, Err(error)),
        };
        self.holds_rows = true;
        let meanwhile = self.drive();
        self.holds_rows = false;
        std::thread::sleep(Duration::from_millis(self.random.below(HELD) as u64));
        if is_prepared {
            self.end_prepared(shard, end)?;
        } else {
            // Its server may have restarted.
            let _ = client.batch_execute(end);
        }
        Ok(format!("{what}; meanwhile {}", meanwhile?))
    }

    /// Ends a prepared transaction, which outlives its server.
    fn end_prepared(&mut self, shard: usize, end: &str) -> Result<()> {
        let query = format!("{end} PREPARED 'a walk'");
        self.mend_all()?;
        let mut client = self.stage.client_of(shard)?;
        Ok(client.batch_execute(&query)?)
    }

    /// A lock that was not available, or a server that is away, is not caused by a split.
    fn forgive(&self, what: &str, told: Result<()>) -> Result<String> {
        match told {
            Ok(()) => Ok(format!("{what}: done")),
            Err(error)
                if error.sqlstate().is_none_or(|state| {
                    state.starts_with("SM")
                        || ["55P03", "40P01", "40001", "55006"].contains(&state)
                        || state.starts_with("57P")
                        || state.starts_with("08")
                }) =>
            {
                Ok(format!("{what}: {error}"))
            }
            Err(error) => Err(error.context(what)),
        }
    }
}
