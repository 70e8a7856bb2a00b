//! Rows of `shardmaster.standing_guard`: the shards that refuse rows of keys that they never had, and the progress of
//! their guards. A session that routes something to a shard reads these rows under the keyspace's lock, under which
//! they are also inserted, so it misses none.

use crate::catalog::database_location;
use crate::catalog::database_location::Sameness;
use crate::catalog::keyspace::LockedKeyspace;
use crate::catalog::shard;
use crate::catalog::shard::Shard;
use crate::catalog::table_policy::TableName;
use crate::named_enum::named_enum;
use crate::server::sql::{self, Row};

named_enum! {
    /// The stage of a guard. Each is committed before the next one begins.
    pub enum GuardStage {
        /// Sessions that assign from now on tell the shard, which may know of nothing yet.
        Begun = "begun",
        /// The shard has an empty list, and no trigger that reads it.
        Made = "made",
        /// Every session that has not told the shard has committed.
        Listing = "listing",
        /// The list is complete.
        Fitting = "fitting",
        Stands = "stands",
        Going = "going",
        /// Removed without the shard: no session tells it anything, and what is left there refuses keys that are new to
        /// it until it is cleaned up.
        Left = "left",
    }
}

pub struct GuardRecord {
    pub shard_key: String,
    pub keyspace: String,
    pub stage: GuardStage,
    /// The last entry that is on the list, or the last table that has triggers.
    pub listed_to: Option<String>,
    /// The tables that have triggers, or will get them.
    pub tables: Vec<String>,
    /// Addresses of other databases, which have answered when the list was made.
    pub apart: Vec<String>,
    /// Whether this very transaction has written the row: its values are not committed.
    pub is_new: bool,
}

const COLUMNS: &str =
    "shard_key, keyspace, stage, listed_to, tables, changed_by = pg_catalog.pg_current_xact_id(), apart";

fn from_row(row: &Row<'_>) -> GuardRecord {
    GuardRecord {
        shard_key: row.value(1),
        keyspace: row.value(2),
        stage: GuardStage::from_name(&row.value::<String>(3)).unwrap_or(GuardStage::Begun),
        listed_to: row.get(4),
        tables: row.value(5),
        is_new: row.value(6),
        apart: row.value(7),
    }
}

/// Begins a guard, or begins it anew: what is on the shard already stays, and is checked again.
pub fn begin(keyspace: &LockedKeyspace, shard_key: &str) {
    sql::write(
        "INSERT INTO shardmaster.standing_guard (keyspace, shard_key) VALUES ($1, $2)
         ON CONFLICT (keyspace, shard_key) DO UPDATE
            SET stage = 'begun', listed_to = NULL, apart = '{}', changed_by = pg_catalog.pg_current_xact_id()",
        &[keyspace.name.as_str().into(), shard_key.into()],
    );
}

/// Returns the guard and locks it: no other session continues it before the transaction ends.
pub fn lock(keyspace: &str, shard_key: &str) -> Option<GuardRecord> {
    let query = format!(
        "SELECT {COLUMNS} FROM shardmaster.standing_guard WHERE keyspace = $1 AND shard_key = $2 FOR UPDATE"
    );
    sql::write_one(&query, &[keyspace.into(), shard_key.into()], |row| from_row(&row))
}

pub fn set_stage(guard: &GuardRecord, stage: GuardStage, listed_to: Option<&str>) {
    sql::write(
        "UPDATE shardmaster.standing_guard
            SET stage = $3, listed_to = $4, changed_by = pg_catalog.pg_current_xact_id()
          WHERE keyspace = $1 AND shard_key = $2",
        &[
            guard.keyspace.as_str().into(),
            guard.shard_key.as_str().into(),
            stage.as_str().into(),
            listed_to.into(),
        ],
    );
}

/// Stores the tables that have triggers, or will get them.
pub fn set_tables(guard: &GuardRecord, tables: &[String]) {
    sql::write(
        "UPDATE shardmaster.standing_guard SET tables = $3, changed_by = pg_catalog.pg_current_xact_id()
          WHERE keyspace = $1 AND shard_key = $2",
        &[guard.keyspace.as_str().into(), guard.shard_key.as_str().into(), tables.to_vec().into()],
    );
}

/// Restarts a guard, since what the shard has may be older than the routes, or may be missing. The session that works
/// on the guard just now need not be told, and its row lock is not waited for, since it waits for the keyspace of the
/// session that calls this.
pub fn is_gone(guard: &GuardRecord) -> bool {
    sql::write(
        "UPDATE shardmaster.standing_guard g
            SET stage = 'begun', listed_to = NULL, apart = '{}', changed_by = pg_catalog.pg_current_xact_id()
           FROM (SELECT keyspace, shard_key FROM shardmaster.standing_guard
                  WHERE keyspace = $1 AND shard_key = $2 AND stage = 'stands' FOR UPDATE SKIP LOCKED) found
          WHERE g.keyspace = found.keyspace AND g.shard_key = found.shard_key",
        &[guard.keyspace.as_str().into(), guard.shard_key.as_str().into()],
    ) == 1
}

/// Locks all guards of a shard: no other session continues one before the transaction ends.
pub fn lock_of_shard(shard_key: &str) {
    sql::write_returning(
        "SELECT keyspace FROM shardmaster.standing_guard WHERE shard_key = $1 ORDER BY keyspace FOR UPDATE",
        &[shard_key.into()],
        |row| row.value::<String>(1),
    );
}

/// Restarts all guards of a shard whose address leads to another place now, and returns their keyspaces.
pub fn moved(shard_key: &str) -> Vec<String> {
    sql::write_returning(
        "UPDATE shardmaster.standing_guard
            SET stage = 'begun', listed_to = NULL, apart = '{}', changed_by = pg_catalog.pg_current_xact_id()
          WHERE shard_key = $1 AND stage NOT IN ('going', 'left') RETURNING keyspace",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Deletes guards of a shard whose remains are gone, or whose shard is, and returns their keyspaces.
pub fn forget_left(shard_key: &str) -> Vec<String> {
    sql::write_returning(
        "DELETE FROM shardmaster.standing_guard WHERE shard_key = $1 AND stage = 'left' RETURNING keyspace",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Deletes guards of a keyspace that were removed without their shards, and returns these shards.
pub fn forget_left_of_keyspace(keyspace: &LockedKeyspace) -> Vec<String> {
    sql::write_returning(
        "DELETE FROM shardmaster.standing_guard WHERE keyspace = $1 AND stage = 'left' RETURNING shard_key",
        &[keyspace.name.as_str().into()],
        |row| row.value(1),
    )
}

/// Deletes a guard. Returns false if there was none.
pub fn delete(keyspace: &str, shard_key: &str) -> bool {
    sql::write(
        "DELETE FROM shardmaster.standing_guard WHERE keyspace = $1 AND shard_key = $2",
        &[keyspace.into(), shard_key.into()],
    ) == 1
}

/// Returns the guards of a keyspace, including those that are being made or removed, but none that was removed without
/// its shard.
pub fn of_keyspace(keyspace: &str) -> Vec<GuardRecord> {
    let query = format!(
        "SELECT {COLUMNS} FROM shardmaster.standing_guard WHERE keyspace = $1 AND stage <> 'left' ORDER BY shard_key"
    );
    // Comparing transaction ids assigns one to this transaction, so this is run as a write.
    sql::write_returning(&query, &[keyspace.into()], |row| from_row(&row))
}

/// A guard as the view `shard_guard` shows it.
pub struct ListedGuard {
    pub shard: String,
    pub keyspace: String,
    pub state: String,
    /// Tables that were added since.
    pub not_guarded: Vec<String>,
}

/// Returns the guards that are not complete.
pub fn not_standing() -> Vec<ListedGuard> {
    sql::read(
        "SELECT shard_key, keyspace, state, not_guarded FROM shardmaster.shard_guard
          WHERE state <> 'guarded' ORDER BY keyspace, shard_key",
        &[],
        |row| ListedGuard {
            shard: row.value(1),
            keyspace: row.value(2),
            state: row.value(3),
            not_guarded: row.value(4),
        },
    )
}

/// Returns a shard that has a guard, and the keyspace.
pub fn any() -> Option<(String, String)> {
    let first = "SELECT shard_key, keyspace FROM shardmaster.standing_guard WHERE stage <> 'left' ORDER BY keyspace, shard_key LIMIT 1";
    sql::read_one(first, &[], |row| (row.value(1), row.value(2)))
}

/// Returns the guards of a keyspace for a session that only reads, for example on a standby. None is reported as new.
pub fn look_of_keyspace(keyspace: &str) -> Vec<GuardRecord> {
    sql::read(
        "SELECT shard_key, keyspace, stage, listed_to, tables, false, apart FROM shardmaster.standing_guard
          WHERE keyspace = $1 AND stage <> 'left' ORDER BY shard_key",
        &[keyspace.into()],
        |row| from_row(&row),
    )
}

/// Returns a keyspace of which the shard has a guard.
pub fn any_of_shard(shard_key: &str) -> Option<String> {
    sql::read_one(
        "SELECT keyspace FROM shardmaster.standing_guard WHERE shard_key = $1 AND stage <> 'left' ORDER BY keyspace LIMIT 1",
        &[shard_key.into()],
        |row| row.value(1),
    )
}

/// Returns the keyspaces of which the shard has a guard, or may have one that was removed without it.
pub fn keyspaces_of_shard(shard_key: &str) -> Vec<String> {
    sql::read_column(
        "SELECT keyspace FROM shardmaster.standing_guard WHERE shard_key = $1",
        &[shard_key.into()],
    )
}

/// Returns the shards whose guard has triggers on a table.
pub fn shards_of_table(keyspace: &str, table: &str) -> Vec<String> {
    sql::read_column(
        "SELECT shard_key FROM shardmaster.standing_guard
          WHERE keyspace = $1 AND $2 = ANY (tables) AND stage <> 'left' ORDER BY shard_key",
        &[keyspace.into(), table.into()],
    )
}

fn address(shard: &Shard) -> String {
    shard.conninfo.clone().unwrap_or_default()
}

impl GuardRecord {
    /// Whether the shard has a list that sessions tell about what they route there.
    pub fn is_made(&self) -> bool {
        matches!(self.stage, GuardStage::Listing | GuardStage::Fitting | GuardStage::Stands)
    }

    /// Whether nothing is left to be done for the guard.
    pub fn is_whole(&self) -> bool {
        self.stage == GuardStage::Stands
    }

    /// Whether a shard is where the guard is: one namespace of one database may have many names.
    pub fn is_at(&self, shard: &Shard) -> Sameness {
        match shard::by_key(&self.shard_key).map(|own| database_location::compare(&own, shard)) {
            Ok(Sameness::Unknown) if self.apart.contains(&address(shard)) => Sameness::Different,
            Ok(sameness) => sameness,
            Err(_) => Sameness::Different,
        }
    }

    /// Whether another namespace of the same database has some of its tables, through the tables' own schemas.
    pub fn shares_tables_with(&self, shard: &Shard) -> bool {
        let has_schema = |table: &String| TableName::of(table).schema.is_some();
        self.shard_key != shard.shard_key
            && self.tables.iter().any(has_schema)
            && shard::by_key(&self.shard_key).is_ok_and(|own| {
                own.namespace != shard.namespace && database_location::database(&own, shard) == Sameness::Same
            })
    }

    /// Returns other shards that are in the same place, and those that may be.
    pub fn beside(&self) -> [Vec<Shard>; 2] {
        let mut found = [Vec::new(), Vec::new()];
        for shard in
            shard::all().into_iter().filter(|shard| shard.holds_rows() && shard.shard_key != self.shard_key)
        {
            match self.is_at(&shard) {
                Sameness::Same => found[0].push(shard),
                Sameness::Unknown => found[1].push(shard),
                Sameness::Different => {}
            }
        }
        found
    }
}

/// Records that these shards have answered and are elsewhere.
pub fn add_apart(guard: &GuardRecord, shards: &[Shard]) {
    let apart: Vec<String> = shards.iter().map(address).collect();
    sql::write(
        "UPDATE shardmaster.standing_guard SET apart = apart || $3 WHERE keyspace = $1 AND shard_key = $2",
        &[guard.keyspace.as_str().into(), guard.shard_key.as_str().into(), apart.into()],
    );
}

/// Whether one of these guards is where a shard is, or may be.
pub fn any_at(guards: &[GuardRecord], shard: &Shard) -> bool {
    guards.iter().any(|guard| guard.is_at(shard) != Sameness::Different)
}

/// Returns the entries after `behind` that the list of a place must have, in the order of their names: what is routed
/// there, for reads or for writes.
pub fn routed(keyspace: &str, place: &[String], behind: Option<&str>, most: Option<i64>) -> Vec<String> {
    sql::read_column(
        "SELECT key FROM shardmaster.routing_entry
          WHERE keyspace = $1 AND valid_to IS NULL AND (read_shard = ANY ($2) OR write_shard = ANY ($2))
            AND ($3 IS NULL OR key > $3)
          ORDER BY key LIMIT $4",
        &[keyspace.into(), place.to_vec().into(), behind.into(), most.into()],
    )
}

/// Returns the entries that the list must have because active splits bring them there, or would bring them back.
pub fn of_splits(keyspace: &str, place: &[String]) -> Vec<String> {
    sql::read_column(
        "SELECT DISTINCT k.key FROM shardmaster.split_key k JOIN shardmaster.split_plan p ON p.id = k.split_id
          WHERE k.keyspace = $1 AND k.active AND (p.source_shard = ANY ($2) OR p.target_shard = ANY ($2))",
        &[keyspace.into(), place.to_vec().into()])
}
