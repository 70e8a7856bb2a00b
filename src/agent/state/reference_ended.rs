//! The table `reference_ended`: reference tables that were taken out of their keyspace, by their tokens. A row is
//! inserted before the table's first trigger is dropped, and stays until `shard_drop`: it shows a master that was
//! restored to an earlier time that every client may have written the rows since.

use super::{ask, has};
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// The greatest number of rows of a namespace that are kept, the newest ones.
const KEPT: usize = 1_000;

/// Returns the statements that note tables, in the transaction that has bootstrapped.
pub fn note(namespace: &str, tokens: &[String]) -> String {
    let (namespace, tokens) = (literal(namespace), array_literal(tokens));
    format!(
        "INSERT INTO shardmaster_agent.reference_ended (namespace, token)
         SELECT {namespace}, t FROM unnest({tokens}::text[]) AS t ON CONFLICT DO NOTHING;
         DELETE FROM shardmaster_agent.reference_ended e
          WHERE e.namespace = {namespace}
            AND e.token IN (SELECT o.token FROM shardmaster_agent.reference_ended o WHERE o.namespace = {namespace}
                             ORDER BY o.ended_at DESC, o.token OFFSET {KEPT})"
    )
}

/// Returns the position of the first of these tables that was taken out.
pub fn first_of(connection: &mut Connection, tokens: &[String]) -> Result<Option<usize>> {
    if tokens.is_empty() {
        return Ok(None);
    }
    let query = format!(
        "SELECT min(t.at) FROM unnest({}::text[]) WITH ORDINALITY AS t (token, at)
           JOIN shardmaster_agent.reference_ended e ON e.token = t.token",
        array_literal(tokens)
    );
    let rows = ask(connection, "reference_ended", &query, &[])?;
    let position = rows.scalar().and_then(|at| at.parse::<usize>().ok());
    Ok(position.and_then(|at| at.checked_sub(1)))
}

/// Deletes the notes of a namespace.
pub fn forget(connection: &mut Connection, namespace: &str) -> Result<()> {
    if has(connection, "reference_ended")? {
        connection.query(
            "DELETE FROM shardmaster_agent.reference_ended WHERE namespace = $1",
            &[Some(namespace)],
        )?;
    }
    Ok(())
}
