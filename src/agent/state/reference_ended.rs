//! The table `reference_ended`: reference tables that were taken out of their keyspace, by their tokens. A row comes before
//! the table's first trigger goes, and stays until `shard_drop`: a master that was restored to a time before is told by it
//! that the rows are everybody's to write since.

use super::has;
use crate::agent::error::Result;
use crate::remote::Connection;
use crate::remote::quote::{array_literal, literal};

/// Rows of a namespace that are kept, the newest ones.
const KEPT: usize = 1_000;

/// The statements that note tables, in the transaction that has bootstrapped.
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

/// The first of these that was taken out, by its position.
pub fn first_of(connection: &mut Connection, tokens: &[String]) -> Result<Option<usize>> {
    if tokens.is_empty() || !has(connection, "reference_ended")? {
        return Ok(None);
    }
    let rows = connection.run(&format!(
        "SELECT min(t.at) FROM unnest({}::text[]) WITH ORDINALITY AS t (token, at)
           JOIN shardmaster_agent.reference_ended e ON e.token = t.token",
        array_literal(tokens)
    ))?;
    let position = rows.scalar().and_then(|at| at.parse::<usize>().ok());
    Ok(position.and_then(|at| at.checked_sub(1)))
}

/// Forgets what is noted of a namespace.
pub fn forget(connection: &mut Connection, namespace: &str) -> Result<()> {
    if has(connection, "reference_ended")? {
        connection.query(
            "DELETE FROM shardmaster_agent.reference_ended WHERE namespace = $1",
            &[Some(namespace)],
        )?;
    }
    Ok(())
}
