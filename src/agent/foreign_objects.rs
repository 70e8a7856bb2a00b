//! Objects in the agent's schema that belong neither to the mover nor to a superuser: the mover would call them, with
//! its own rights.

use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// SQL expression: such an object, or NULL.
pub const STRANGER: &str = include_str!("../../sql/agent/stranger.sql");

/// SQL that raises an error if there is such an object.
pub static REFUSE: LazyLock<String> =
    LazyLock::new(|| fill(include_str!("../../sql/agent/trust.sql"), &[("stranger", sql(STRANGER))]));

pub fn refuse(connection: &mut Connection) -> Result<(), RemoteError> {
    connection.run(&REFUSE).map(drop)
}

/// SQL expression that identifies the schema, its server and the current user: while it stays the same, only the
/// schema's owner can have admitted such an object.
pub const SCHEMA: &str =
    "(SELECT concat_ws(' ', c.system_identifier, pg_postmaster_start_time(), d.oid, current_user, n.oid, n.xmin, n.nspacl)
        FROM pg_control_system() c JOIN pg_database d ON d.datname = current_database()
        LEFT JOIN pg_namespace n ON n.nspname = 'shardmaster_agent')";

/// How long a result without such objects is valid.
const HOLDS: Duration = Duration::from_secs(60);

thread_local! {
    /// By shard: the schema in which a session of this process has found no such object, and when.
    static CLEAN: RefCell<HashMap<String, (Instant, String)>> = RefCell::default();
}

/// Whether there is a valid result to compare with.
pub fn is_known(shard: &str) -> bool {
    CLEAN.with_borrow(|clean| clean.get(shard).is_some_and(|(at, _)| at.elapsed() < HOLDS))
}

/// Records that the schema has no such object.
pub fn keep(shard: &str, schema: Option<String>) {
    CLEAN.with_borrow_mut(|clean| {
        clean.retain(|_, (at, _)| at.elapsed() < HOLDS);
        if let Some(schema) = schema {
            clean.insert(shard.to_owned(), (Instant::now(), schema));
        }
    });
}

/// Checks the schema unless it is the one of the last result.
pub fn require_same(connection: &mut Connection, schema: Option<String>) -> Result<(), RemoteError> {
    let is_same = CLEAN.with_borrow(|clean| {
        clean.get(connection.shard()).is_some_and(|(_, known)| Some(known) == schema.as_ref())
    });
    if is_same {
        return Ok(());
    }
    refuse(connection)?;
    // The schema as it was before the check is kept: an object that was added meanwhile makes it another one.
    keep(connection.shard(), schema);
    Ok(())
}
