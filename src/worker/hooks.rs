//! What the server's own commands must know of the extension: a command that would drop it is refused while something
//! of it is running; DROP DATABASE, a rename and a copy of the database end the workers that are connected to it; what
//! the launcher or the coordinator waits for wakes it.

use super::dropping;
use crate::majors;
use crate::server::process::{self, Process};
use crate::server::wake;
use pgrx::pg_sys::panic::{ErrorReport, ErrorReportable};
use pgrx::prelude::*;
use std::ffi::{CStr, c_char};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long such a command waits for the workers. They end within milliseconds unless the server itself delays them.
const WORKERS_END: Duration = Duration::from_secs(5);

type Hook = pg_sys::ProcessUtility_hook_type;
static PREVIOUS: OnceLock<Hook> = OnceLock::new();

/// Chains the hook; it is called once, from `_PG_init` of the postmaster.
pub fn register() {
    // SAFETY: in the postmaster nothing else runs while it loads libraries.
    unsafe {
        if PREVIOUS.set(pg_sys::ProcessUtility_hook).is_ok() {
            pg_sys::ProcessUtility_hook = Some(process_utility);
        }
    }
}

/// Checks the statement, then lets the next in the chain run it unchanged.
///
/// It is not guarded: an error of the statement passes this frame by the server's own jump, which is sound because
/// nothing here needs to be dropped. A guard would convert each error and lose its context, cursor position and
/// constraint name, for every COPY and CALL of the server.
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
    let next = PREVIOUS.get().copied().flatten().unwrap_or(standard);
    // SAFETY: the server passes a valid statement; the next in the chain gets the same arguments.
    unsafe {
        before((*statement).utilityStmt, context);
        next(
            statement,
            query,
            #[cfg(not(feature = "pg13"))]
            read_only_tree,
            context,
            params,
            environment,
            destination,
            completion,
        );
    }
}

unsafe extern "C-unwind" {
    /// The end of the chain, as the function pointer that the chain is made of.
    #[link_name = "standard_ProcessUtility"]
    fn standard(
        statement: *mut pg_sys::PlannedStmt,
        query: *const c_char,
        #[cfg(not(feature = "pg13"))] read_only_tree: bool,
        context: pg_sys::ProcessUtilityContext::Type,
        params: pg_sys::ParamListInfo,
        environment: *mut pg_sys::QueryEnvironment,
        destination: *mut pg_sys::DestReceiver,
        completion: *mut pg_sys::QueryCompletion,
    );
}

/// # Safety
/// `node` is a valid parse node.
#[pg_guard]
unsafe extern "C-unwind" fn before(node: *mut pg_sys::Node, context: pg_sys::ProcessUtilityContext::Type) {
    use pg_sys::{NodeTag, ObjectType};
    let top_level = context == pg_sys::ProcessUtilityContext::PROCESS_UTILITY_TOPLEVEL;
    // SAFETY: each node is cast to the type of its tag, and names are NUL-terminated. PreventInTransactionBlock raises
    // what the command itself would, before workers are ended needlessly.
    unsafe {
        match (*node).type_ {
            NodeTag::T_DropStmt => {
                dropping::before_drop(&*node.cast()).map_err(ErrorReport::from).unwrap_or_report()
            }
            NodeTag::T_DropOwnedStmt => {
                dropping::before_drop_owned(&*node.cast()).map_err(ErrorReport::from).unwrap_or_report()
            }
            NodeTag::T_DropdbStmt => {
                pg_sys::PreventInTransactionBlock(top_level, c"DROP DATABASE".as_ptr());
                end_workers((*node.cast::<pg_sys::DropdbStmt>()).dbname, pg_sys::AccessExclusiveLock);
            }
            NodeTag::T_CreatedbStmt => {
                pg_sys::PreventInTransactionBlock(top_level, c"CREATE DATABASE".as_ptr());
                if let Some(template) = template(&*node.cast::<pg_sys::CreatedbStmt>()) {
                    end_workers(template, pg_sys::ShareLock);
                }
                wake::launcher_on_commit();
            }
            NodeTag::T_RenameStmt => {
                let rename = &*node.cast::<pg_sys::RenameStmt>();
                if rename.renameType == ObjectType::OBJECT_DATABASE {
                    end_workers(rename.subname, pg_sys::AccessExclusiveLock);
                    wake::launcher_on_commit();
                }
            }
            NodeTag::T_CreateExtensionStmt => wake::creation_on_commit(),
            _ => (),
        }
    }
}

/// Ends the workers that are connected to the database and keeps new ones away: these commands fail while any session
/// is connected. The launcher starts a new coordinator when the command has ended, whether it succeeded or not.
///
/// # Safety
/// A transaction is open, and the name is NUL-terminated.
unsafe fn end_workers(name: *const c_char, lock: u32) {
    // SAFETY: the caller keeps the promise above. The lock is held until the transaction ends, like the one that the
    // command itself takes.
    let database = unsafe {
        let database = pg_sys::get_database_oid(name, true);
        // What the server refuses anyway gets the server's own message.
        let allowed = database != pg_sys::InvalidOid
            && database != pg_sys::MyDatabaseId
            && owns(pg_sys::DatabaseRelationId, database);
        if !allowed || process::of_database(database).is_empty() {
            return;
        }
        // It conflicts with the lock that every process takes while it connects: a worker that was ended does not
        // return.
        pg_sys::LockSharedObject(pg_sys::DatabaseRelationId, database, 0, lock as i32);
        database
    };
    let deadline = Instant::now() + WORKERS_END;
    loop {
        let workers = process::of_database(database);
        workers.iter().for_each(Process::terminate);
        if workers.is_empty() || Instant::now() >= deadline {
            return;
        }
        crate::server::wait::sleep(Duration::from_millis(10));
    }
}

/// Returns the template of a CREATE DATABASE, if it names one.
///
/// # Safety
/// The statement is valid.
unsafe fn template(create: &pg_sys::CreatedbStmt) -> Option<*mut c_char> {
    // SAFETY: the options are DefElem nodes with NUL-terminated names; the list is not changed meanwhile.
    unsafe {
        let length = if create.options.is_null() { 0 } else { (*create.options).length };
        (0..length)
            .map(|i| pg_sys::list_nth(create.options, i).cast::<pg_sys::DefElem>())
            .find(|option| CStr::from_ptr((**option).defname) == c"template" && !(**option).arg.is_null())
            .map(|option| pg_sys::defGetString(option))
    }
}

/// Whether the current user owns the object, or has its owner's rights.
///
/// # Safety
/// A transaction is open, and the object exists.
unsafe fn owns(class: pg_sys::Oid, object: pg_sys::Oid) -> bool {
    // SAFETY: the caller keeps the promise above.
    unsafe { majors::owns(pg_sys::GetUserId(), class, object) }
}
