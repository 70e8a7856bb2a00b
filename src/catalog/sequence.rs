//! Rows of `shardmaster.keyspace_sequence`: sequences that clients of a keyspace's rows draw from by name.

use super::caller::Caller;
use super::local;
use super::table_policy::TableName;
use crate::catalog::declaration;
use crate::server::sql;

/// A sequence under its configured name. Without a schema it is in each shard's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedSequence {
    pub schema: Option<String>,
    pub name: String,
    /// The role that has named it.
    pub named_by: String,
    /// The current name of that role. `None` if the role no longer exists.
    pub role: Option<String>,
}

impl NamedSequence {
    pub fn quoted(&self) -> String {
        TableName { schema: self.schema.clone(), name: self.name.clone() }.quoted()
    }
}

/// Returns the sequences of a keyspace, by name. A catalog that is not updated yet has none.
pub fn of(keyspace: &str) -> Vec<NamedSequence> {
    if !local::has_table("keyspace_sequence") {
        return Vec::new();
    }
    let query = format!(
        "SELECT s.sequence_name, s.named_by, (SELECT r.rolname::text FROM pg_catalog.pg_roles r WHERE {})
           FROM shardmaster.keyspace_sequence s WHERE s.keyspace = $1 ORDER BY s.sequence_name COLLATE \"C\"",
        declaration::is("s.named_by")
    );
    let rows = sql::read(&query, &[keyspace.into()], |row| {
        (row.value::<String>(1), row.value::<String>(2), row.get::<String>(3))
    });
    let named = |(name, named_by, role): (String, String, Option<String>)| {
        let TableName { schema, name } = TableName::parse(&name)?;
        Some(NamedSequence { schema, name, named_by, role })
    };
    rows.into_iter().filter_map(named).collect()
}

/// Inserts a sequence. Returns false if the keyspace has it already.
pub fn insert(keyspace: &str, name: &TableName, caller: &Caller) -> bool {
    sql::write(
        "INSERT INTO shardmaster.keyspace_sequence (keyspace, sequence_name, named_by) VALUES ($1, $2, $3)
             ON CONFLICT (keyspace, sequence_name) DO NOTHING",
        &[keyspace.into(), name.quoted().into(), declaration::by(caller).into()],
    ) == 1
}

/// Deletes a sequence. Returns false if the keyspace does not have it.
pub fn delete(keyspace: &str, name: &TableName) -> bool {
    sql::write(
        "DELETE FROM shardmaster.keyspace_sequence WHERE keyspace = $1 AND sequence_name = $2",
        &[keyspace.into(), name.quoted().into()],
    ) == 1
}
