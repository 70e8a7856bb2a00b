//! Which hash the mover's statements call on a shard. Where the extension is installed it
//! is thirty times as fast as the agent's. Writers always call the agent's: a DROP
//! EXTENSION on the shard costs the mover a statement, which it repeats, and them nothing.

use super::error::Result;
use crate::remote::Connection;
use crate::remote::template::{fill, sql, word};
use shardmaster_client::shard_for;
use std::num::NonZeroU32;

const SESSION_HASH: &str = include_str!("../../sql/agent/session_hash.sql");
/// In which schema a shard has the extension, if the mover may call its hash; a query.
pub const INSTALLED: &str = include_str!("../../sql/agent/installed_hash.sql");
/// The schema of what is ours on a shard.
pub const AGENT: &str = "shardmaster_agent";
/// A prime: all bits of the hash count.
const MODULUS: NonZeroU32 = NonZeroU32::new(2_147_483_629).unwrap();

/// Statements that give the session `pg_temp.shard_for`, by the agent's functions.
pub fn of_agent() -> String {
    fill(SESSION_HASH, &[("schema", word(AGENT))])
}

/// The same by those of the extension that the shard has.
pub fn take_installed(connection: &mut Connection, schema: &str) -> Result<()> {
    if is_ours(connection, schema) {
        connection.run(&fill(SESSION_HASH, &[("schema", sql(schema))]))?;
    }
    Ok(())
}

/// Whether the session calls the agent's.
pub fn is_agents(connection: &mut Connection) -> Result<bool> {
    let called = connection.run(&format!(
        "SELECT starts_with(substring(prosrc FROM 'THEN (.*)'), '{AGENT}.') FROM pg_proc
          WHERE oid = 'pg_temp.shard_for(int8,int4)'::regprocedure"
    ))?;
    Ok(called.scalar() == Some("t"))
}

/// Whether the functions can be called and give what ours give.
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
