//! The commands that drop the extension: DROP EXTENSION, DROP SCHEMA CASCADE of its schema, DROP OWNED of its owner.
//! They are refused while a split is unfinished, or a statement in two phases, or a shard is guarded: what these have
//! left on the shards would have no master any more.

use super::splits;
use crate::catalog::caller::Caller;
use crate::catalog::{execution, guard_record};
use crate::catalog::{local, redirect};
use crate::error::{Failure, SqlState, notice};
use crate::majors;
use crate::server::sql;
use crate::words::{of_split, quoted};
use pgrx::prelude::*;
use std::ffi::CStr;

/// # Safety
/// The statement is valid, and a transaction is open.
pub unsafe fn before_drop(drop: &pg_sys::DropStmt) -> Result<(), Failure> {
    use pg_sys::ObjectType::{OBJECT_EXTENSION, OBJECT_SCHEMA};
    let is_cascade = drop.behavior == pg_sys::DropBehavior::DROP_CASCADE;
    // SAFETY: the caller keeps the promise above; the objects of both commands are string nodes.
    let drops = unsafe {
        match drop.removeType {
            OBJECT_EXTENSION => strings(drop.objects).iter().any(|name| name == "shardmaster") && owns(),
            // Without CASCADE the server refuses it.
            OBJECT_SCHEMA => {
                is_cascade && !pg_sys::RecoveryInProgress() && is_in_schema(strings(drop.objects))
            }
            _ => false,
        }
    };
    require_idle(drops)
}

/// # Safety
/// The statement is valid, and a transaction is open.
pub unsafe fn before_drop_owned(drop: &pg_sys::DropOwnedStmt) -> Result<(), Failure> {
    let is_cascade = drop.behavior == pg_sys::DropBehavior::DROP_CASCADE;
    // SAFETY: the caller keeps the promise above; the roles are role specifications.
    let drops = unsafe { !pg_sys::RecoveryInProgress() && is_owned_by(role_ids(drop.roles), is_cascade) };
    require_idle(drops)
}

/// Whether the current user owns the extension. What the server refuses anyway gets the server's own message, so
/// rights are checked first.
///
/// # Safety
/// A transaction is open.
unsafe fn owns() -> bool {
    // SAFETY: the caller keeps the promise above, and the name is NUL-terminated.
    unsafe {
        let extension = pg_sys::get_extension_oid(c"shardmaster".as_ptr(), true);
        extension != pg_sys::InvalidOid
            && majors::owns(pg_sys::GetUserId(), pg_sys::ExtensionRelationId, extension)
            && !pg_sys::RecoveryInProgress()
    }
}

/// Whether the extension is in one of these schemas, which the current user may drop.
fn is_in_schema(schemas: Vec<String>) -> bool {
    sql::exists(
        "SELECT true FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
          WHERE e.extname OPERATOR(pg_catalog.=) 'shardmaster' AND n.nspname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ($1)
            AND pg_catalog.pg_has_role(n.nspowner, 'USAGE')",
        &[schemas.into()],
    )
}

/// Whether the extension belongs to one of these roles, or is dropped with a schema of theirs; and the current user
/// may drop what they own.
fn is_owned_by(roles: Vec<pg_sys::Oid>, is_cascade: bool) -> bool {
    sql::exists(
        "SELECT true FROM pg_catalog.pg_extension e JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) e.extnamespace
          WHERE e.extname OPERATOR(pg_catalog.=) 'shardmaster'
            AND (e.extowner OPERATOR(pg_catalog.=) ANY ($1) OR ($2 AND n.nspowner OPERATOR(pg_catalog.=) ANY ($1)))
            AND NOT EXISTS (SELECT 1 FROM pg_catalog.unnest($1) role WHERE NOT pg_catalog.pg_has_role(role, 'USAGE'))",
        &[roles.into(), is_cascade.into()],
    )
}

/// Checks this not as the current user: the owner of the schema may not have the right to read the catalog.
fn require_idle(drops: bool) -> Result<(), Failure> {
    if drops { Caller::as_owner(|_| nothing_under_way()) } else { Ok(()) }
}

fn nothing_under_way() -> Result<(), Failure> {
    if !local::has_table("split_plan") {
        return Ok(());
    }
    // This is the lock that the drop takes next: neither a split nor a guard begins between the check and the drop.
    sql::write("LOCK TABLE shardmaster.split_plan, shardmaster.standing_guard IN ACCESS EXCLUSIVE MODE", &[]);
    if let Some(id) = execution::open_one() {
        let text = "cannot drop extension \"shardmaster\" while an execution in two phases is unfinished";
        return Err(Failure::new(SqlState::IN_USE, text)
            .detail(format!("Execution {id} may have prepared transactions on shards."))
            .hint(format!("Wait until it ends, or call shard_execute_resume({id}).")));
    }
    if let Some((shard, keyspace)) = guard_record::any() {
        let text = "cannot drop extension \"shardmaster\" while a shard has a guard";
        return Err(Failure::new(SqlState::IN_USE, text)
            .detail(format!("Shard \"{shard}\" refuses keys that it never had, by a guard of keyspace \"{keyspace}\"."))
            .hint("The guard would not learn of new keys. Remove each of shard_guards() with shard_guard_remove(), or with force => true if its shard is lost."));
    }
    let unfinished = splits::unfinished();
    let Some(first) = unfinished.first() else {
        tell_of_redirects();
        return Ok(());
    };
    let names: Vec<String> =
        unfinished.iter().map(|split| format!("split {} is in phase {}", split.id, split.phase)).collect();
    Err(Failure::new(SqlState::IN_USE, "cannot drop extension \"shardmaster\" while a split is unfinished")
        .detail(names.join(", "))
        .hint(of_split(
            "Finish split {id} with CALL shard_split_run({id}, 'finished'). Before its cutover, CALL shard_split_run({id}, 'rolled_back') undoes it. SELECT * FROM shard_splits() lists all splits.",
            first.id,
        )))
}

/// Warns of redirects of finished splits, which stay on purpose and could no longer be ended from here.
fn tell_of_redirects() {
    let shards = redirect::shards();
    if shards.is_empty() {
        return;
    }
    notice(
        format!(
            "clients with a stale route are still refused by the sources of finished splits: {}",
            quoted(&shards)
        ),
        "SELECT shard_split_redirect_drop() of these splits ends that while the extension exists. After that, DROP SCHEMA shardmaster_agent CASCADE on each of these shards does.",
    );
}

/// Returns the items of a list, which may be NULL.
///
/// # Safety
/// The list is a valid list of pointers, which is not changed meanwhile.
unsafe fn items<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    // SAFETY: the caller keeps the promise above.
    unsafe {
        let length = if list.is_null() { 0 } else { (*list).length };
        (0..length).map(|i| pg_sys::list_nth(list, i).cast()).collect()
    }
}

/// # Safety
/// The list is a valid list of string nodes.
unsafe fn strings(list: *mut pg_sys::List) -> Vec<String> {
    // SAFETY: the caller keeps the promise above; the texts are NUL-terminated.
    unsafe {
        let texts = items(list).into_iter().map(|node| majors::string_value(node));
        texts
            .filter(|text| !text.is_null())
            .map(|text| CStr::from_ptr(text).to_string_lossy().into_owned())
            .collect()
    }
}

/// Returns the oids of roles. A missing role is the error that the command itself would raise.
///
/// # Safety
/// The list is a valid list of role specifications, and a transaction is open.
unsafe fn role_ids(list: *mut pg_sys::List) -> Vec<pg_sys::Oid> {
    // SAFETY: the caller keeps the promise above.
    unsafe { items(list).into_iter().map(|role| pg_sys::get_rolespec_oid(role, false)).collect() }
}
