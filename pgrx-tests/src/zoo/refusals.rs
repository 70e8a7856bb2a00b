//! Tables that the check must refuse, with the name of the finding.

use super::{Case, newer_versions};

fn by(number: usize, type_name: &str) -> Case {
    let ddl = format!(
        "CREATE TYPE {{t}}_pair AS (a int); CREATE DOMAIN {{t}}_d AS citext;
         CREATE TABLE {{t}} (tenant {type_name}, id int, PRIMARY KEY (id))"
    );
    Case::table(&format!("by_{number}"), &ddl).refused("shard-by columns")
}

fn of_type(number: usize, before: &str, type_name: &str) -> Case {
    let ddl = format!(
        "{before}; CREATE TABLE {{t}} (tenant text, id int, v {type_name}, PRIMARY KEY (tenant, id))"
    );
    Case::table(&format!("type_{number}"), &ddl).refused("types")
}

/// A type whose name has another meaning on each side.
fn meaning(number: usize, source: &str, target: &str) -> Case {
    let table = "CREATE TABLE {t} (tenant text, id int, v {t}_v, PRIMARY KEY (tenant, id))";
    Case::table(&format!("meaning_{number}"), &format!("{source}; {table}"))
        .on_target(&format!("{target}; {table}"))
        .refused("same columns")
}

/// A type of its own. Nobody knows how it is read and written.
const OWN_TYPE: &str = "RESET ROLE; CREATE TYPE {t}_own;
    CREATE FUNCTION {t}_in(cstring) RETURNS {t}_own LANGUAGE internal IMMUTABLE STRICT AS 'textin';
    CREATE FUNCTION {t}_out({t}_own) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
    CREATE TYPE {t}_own (INPUT = {t}_in, OUTPUT = {t}_out, LIKE = text)";

const SHARD_BY: &[&str] = &[
    "citext",
    "{t}_d",
    "text COLLATE ci",
    "date",
    "timestamp",
    "timestamptz",
    "time",
    "interval",
    "float4",
    "float8",
    "bytea",
    "money",
    "boolean",
    "inet",
    "jsonb",
    "oid",
    "regclass",
    "\"char\"",
    "name",
    "bit(8)",
    "int4range",
    "text[]",
    "{t}_pair",
    "ltree",
    "hstore",
    "isbn",
    "xid8",
    "macaddr",
    "tsvector",
    "bigint",
    "numeric",
    "uuid",
];

fn shapes() -> Vec<Case> {
    let table = |name: &str, rest: &str, check: &'static str| {
        Case::table(name, &format!("CREATE TABLE {{t}} (tenant text, id int, v text{rest}")).refused(check)
    };
    let plain = "CREATE TABLE {t} (tenant text, id int, v text, PRIMARY KEY (tenant, id))";
    vec![
        table("no_key", ")", "primary key"),
        table("unique_only", ", UNIQUE (tenant, id))", "primary key"),
        table(
            "inherited",
            ", PRIMARY KEY (tenant, id)); CREATE TABLE {t}_child () INHERITS ({t})",
            "inheritance",
        ),
        Case::table("unlogged", &plain.replace("TABLE", "UNLOGGED TABLE")).refused("ordinary tables"),
        table(
            "ruled",
            ", PRIMARY KEY (tenant, id)); CREATE RULE r AS ON DELETE TO {t} DO ALSO SELECT 1",
            "rules",
        ),
        table("other_key", ", PRIMARY KEY (tenant, id))", "same primary key")
            .on_target("CREATE TABLE {t} (tenant text, id int, v text, PRIMARY KEY (id, tenant))"),
        table("key_deferrable", ", PRIMARY KEY (id) DEFERRABLE)", "deferrable constraints of the target"),
        table(
            "unique_deferrable",
            ", PRIMARY KEY (tenant, id), UNIQUE (v) DEFERRABLE INITIALLY DEFERRED)",
            "deferrable constraints of the target",
        ),
        table(
            "exclusion_deferrable",
            ", PRIMARY KEY (tenant, id), EXCLUDE USING gist (tenant WITH <>, id WITH =) DEFERRABLE)",
            "deferrable constraints of the target",
        ),
        table("key_collation", ", PRIMARY KEY (tenant, id, v))", "collations of the primary key").on_target(
            "CREATE TABLE {t} (tenant text, id int, v text COLLATE ci, PRIMARY KEY (tenant, id, v))",
        ),
        table(
            "key_collation_2",
            " COLLATE ci, PRIMARY KEY (tenant, id, v))",
            "collations of the primary key",
        )
        .on_target(
            "CREATE TABLE {t} (tenant text, id int, v text COLLATE ci_as, PRIMARY KEY (tenant, id, v))",
        ),
        table("column_type", ", PRIMARY KEY (tenant, id))", "same columns")
            .on_target("CREATE TABLE {t} (tenant text, id int, v varchar(3), PRIMARY KEY (tenant, id))"),
        table("column_generated", ", w int, PRIMARY KEY (tenant, id))", "same columns")
            .on_target(
                "CREATE TABLE {t} (tenant text, id int, v text, w int GENERATED ALWAYS AS (id) STORED, PRIMARY KEY (tenant, id))",
            )
            .map("w", "7"),
        table("column_missing", ", PRIMARY KEY (tenant, id))", "same columns")
            .on_target("CREATE TABLE {t} (tenant text, id int, PRIMARY KEY (tenant, id))"),
    ]
}

/// Returns a table for each refusal, in a keyspace whose keys are texts.
pub fn all() -> Vec<Case> {
    let shard_by = SHARD_BY.iter().enumerate().map(|(number, type_name)| by(number, type_name));
    let types = [
        ("", "gtsvector"),
        ("", "aclitem"),
        ("", "aclitem[]"),
        ("", "pg_node_tree"),
        ("", "pg_ndistinct"),
        ("", "pg_dependencies"),
        ("", "pg_mcv_list"),
        ("", "pg_brin_bloom_summary"),
        ("", "pg_brin_minmax_multi_summary"),
        ("CREATE TYPE {t}_pair AS (a int, b aclitem[])", "{t}_pair[]"),
        ("CREATE DOMAIN {t}_d AS aclitem", "{t}_d"),
        ("", "ghstore"),
        ("", "ltree_gist"),
        (OWN_TYPE, "{t}_own"),
        (OWN_TYPE, "{t}_own[]"),
    ];
    let types =
        types.iter().enumerate().map(|(number, (before, type_name))| of_type(number, before, type_name));
    let meanings = [
        // The setting lc_monetary differs between the sides.
        ("CREATE DOMAIN {t}_v AS money", "CREATE DOMAIN {t}_v AS money"),
        ("CREATE TYPE {t}_v AS (m money[])", "CREATE TYPE {t}_v AS (m money[])"),
        ("CREATE TYPE {t}_v AS (a int, b text)", "CREATE TYPE {t}_v AS (b text, a int)"),
        ("CREATE TYPE {t}_v AS (a int, b text)", "CREATE TYPE {t}_v AS (a int, b varchar(3))"),
        ("CREATE TYPE {t}_v AS (a int, b int)", "CREATE TYPE {t}_v AS (b int, a int)"),
        ("CREATE DOMAIN {t}_v AS int", "CREATE DOMAIN {t}_v AS text"),
        ("CREATE DOMAIN {t}_v AS numeric(5,2)", "CREATE DOMAIN {t}_v AS numeric(5,1)"),
        ("CREATE DOMAIN {t}_v AS int", "CREATE DOMAIN {t}_v AS int CHECK (VALUE > 0)"),
        ("CREATE DOMAIN {t}_v AS int", "CREATE DOMAIN {t}_v AS int NOT NULL"),
        ("CREATE DOMAIN {t}_v AS text", "CREATE DOMAIN {t}_v AS text COLLATE ci"),
        ("CREATE TYPE {t}_v AS ENUM ('a', 'b')", "CREATE TYPE {t}_v AS ENUM ('b', 'a')"),
        ("CREATE TYPE {t}_v AS ENUM ('a')", "CREATE TYPE {t}_v AS ENUM ('a', 'b')"),
        ("CREATE TYPE {t}_v AS RANGE (subtype = float8)", "CREATE TYPE {t}_v AS RANGE (subtype = numeric)"),
        (
            "CREATE TYPE {t}_v AS RANGE (subtype = text, collation = \"C\")",
            "CREATE TYPE {t}_v AS RANGE (subtype = text, collation = ci)",
        ),
        (
            "CREATE TYPE {t}_w AS (a int); CREATE TYPE {t}_v AS (w {t}_w[])",
            "CREATE TYPE {t}_w AS (a bigint); CREATE TYPE {t}_v AS (w {t}_w[])",
        ),
        ("CREATE DOMAIN {t}_v AS text", "CREATE TYPE {t}_v AS (a text)"),
    ];
    let meanings =
        meanings.iter().enumerate().map(|(number, (source, target))| meaning(number, source, target));
    shard_by.chain(types).chain(meanings).chain(shapes()).chain(newer_versions::refused()).collect()
}
