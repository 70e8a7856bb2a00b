//! What the server's own commands must know of the extension: DROP EXTENSION is refused
//! while a split is unfinished, DROP DATABASE ends the workers that are connected, and
//! what the launcher or the coordinator waits for wakes it.

use super::process::{self, Process};
use super::{plan, wake};
use crate::error::{Failure, SqlState};
use crate::sql;
use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long DROP DATABASE waits for the workers. They end within milliseconds unless
/// the server itself holds them up.
const WORKERS_END: Duration = Duration::from_secs(5);

type Hook = pg_sys::ProcessUtility_hook_type;
static PREVIOUS: OnceLock<Hook> = OnceLock::new();

/// Chains the hook; called once, from `_PG_init` of the postmaster.
pub fn register() {
    // SAFETY: in the postmaster nothing else runs while it loads libraries.
    unsafe {
        if PREVIOUS.set(pg_sys::ProcessUtility_hook).is_ok() {
            pg_sys::ProcessUtility_hook = Some(process_utility);
        }
    }
}

/// Statements of our interest are looked at before and after; all go on unchanged.
#[pg_guard]
#[allow(clippy::too_many_arguments)]
unsafe extern "C-unwind" fn process_utility(
    statement: *mut pg_sys::PlannedStmt,
    query: *const c_char,
    #[cfg(not(feature = "pg13"))] read_only_tree: bool,
    context: pg_sys::ProcessUtilityContext::Type,
    params: pg_sys::ParamListInfo,
    environment: *mut pg_sys::QueryEnvironment,
    destination: *mut pg_sys::DestReceiver,
    completion: *mut pg_sys::QueryCompletion,
) {
    // SAFETY: the server passes a valid statement; the next in the chain gets what this
    // one got.
    unsafe {
        before((*statement).utilityStmt, context).map_err(ErrorReport::from).unwrap_or_report();
        let next = PREVIOUS.get().copied().flatten();
        match next {
            Some(next) => next(
                statement,
                query,
                #[cfg(not(feature = "pg13"))]
                read_only_tree,
                context,
                params,
                environment,
                destination,
                completion,
            ),
            None => pg_sys::standard_ProcessUtility(
                statement,
                query,
                #[cfg(not(feature = "pg13"))]
                read_only_tree,
                context,
                params,
                environment,
                destination,
                completion,
            ),
        }
    }
}

/// # Safety
/// `node` is a valid parse node.
unsafe fn before(
    node: *mut pg_sys::Node,
    context: pg_sys::ProcessUtilityContext::Type,
) -> Result<(), Failure> {
    use pg_sys::NodeTag;
    // SAFETY: each node is cast to what its tag says it is.
    unsafe {
        match (*node).type_ {
            NodeTag::T_DropStmt => before_drop(&*node.cast::<pg_sys::DropStmt>())?,
            NodeTag::T_DropdbStmt => before_drop_database(&*node.cast::<pg_sys::DropdbStmt>(), context),
            NodeTag::T_CreateExtensionStmt => wake::coordinator_on_commit(),
            NodeTag::T_CreatedbStmt => wake::launcher_on_commit(),
            _ => (),
        }
    }
    Ok(())
}

/// # Safety
/// `drop` is a valid statement.
unsafe fn before_drop(drop: &pg_sys::DropStmt) -> Result<(), Failure> {
    if drop.removeType != pg_sys::ObjectType::OBJECT_EXTENSION {
        return Ok(());
    }
    // SAFETY: the objects of DROP EXTENSION are string nodes.
    let ours = unsafe { list_has_string(drop.objects, c"shardmaster") };
    if ours { before_drop_extension() } else { Ok(()) }
}

/// Refuses to drop the extension while a split is unfinished: what it left on the
/// shards would have no master any more.
fn before_drop_extension() -> Result<(), Failure> {
    // SAFETY: in a transaction, with a NUL-terminated name.
    let droppable = unsafe {
        let extension = pg_sys::get_extension_oid(c"shardmaster".as_ptr(), true);
        extension != pg_sys::InvalidOid
            && owns(pg_sys::ExtensionRelationId, extension)
            && !pg_sys::RecoveryInProgress()
    };
    // What the server refuses anyway gets the server's own message.
    if !droppable || sql::read_one(CATALOG_THERE, &[], |_| ()).is_none() {
        return Ok(());
    }
    // The lock that the drop takes next: no split starts between the look and the drop.
    sql::write("LOCK TABLE shardmaster.split_plan IN ACCESS EXCLUSIVE MODE", &[]);
    let unfinished = plan::unfinished();
    if unfinished.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = unfinished.iter().map(|split| split.id).collect();
    let names: Vec<String> =
        unfinished.iter().map(|split| format!("split {} is in phase {}", split.id, split.phase)).collect();
    Err(Failure::new(SqlState::IN_USE, "cannot drop extension \"shardmaster\" while a split is unfinished")
        .detail(serde_json::json!({ "splits": ids, "unfinished": names.join(", ") }).to_string())
        .hint("Roll each of them back with shard_split_rollback(), or complete it and call shard_split_finish()."))
}

const CATALOG_THERE: &str = "SELECT true WHERE pg_catalog.to_regclass('shardmaster.split_plan') IS NOT NULL";

/// Ends the workers that are connected to the database, so that they do not stand in
/// the way of its drop.
fn before_drop_database(drop: &pg_sys::DropdbStmt, context: pg_sys::ProcessUtilityContext::Type) {
    let top_level = context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL;
    // SAFETY: the name is NUL-terminated; the lock is held until the transaction ends,
    // as the drop's own will be.
    let database = unsafe {
        // Raises what the drop itself would, before anything is ended for nothing.
        pg_sys::PreventInTransactionBlock(top_level, c"DROP DATABASE".as_ptr());
        let database = pg_sys::get_database_oid(drop.dbname, true);
        let droppable = database != pg_sys::InvalidOid
            && database != pg_sys::MyDatabaseId
            && owns(pg_sys::DatabaseRelationId, database);
        if !droppable || process::of_database(database).is_empty() {
            return;
        }
        // With this lock no process can connect any more: what is ended stays away.
        let lock = pg_sys::AccessExclusiveLock as i32;
        pg_sys::LockSharedObject(pg_sys::DatabaseRelationId, database, 0, lock);
        database
    };
    let deadline = Instant::now() + WORKERS_END;
    loop {
        let workers = process::of_database(database);
        workers.iter().for_each(Process::terminate);
        if workers.is_empty() || Instant::now() >= deadline {
            return;
        }
        super::wait::sleep(Duration::from_millis(10));
    }
}

/// Whether the current user owns the object, or its owner's rights.
///
/// # Safety
/// In a transaction, and the object exists.
unsafe fn owns(class: pg_sys::Oid, object: pg_sys::Oid) -> bool {
    // SAFETY: as the caller promises.
    unsafe {
        let user = pg_sys::GetUserId();
        #[cfg(any(feature = "pg13", feature = "pg14", feature = "pg15"))]
        return if class == pg_sys::DatabaseRelationId {
            pg_sys::pg_database_ownercheck(object, user)
        } else {
            pg_sys::pg_extension_ownercheck(object, user)
        };
        #[cfg(not(any(feature = "pg13", feature = "pg14", feature = "pg15")))]
        pg_sys::object_ownercheck(class, object, user)
    }
}

/// # Safety
/// A valid list of string nodes.
unsafe fn list_has_string(list: *mut pg_sys::List, wanted: &CStr) -> bool {
    // SAFETY: as the caller promises; the list is not changed meanwhile.
    unsafe {
        let length = if list.is_null() { 0 } else { (*list).length };
        (0..length).any(|i| {
            let node: *mut pg_sys::Node = pg_sys::list_nth(list, i).cast();
            #[cfg(any(feature = "pg13", feature = "pg14"))]
            let text = (*node.cast::<pg_sys::Value>()).val.str_;
            #[cfg(not(any(feature = "pg13", feature = "pg14")))]
            let text = (*node.cast::<pg_sys::String>()).sval;
            !text.is_null() && CStr::from_ptr(text) == wanted
        })
    }
}
