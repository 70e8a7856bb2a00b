//! The hash that the mover's statements call on a shard. The hash of an installed extension is thirty times as fast as
//! the agent's. Writers always call the agent's: after a DROP EXTENSION on the shard the mover repeats one statement,
//! and writers notice nothing.

use super::error::Result;
use crate::remote::Connection;
use crate::remote::template::{fill, sql, word};
use shardmaster_client::shard_for;
use std::num::NonZeroU32;

const SESSION_HASH: &str = include_str!("../../sql/agent/session_hash.sql");
/// Query for the schema in which a shard has the extension, if the mover may call its hash.
pub const INSTALLED: &str = include_str!("../../sql/agent/installed_hash.sql");
/// The schema of this extension's objects on a shard.
pub const AGENT: &str = "shardmaster_agent";
/// The modulus is a prime, so that all bits of the hash count.
const MODULUS: NonZeroU32 = NonZeroU32::new(2_147_483_629).unwrap();

/// Returns statements that give the session `pg_temp.shard_for`, by the agent's functions.
pub fn of_agent() -> String {
    fill(SESSION_HASH, &[("schema", word(AGENT))])
}

/// Gives the session `pg_temp.shard_for`, by the functions of the extension that the shard has.
pub fn take_installed(connection: &mut Connection, schema: &str) -> Result<()> {
    if is_ours(connection, schema) {
        connection.run(&fill(SESSION_HASH, &[("schema", sql(schema))]))?;
    }
    Ok(())
}

/// Whether the session calls the agent's functions.
pub fn is_agents(connection: &mut Connection) -> Result<bool> {
    let called = connection.run(&format!(
        "SELECT starts_with(substring(prosrc FROM 'THEN (.*)'), '{AGENT}.') FROM pg_proc
          WHERE oid = 'pg_temp.shard_for(int8,int4)'::regprocedure"
    ))?;
    Ok(called.is_true())
}

/// Whether the functions can be called and return the same values as ours.
fn is_ours(connection: &mut Connection, schema: &str) -> bool {
    let answer = connection.run(&format!(
        "SELECT concat_ws(' ', {schema}.shard_for(-7::int8, {MODULUS}), {schema}.shard_for('key'::text, {MODULUS}),
                               {schema}.shard_for('00000000-0000-0000-0000-000000000007'::uuid, {MODULUS}))"
    ));
    let expected =
        [shard_for(-7_i64, MODULUS), shard_for("key", MODULUS), shard_for(7_u128.to_be_bytes(), MODULUS)];
    let expected = expected.map(|bucket| bucket.to_string()).join(" ");
    answer.is_ok_and(|rows| rows.scalar() == Some(expected.as_str()))
}
