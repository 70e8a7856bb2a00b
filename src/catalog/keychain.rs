//! `shardmaster.keychain`: credentials by alias, encrypted.

use super::caller::Caller;
use super::local;
use crate::error::{Failure, SqlState};
use crate::server::sql::{self, Row};
use pgrx::datum::DatumWithOid;
use pgrx::prelude::TimestampWithTimeZone;

pub struct StoredCredential {
    pub alias: String,
    pub kind: String,
    pub sealed: Vec<u8>,
}

/// A credential as people see it: who has set it and when, and which shards use it.
pub struct ListedCredential {
    pub credential: StoredCredential,
    pub set_by: String,
    pub updated_at: TimestampWithTimeZone,
    pub shards: Vec<String>,
}

fn from_row(row: &Row<'_>) -> StoredCredential {
    StoredCredential { alias: row.value(1), kind: row.value(2), sealed: row.value(3) }
}

/// Returns the kind of a credential. The credential is neither removed nor changes its kind before the transaction
/// ends.
pub fn lock_kind(alias: &str) -> Option<String> {
    let query = "SELECT auth_kind FROM shardmaster.keychain WHERE alias = $1 FOR SHARE";
    sql::write_one(query, &[alias.into()], |row| row.value(1))
}

/// Locks a credential for a change or its removal.
pub fn lock(alias: &str) -> Option<StoredCredential> {
    let query = "SELECT alias, auth_kind, sealed FROM shardmaster.keychain WHERE alias = $1 FOR UPDATE";
    sql::write_one(query, &[alias.into()], |row| from_row(&row))
}

/// Begins a change of credentials, before the master keys are read. While all credentials are encrypted anew, none is
/// added, removed or changed, so none stays encrypted under a key that is removed afterwards.
pub fn begin_change() {
    sql::write("LOCK TABLE shardmaster.keychain IN ROW EXCLUSIVE MODE", &[]);
}

/// Begins a rotation, before the master keys are read: waits for sessions that change a credential.
pub fn begin_rotation() {
    sql::write("LOCK TABLE shardmaster.keychain IN SHARE ROW EXCLUSIVE MODE", &[]);
}

/// Counts the credentials as of now, whatever the transaction's snapshot sees.
pub fn count_latest() -> usize {
    let query = "SELECT count(*) FROM shardmaster.keychain";
    let count = sql::read_one_latest(query, &[], |row| row.value::<i64>(1));
    count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default()
}

pub fn unknown(alias: &str) -> Failure {
    Failure::new(SqlState::UNDEFINED_OBJECT, format!("credential \"{alias}\" does not exist"))
        .hint("shard_credentials() lists them. shard_credential_set() adds one.")
}

/// Locks all credentials, in the order of their aliases.
pub fn lock_all() -> Vec<StoredCredential> {
    let query = "SELECT alias, auth_kind, sealed FROM shardmaster.keychain ORDER BY alias FOR UPDATE";
    sql::write_returning(query, &[], |row| from_row(&row))
}

/// Inserts a new credential. Returns false if one of this alias exists by now, which the caller must then read.
pub fn insert(credential: &StoredCredential, caller: &Caller) -> bool {
    let query = "INSERT INTO shardmaster.keychain (alias, auth_kind, sealed, set_by) VALUES ($1, $2, $3, $4)
                 ON CONFLICT (alias) DO NOTHING";
    sql::write(query, &values(credential, caller)) == 1
}

/// Replaces a credential that the caller has locked.
pub fn replace(credential: &StoredCredential, caller: &Caller) {
    let query = "UPDATE shardmaster.keychain
                    SET auth_kind = $2, sealed = $3, set_by = $4, updated_at = clock_timestamp() WHERE alias = $1";
    sql::write(query, &values(credential, caller));
}

fn values<'a>(credential: &'a StoredCredential, caller: &'a Caller) -> [DatumWithOid<'a>; 4] {
    [
        credential.alias.as_str().into(),
        credential.kind.as_str().into(),
        credential.sealed.clone().into(),
        caller.name().into(),
    ]
}

/// Stores the same secret encrypted under another key.
pub fn seal_anew(alias: &str, sealed: Vec<u8>) {
    sql::write(
        "UPDATE shardmaster.keychain SET sealed = $2 WHERE alias = $1",
        &[alias.into(), sealed.into()],
    );
}

pub fn delete(alias: &str) {
    sql::write("DELETE FROM shardmaster.keychain WHERE alias = $1", &[alias.into()]);
}

/// Holds a credential that the caller has locked. Holding it again changes nothing.
pub fn hold(alias: &str, held_for: &str, caller: &Caller) {
    sql::write(
        "INSERT INTO shardmaster.credential_hold (alias, held_for, held_by, holder, of_system)
         SELECT $1, $2, $3, $4, system_identifier FROM pg_catalog.pg_control_system() ON CONFLICT DO NOTHING",
        &[alias.into(), held_for.into(), caller.name().into(), caller.id().into()],
    );
}

/// Removes the caller's hold, or, for a superuser, anybody's. Returns false if there is none.
pub fn release(alias: &str, held_for: &str, caller: &Caller) -> bool {
    let query = "DELETE FROM shardmaster.credential_hold h USING pg_catalog.pg_control_system() s
                  WHERE h.alias = $1 AND h.held_for = $2
                    AND ($5 OR CASE WHEN h.of_system = s.system_identifier THEN h.holder = $4 ELSE h.held_by = $3 END)";
    let args = [
        alias.into(),
        held_for.into(),
        caller.name().into(),
        caller.id().into(),
        caller.is_superuser().into(),
    ];
    sql::write(query, &args) > 0
}

/// Returns the first hold of a credential that the caller has locked: for what and by whom it is held, as of now. A
/// catalog of 0.1.0 that is not updated yet has no holds.
pub fn hold_of(alias: &str) -> Option<(String, String)> {
    if !local::has_table("credential_hold") {
        return None;
    }
    sql::read_one_latest(
        "SELECT held_for, held_by FROM shardmaster.credential_hold WHERE alias = $1 ORDER BY 1, 2 LIMIT 1",
        &[alias.into()],
        |row| (row.value(1), row.value(2)),
    )
}

/// Locks the shards that use a credential: no other session changes their endpoints before the transaction ends.
pub fn lock_shards_with(alias: &str) {
    sql::write(
        "SELECT FROM shardmaster.shard WHERE credential_alias = $1 AND kind = 'postgres' ORDER BY id FOR NO KEY UPDATE",
        &[alias.into()],
    );
}

/// Returns the shards of kind "postgres" that use a credential that the caller has locked, as of now.
pub fn shards_with(alias: &str) -> Vec<String> {
    sql::read_latest(
        "SELECT shard_key FROM shardmaster.shard WHERE credential_alias = $1 AND kind = 'postgres' ORDER BY shard_index",
        &[alias.into()],
        |row| row.value(1),
    )
}

pub fn list() -> Vec<ListedCredential> {
    sql::read(
        "SELECT k.alias, k.auth_kind, k.sealed, k.set_by, k.updated_at,
                ARRAY(SELECT s.shard_key FROM shardmaster.shard s WHERE s.credential_alias = k.alias ORDER BY s.shard_index)
           FROM shardmaster.keychain k ORDER BY k.alias",
        &[],
        |row| ListedCredential {
            credential: from_row(&row),
            set_by: row.value(4),
            updated_at: row.value(5),
            shards: row.value(6),
        },
    )
}
