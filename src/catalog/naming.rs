//! Which role has declared that a schema of this very database is a shard, and that its tables are in a keyspace:
//! splits move rows there with the rights of the extension's owner. The role's rights were checked then; schemas are
//! created and change owners, so they are checked again.

use super::shard::Shard;
use crate::catalog::{database_location, declaration};
use crate::error::{Failure, SqlState};
use crate::server::sql;

/// Why rows do not move there: a role has declared something that it has no right to declare.
#[derive(Clone, Debug)]
pub struct Unsaid {
    pub text: String,
    pub hint: String,
    /// How this database is called.
    pub here: String,
}

impl Unsaid {
    fn new(text: String, hint: String) -> Unsaid {
        Unsaid { text, hint, here: database_location::own_identity().unwrap_or_default() }
    }

    pub fn failure(&self) -> Failure {
        Failure::new(SqlState::INSUFFICIENT_PRIVILEGE, self.text.clone()).hint(self.hint.clone())
    }
}

/// Returns the first such declaration about a split's shard and the tables of its keyspace. It matters only if the
/// shard is in this very database, by any address: elsewhere a schema of the same name is another one.
pub fn unsaid(keyspace: &str, shard: &Shard, other: &Shard) -> Option<Unsaid> {
    of_others(keyspace, shard).or_else(|| mixed(shard, other)).or_else(|| tables_of_others(keyspace, shard))
}

/// Checks tables of other owners. The owner of a schema has no right on tables of others in it: neither to read what a
/// split would copy from one, nor to have its rows deleted.
fn tables_of_others(keyspace: &str, shard: &Shard) -> Option<Unsaid> {
    let query = format!(
        "SELECT w.role, format('%I.%I', n.nspname, c.relname), m.relowner::regrole::text
           FROM (SELECT s.added_by, s.namespace, i.parts[1]
                   FROM shardmaster.shard s, shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts)
                  WHERE s.shard_key = $2 AND p.keyspace = $1 AND p.policy <> 'global' AND cardinality(i.parts) = 1
                 UNION ALL
                 SELECT p.named_by, i.parts[1], i.parts[2]
                   FROM shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts)
                  WHERE p.keyspace = $1 AND p.policy <> 'global' AND cardinality(i.parts) = 2) w (role, schema, name)
           JOIN pg_namespace n ON n.nspname = w.schema
           JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name
          CROSS JOIN LATERAL (SELECT c.oid UNION SELECT t.relid FROM pg_partition_tree(c.oid) t) l (oid)
           JOIN pg_class m ON m.oid = l.oid
          WHERE NOT EXISTS (SELECT FROM pg_roles r
                             WHERE {} AND (r.rolsuper OR pg_has_role(r.oid, m.relowner, 'USAGE')))
          ORDER BY 2 LIMIT 1",
        declaration::is("w.role")
    );
    let found = sql::read_one_again(&query, &[keyspace.into(), shard.shard_key.as_str().into()], |row| {
        (row.value::<String>(1), row.value::<String>(2), row.value::<String>(3))
    });
    let (role, table, owner) = found?;
    let text = format!("role {role} may not move rows of table {table}, which belongs to role {owner}");
    let hint = format!(
        "It is a table of the master's own database. GRANT {owner} TO {role}, or let a superuser add the shard or the table again."
    );
    Some(Unsaid::new(text, hint))
}

/// Checks for a schema that belongs to another role by now.
fn of_others(keyspace: &str, shard: &Shard) -> Option<Unsaid> {
    let query = format!(
        "SELECT w.role, w.schema, w.is_namespace
           FROM (SELECT s.added_by, s.namespace, true FROM shardmaster.shard s WHERE s.shard_key = $2
                 UNION ALL
                 SELECT p.named_by, i.parts[1], false
                   FROM shardmaster.table_policy p, parse_ident(p.table_name) AS i (parts)
                  WHERE p.keyspace = $1 AND cardinality(i.parts) = 2) w (role, schema, is_namespace)
          WHERE NOT EXISTS (
                SELECT FROM pg_roles r
                 WHERE {}
                   AND (r.rolsuper
                        OR EXISTS (SELECT FROM pg_namespace n
                                    WHERE n.nspname = w.schema AND pg_has_role(r.oid, n.nspowner, 'USAGE'))
                        OR NOT w.is_namespace AND NOT EXISTS (SELECT FROM pg_namespace n WHERE n.nspname = w.schema)))
          ORDER BY w.is_namespace DESC, w.schema LIMIT 1",
        declaration::is("w.role")
    );
    let found = sql::read_one_again(&query, &[keyspace.into(), shard.shard_key.as_str().into()], |row| {
        (row.value::<String>(1), row.value::<String>(2), row.value::<bool>(3))
    });
    let (role, schema, is_namespace) = found?;
    let (text, again) = if is_namespace {
        (
            format!("role {role} may not add schema \"{schema}\" as a shard"),
            "add the shard again with shard_drop() and shard_add()",
        )
    } else {
        (
            format!("role {role} may not use tables of schema \"{schema}\""),
            "add the tables again with shard_table_drop() and shard_table_add()",
        )
    };
    let hint = format!(
        "It is a schema of the master's own database, and belongs to another role. Its owner, or a superuser, can {again}. Or GRANT its owner TO that role."
    );
    Some(Unsaid::new(text, hint))
}

/// Checks that a schema's owner does not gain rights. The owner of a schema reads what is copied into it, and writes
/// what is copied out of it: rows of a shard that the owner has added itself move only between its own schemas.
fn mixed(shard: &Shard, other: &Shard) -> Option<Unsaid> {
    if shard.conninfo.is_some() {
        return None;
    }
    let query = format!(
        "SELECT s.added_by FROM shardmaster.shard s
          WHERE s.shard_key = $1 AND NOT EXISTS (SELECT FROM pg_roles r WHERE {} AND r.rolsuper)
            AND NOT EXISTS (SELECT FROM shardmaster.shard o
                             WHERE o.shard_key = $2 AND o.conninfo IS NULL AND o.added_by = s.added_by)",
        declaration::is("s.added_by")
    );
    let keys = [shard.shard_key.as_str().into(), other.shard_key.as_str().into()];
    let role = sql::read_one(&query, &keys, |row| row.value::<String>(1))?;
    let text = format!(
        "role {role} may not move rows between shard \"{}\" and shard \"{}\"",
        shard.shard_key, other.shard_key
    );
    let hint = format!(
        "Shard \"{}\" is a schema of the master's own database, added by this role, whose rows move only between schemas it has added. A superuser can add the shard again with shard_drop() and shard_add().",
        shard.shard_key
    );
    Some(Unsaid::new(text, hint))
}
