//! What is in the agent's schema that is neither the mover's own nor a superuser's: the mover
//! would call it, with its own rights.

use crate::remote::template::{fill, sql};
use crate::remote::{Connection, RemoteError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// What is there, or NULL; an expression.
pub const STRANGER: &str = include_str!("../../sql/agent/stranger.sql");

/// The same as an error.
pub static REFUSE: LazyLock<String> =
    LazyLock::new(|| fill(include_str!("../../sql/agent/trust.sql"), &[("stranger", sql(STRANGER))]));

pub fn refuse(connection: &mut Connection) -> Result<(), RemoteError> {
    connection.run(&REFUSE).map(drop)
}

/// Which schema that is, of which server, and who asks: where it is the same one, only its owner can have let a stranger in.
pub const SCHEMA: &str =
    "(SELECT concat_ws(' ', c.system_identifier, pg_postmaster_start_time(), d.oid, current_user, n.oid, n.xmin, n.nspacl)
        FROM pg_control_system() c JOIN pg_database d ON d.datname = current_database()
        LEFT JOIN pg_namespace n ON n.nspname = 'shardmaster_agent')";

/// For so long it holds that nothing strange was seen.
const HOLDS: Duration = Duration::from_secs(60);

thread_local! {
    /// By shard: the schema in which a session of this process has seen nothing strange, and when.
    static CLEAN: RefCell<HashMap<String, (Instant, String)>> = RefCell::default();
}

/// Whether there is something to compare with.
pub fn is_known(shard: &str) -> bool {
    CLEAN.with_borrow(|clean| clean.get(shard).is_some_and(|(at, _)| at.elapsed() < HOLDS))
}

/// Nothing strange is in it.
pub fn keep(shard: &str, schema: Option<String>) {
    CLEAN.with_borrow_mut(|clean| {
        clean.retain(|_, (at, _)| at.elapsed() < HOLDS);
        if let Some(schema) = schema {
            clean.insert(shard.to_owned(), (Instant::now(), schema));
        }
    });
}

/// Looks into the schema if it is another one than that.
pub fn require_same(connection: &mut Connection, schema: Option<String>) -> Result<(), RemoteError> {
    let is_same = CLEAN.with_borrow(|clean| {
        clean.get(connection.shard()).is_some_and(|(_, known)| Some(known) == schema.as_ref())
    });
    if is_same {
        return Ok(());
    }
    refuse(connection)?;
    // What was there before it was looked into: what has come meanwhile is another one.
    keep(connection.shard(), schema);
    Ok(())
}
