//! Rows of an origin become those of a copy, within one transaction: equal rows stay, so that sessions that refer to
//! them or read them wait for nothing. Values by which rows exclude each other may have been exchanged, so all rows
//! that give one up are deleted before any that gets one is inserted.

use super::table::ReferenceTable;
use crate::agent::error::{Result, SplitError};
use crate::agent::session;
use crate::agent::state::queue;
use crate::error::SqlState;
use crate::guc;
use crate::remote::Connection;
use crate::remote::copy::Bounds;
use crate::remote::pipe;
use crate::remote::quote::{ident, idents};
use crate::split::references::Reference;

/// Which rows are copied.
pub enum MergeRows<'a> {
    All,
    /// Those whose keys are in a queue, by a condition on its entries.
    Changed {
        queue: &'a str,
        condition: &'a str,
    },
}

/// Returns the limits. Others wait meanwhile, whether a shard hangs or works: each fourth attempt gives it the time
/// that whole tables may take without a sign of life.
fn bounds() -> Bounds {
    if session::has_connect_timeout() {
        Bounds { stall: guc::remote_timeout(), ..Bounds::unlimited() }
    } else {
        Bounds::unlimited()
    }
}

/// The number of rows from which statistics are useful.
const MANY: u64 = 1000;

impl ReferenceTable {
    fn temporary(&self, what: &str) -> String {
        format!("pg_temp.reference_{what}_{}", self.ordinal)
    }

    /// Returns a condition that a row has the same key as one of another table, whose columns are named by a function.
    fn same_key(&self, row: &str, other: impl Fn(usize, &str) -> String) -> String {
        let key = self.to_shape.key().iter().zip(self.to_shape.key_equality()).enumerate();
        let parts: Vec<String> = key
            .map(|(n, (column, equal))| equal.of(&format!("{row}.{}", ident(column)), &other(n, column)))
            .collect();
        parts.join(" AND ")
    }

    fn same_row(&self, row: &str, other: &str) -> String {
        self.same_key(row, |_, column| format!("{other}.{}", ident(column)))
    }

    /// Returns a condition that a row has one of the changed keys, which a table or queue has.
    fn is_changed(&self, row: &str, entry: &str) -> String {
        self.same_key(row, |n, _| format!("{entry}.k{}", n + 1))
    }

    fn differs(&self, columns: &[String]) -> String {
        format!("pg_catalog.record_image_ne(ROW({}), ROW({}))", idents("t.", columns), idents("n.", columns))
    }

    fn others(&self) -> Vec<String> {
        self.columns.iter().filter(|column| !self.fixed.contains(column)).cloned().collect()
    }

    /// Copies the rows. Returns how many have changed.
    pub fn bring(
        &self,
        origin: &mut Connection,
        shard: &mut Connection,
        rows: &MergeRows<'_>,
    ) -> Result<u64> {
        self.prepare(shard)?;
        let columns = idents("t.", &self.columns);
        let condition = match rows {
            MergeRows::All => String::new(),
            MergeRows::Changed { queue, condition } => {
                let keys = queue::keys(&self.from_shape).join(", ");
                // The condition is on columns that only the queue has.
                let out = format!(
                    "COPY (SELECT {keys} FROM {queue} WHERE {condition} AND k1 IS NOT NULL) TO STDOUT"
                );
                let into = format!("COPY {} FROM STDIN", self.temporary("keys"));
                self.pipe(origin, &out, shard, &into, bounds())?;
                let changed = self.is_changed("t", "q");
                format!(" WHERE EXISTS (SELECT 1 FROM {queue} q WHERE {condition} AND {changed})")
            }
        };
        let out = format!("COPY (SELECT {columns} FROM ONLY {} t{condition}) TO STDOUT", self.from);
        let into = format!("COPY {} FROM STDIN", self.temporary("new"));
        let copied = self.pipe(origin, &out, shard, &into, bounds())?;
        if copied >= MANY {
            shard.run(&format!("ANALYZE {}", self.temporary("new")))?;
        }
        self.merge(shard, rows)
    }

    fn pipe(
        &self,
        origin: &mut Connection,
        out: &str,
        shard: &mut Connection,
        into: &str,
        bounds: Bounds,
    ) -> Result<u64> {
        let copied = pipe::statements(origin, out, shard, into, bounds);
        Ok(copied.map_err(|error| error.of_table(&self.to))?.rows)
    }

    fn prepare(&self, shard: &mut Connection) -> Result<()> {
        let columns = idents("", &self.columns);
        let keys =
            self.to_shape.key().iter().enumerate().map(|(n, key)| format!("{} AS k{}", ident(key), n + 1));
        let keys: Vec<String> = keys.collect();
        let made = [("new", &columns), ("gone", &columns), ("keys", &keys.join(", "))].map(|(what, columns)| {
            format!(
                "CREATE TEMPORARY TABLE reference_{what}_{} ON COMMIT DROP AS SELECT {columns} FROM {} WITH NO DATA",
                self.ordinal, self.to
            )
        });
        shard.run(&made.join("; "))?;
        Ok(())
    }

    fn merge(&self, shard: &mut Connection, rows: &MergeRows<'_>) -> Result<u64> {
        let (to, new) = (&self.to, self.temporary("new"));
        let (columns, others) = (idents("", &self.columns), self.others());
        let same = self.same_row("t", "n");
        let stays =
            format!("EXISTS (SELECT 1 FROM {new} n WHERE {same} AND NOT {})", self.differs(&self.fixed));
        let among = match rows {
            MergeRows::All => "true".to_owned(),
            MergeRows::Changed { .. } => {
                format!(
                    "EXISTS (SELECT 1 FROM {} k WHERE {})",
                    self.temporary("keys"),
                    self.is_changed("t", "k")
                )
            }
        };
        let mut statements = vec![format!(
            "WITH gone AS (DELETE FROM ONLY {to} t WHERE {among} AND NOT {stays} RETURNING {})
             INSERT INTO {} SELECT * FROM gone",
            idents("t.", &self.columns),
            self.temporary("gone")
        )];
        if !others.is_empty() {
            let set: Vec<String> = others
                .iter()
                .map(|column| format!("{column} = n.{column}", column = ident(column)))
                .collect();
            statements.push(format!(
                "UPDATE ONLY {to} t SET {} FROM {new} n WHERE {same} AND {}",
                set.join(", "),
                self.differs(&others)
            ));
        }
        statements.push(format!(
            "INSERT INTO {to} ({columns}) OVERRIDING SYSTEM VALUE
             SELECT {columns} FROM {new} n WHERE NOT EXISTS (SELECT 1 FROM ONLY {to} t WHERE {same})"
        ));
        let mut changed = 0;
        for statement in statements {
            let outcome = shard.run_within(&statement, bounds().stall);
            changed += outcome.map_err(|error| error.of_table(to))?.affected;
        }
        Ok(changed)
    }

    /// Requires that nothing referred to deleted rows: in a replica's session the server does not check.
    pub fn require_no_dangling(&self, shard: &mut Connection) -> Result<()> {
        let gone = self.temporary("gone");
        if self.referenced_by.is_empty()
            || shard.run(&format!("SELECT EXISTS (SELECT 1 FROM {gone})"))?.scalar() != Some("t")
        {
            return Ok(());
        }
        for reference in &self.referenced_by {
            reference.require_readable(shard.shard())?;
            let query = format!(
                "SELECT {} FROM {} r WHERE {} AND EXISTS (SELECT 1 FROM {gone} g WHERE {})
                    AND NOT EXISTS (SELECT 1 FROM {} p WHERE {}) LIMIT 1",
                reference.value("r"),
                reference.from,
                reference.references("r"),
                reference.join("g", "r"),
                reference.to,
                reference.join("p", "r")
            );
            let found = shard.run_within(&query, bounds().stall)?;
            if let Some(value) = found.scalar() {
                return Err(dangling(shard.shard(), reference, value));
            }
        }
        Ok(())
    }
}

fn dangling(shard: &str, reference: &Reference, value: &str) -> SplitError {
    SplitError::failed(
        SqlState::parse("23503"),
        format!(
            "a row on shard \"{shard}\" refers to one that its origin no longer has: {}",
            reference.text(value)
        ),
        "Write that row to the origin again, or change what refers to it. Then the shard follows again automatically.",
    )
}
