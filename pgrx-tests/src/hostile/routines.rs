//! The extension's objects according to the server's catalog: routines with their parameters and their level,
//! tables, views and sequences.

use crate::Result;
use postgres::Client;

pub struct Parameter {
    pub name: String,
    pub type_name: String,
}

pub struct Routine {
    /// The name with its schema, quoted.
    pub name: String,
    pub is_procedure: bool,
    pub is_trigger: bool,
    pub parameters: Vec<Parameter>,
    pub is_variadic: bool,
    /// The lowest level that may call it, or `None` if only the extension's owner may.
    pub level: Option<String>,
    /// Whether it is granted to PUBLIC.
    pub is_public: bool,
    /// Whether its caller declares the columns that it returns.
    pub is_declared: bool,
    /// Whether no statement can call it. The server says so before it checks the right.
    pub is_for_server: bool,
    /// Whether it returns NULL for NULL, even without the right to call it.
    pub is_strict: bool,
}

/// Returns all routines that depend on the extension or are in its schema.
pub fn all(client: &mut Client) -> Result<Vec<Routine>> {
    let query = "SELECT p.oid::regproc::text, p.prokind = 'p', p.prorettype = 'trigger'::regtype, p.provariadic <> 0,
                        r.level, p.proname = 'shard_for',
                        coalesce(p.proargnames[1:p.pronargs], '{}'),
                        ARRAY(SELECT format_type(t, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY a (t, n) ORDER BY n),
                        p.pronamespace::regnamespace::text || '.' || quote_ident(p.proname), p.prorettype = 'record'::regtype AND p.proallargtypes IS NULL,
                        p.prorettype IN ('trigger'::regtype, 'fdw_handler'::regtype), p.proisstrict
                   FROM pg_proc p
                   LEFT JOIN shardmaster.routine_levels() r ON r.routine = p.proname
                  WHERE p.pronamespace = 'shardmaster'::regnamespace
                     OR EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
                                 WHERE d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.deptype = 'e'
                                   AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'shardmaster')
                  ORDER BY 1";
    let mut routines = Vec::new();
    for row in client.query(query, &[])? {
        let (names, types): (Vec<String>, Vec<String>) = (row.get(6), row.get(7));
        let mut names = names.into_iter();
        let parameters = types
            .into_iter()
            .map(|type_name| Parameter { name: names.next().unwrap_or_default(), type_name })
            .collect();
        routines.push(Routine {
            name: row.get(8),
            is_procedure: row.get(1),
            is_trigger: row.get(2),
            is_variadic: row.get(3),
            level: row.get(4),
            is_public: row.get(5),
            is_declared: row.get(9),
            is_for_server: row.get(10),
            is_strict: row.get(11),
            parameters,
        });
    }
    Ok(routines)
}

impl Routine {
    /// Returns a statement that calls it with these arguments.
    pub fn call(&self, arguments: &[String]) -> String {
        let mut arguments = arguments.to_vec();
        if self.is_variadic
            && let Some(last) = arguments.last_mut()
        {
            last.insert_str(0, "VARIADIC ");
        }
        let arguments = arguments.join(", ");
        if self.is_procedure {
            format!("CALL {}({arguments})", self.name)
        } else {
            let columns = if self.is_declared { " AS t (shard_error jsonb)" } else { "" };
            format!("SELECT * FROM {}({arguments}){columns}", self.name)
        }
    }
}

/// Returns tables, views and sequences, each with its kind and one of its columns.
pub fn relations(client: &mut Client) -> Result<Vec<(String, char, String)>> {
    let query = "SELECT c.oid::regclass::text, c.relkind::text, quote_ident(a.attname)
                   FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1
                  WHERE c.relkind IN ('r', 'v', 'm', 'p', 'S', 'f')
                    AND (c.relnamespace = 'shardmaster'::regnamespace
                         OR EXISTS (SELECT FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid
                                     WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e'
                                       AND d.refclassid = 'pg_extension'::regclass AND e.extname = 'shardmaster'))
                  ORDER BY 1";
    let kind = |text: String| text.chars().next().unwrap_or('?');
    Ok(client.query(query, &[])?.iter().map(|row| (row.get(0), kind(row.get(1)), row.get(2))).collect())
}

/// Returns statements that use a relation, to be run by somebody who may not.
pub fn touches(relation: &str, kind: char, column: &str) -> Vec<String> {
    if kind == 'S' {
        return vec![
            format!("SELECT * FROM {relation}"),
            format!("SELECT nextval('{relation}')"),
            format!("SELECT setval('{relation}', nextval('{relation}'))"),
        ];
    }
    vec![
        format!("SELECT * FROM {relation}"),
        format!("INSERT INTO {relation} DEFAULT VALUES"),
        format!("INSERT INTO {relation} SELECT * FROM {relation} LIMIT 1"),
        format!("UPDATE {relation} SET {column} = {column}"),
        format!("UPDATE {relation} SET {column} = NULL"),
        format!("DELETE FROM {relation}"),
        format!("LOCK TABLE {relation} IN ACCESS EXCLUSIVE MODE"),
        format!("TRUNCATE {relation} CASCADE"),
    ]
}
