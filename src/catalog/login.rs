//! `shardmaster.shard_login`: the user that a role of the master is connected to the shards as.

use super::caller::Caller;
use super::shard::Shard;
use crate::server::sql;
use pgrx::pg_sys;
use pgrx::prelude::TimestampWithTimeZone;

/// How one role authenticates on one shard.
#[derive(Debug, Clone)]
pub struct Login {
    pub username: String,
    pub credential: Option<LoginCredential>,
}

#[derive(Debug, Clone)]
pub struct LoginCredential {
    pub alias: String,
    pub kind: String,
    pub sealed: Vec<u8>,
}

/// A login as people see it.
pub struct ListedLogin {
    /// The role's name, or its number if the role no longer exists.
    pub role: String,
    /// `None` if it is for all shards that have no login of their own.
    pub shard: Option<String>,
    pub username: String,
    pub credential_alias: Option<String>,
    pub set_by: String,
    pub updated_at: TimestampWithTimeZone,
}

pub fn role_by_name(name: &str) -> Option<pg_sys::Oid> {
    sql::read_one("SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1", &[name.into()], |row| {
        row.value(1)
    })
}

/// A role whose logins are used.
#[derive(Clone)]
pub struct LoginRole {
    pub id: pg_sys::Oid,
    pub name: String,
}

/// Returns the roles with a login whose rights the caller has: only the caller itself, if it has a login.
pub fn roles_of(caller: &Caller) -> Vec<LoginRole> {
    sql::read_latest(
        "WITH known AS (SELECT DISTINCT l.role::oid AS role FROM shardmaster.shard_login l)
         SELECT k.role, r.rolname::text FROM known k JOIN pg_catalog.pg_roles r ON r.oid = k.role
          WHERE k.role = $1
             OR NOT $2 AND pg_catalog.pg_has_role($1, k.role, 'USAGE') AND NOT EXISTS (SELECT 1 FROM known WHERE role = $1)
          ORDER BY r.rolname",
        &[caller.id().into(), caller.is_superuser().into()],
        |row| LoginRole { id: row.value(1), name: row.value(2) },
    )
}

/// Returns the login for the shard, or else the one for all shards.
pub fn of(role: pg_sys::Oid, shard: &Shard) -> Option<Login> {
    sql::read_one_latest(
        "SELECT l.username, k.alias, k.auth_kind, k.sealed
           FROM shardmaster.shard_login l LEFT JOIN shardmaster.keychain k ON k.alias = l.credential_alias
          WHERE l.role = $1::oid AND (l.shard_id = $2 OR l.shard_id IS NULL)
          ORDER BY l.shard_id NULLS LAST LIMIT 1",
        &[role.into(), shard.id.into()],
        |row| Login {
            username: row.value(1),
            credential: row.get::<String>(2).map(|alias| LoginCredential {
                alias,
                kind: row.value(3),
                sealed: row.value(4),
            }),
        },
    )
}

pub fn set(role: pg_sys::Oid, shard: Option<&Shard>, username: &str, alias: Option<&str>, caller: &Caller) {
    sql::write(
        "INSERT INTO shardmaster.shard_login (role, shard_id, username, credential_alias, set_by)
         VALUES ($1::oid::regrole, $2, $3, $4, $5)
         ON CONFLICT (role, coalesce(shard_id, 0))
         DO UPDATE SET username = excluded.username, credential_alias = excluded.credential_alias,
                       set_by = excluded.set_by, updated_at = excluded.updated_at",
        &[
            role.into(),
            shard.map(|shard| shard.id).into(),
            username.into(),
            alias.into(),
            caller.name().into(),
        ],
    );
}

/// Deletes a login. Returns false if there was none. A role that no longer exists is named by its number.
pub fn delete(role: &str, shard: Option<&Shard>) -> bool {
    sql::write(
        "DELETE FROM shardmaster.shard_login
          WHERE (role::oid = (SELECT oid FROM pg_catalog.pg_roles WHERE rolname = $1) OR role::oid::text = $1)
            AND shard_id IS NOT DISTINCT FROM $2",
        &[role.into(), shard.map(|shard| shard.id).into()],
    ) > 0
}

pub fn list() -> Vec<ListedLogin> {
    sql::read(
        "SELECT coalesce(r.rolname::text, l.role::oid::text), s.shard_key, l.username, l.credential_alias, l.set_by, l.updated_at
           FROM shardmaster.shard_login l
           LEFT JOIN pg_catalog.pg_roles r ON r.oid = l.role LEFT JOIN shardmaster.shard s ON s.id = l.shard_id
          ORDER BY 1, s.shard_index NULLS FIRST",
        &[],
        |row| ListedLogin {
            role: row.value(1),
            shard: row.get(2),
            username: row.value(3),
            credential_alias: row.get(4),
            set_by: row.value(5),
            updated_at: row.value(6),
        },
    )
}
