//! Types of primary keys. If two different values are equal, a row changes from one to the other and back.

use super::{Case, MOMENTS, TENANTS, newer_versions, quoted};

/// A type, distinct values of it, and pairs of equal values. The first of each pair is one of the values.
pub(super) type Keys =
    (&'static str, &'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const KEYS: &[Keys] = &[
    ("", "smallint", &["-1", "0", "1", "2"], &[]),
    ("", "integer", &["-1", "0", "1", "2"], &[]),
    ("", "bigint", &["-1", "0", "1", "2"], &[]),
    ("", "numeric", &["0", "1.5", "NaN", "2"], &[("1.5", "1.500"), ("0", "-0.00")]),
    ("", "real", &["0", "1.5", "NaN", "Infinity"], &[("0", "-0")]),
    ("", "double precision", &["0", "0.1", "NaN", "Infinity"], &[("0", "-0")]),
    ("", "boolean", &["t", "f"], &[]),
    ("", "text", &["", "a", "A", "é", "e\u{301}"], &[]),
    ("", "character varying", &["", "a", "A", "a "], &[]),
    ("", "character", &["", "a", "A", "b"], &[]),
    ("", "character(4)", &["", "a", "A", "b"], &[("a", "a  ")]),
    ("", "bpchar", &["", "a", "A", "b"], &[("a", "a  ")]),
    ("", "\"char\"", &["a", "b", "c", ""], &[]),
    ("", "name", &["a", "b", "A", "d"], &[]),
    ("", "bytea", &["\\x", "\\x00", "\\x0000", "\\x01"], &[]),
    ("", "uuid", &["00000000-0000-0000-0000-000000000000", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], &[]),
    ("", "date", &["infinity", "0044-03-15 BC", "2024-02-03", "2024-03-02"], &[]),
    ("", "time without time zone", &["00:00", "24:00", "12:00", "13:00"], &[]),
    ("", "time with time zone", &["00:00+01", "23:00+00", "12:00+00", "13:00+01"], &[]),
    (
        "",
        "timestamp without time zone",
        &["infinity", "2024-02-03 04:05:06.789", "2024-03-02", "-infinity"],
        &[],
    ),
    (
        "",
        "timestamp with time zone",
        &["infinity", "2024-02-03 04:05:06.789+01", "2024-03-02 00:00+05:45"],
        &[],
    ),
    ("", "interval", &["1 mon", "1 day", "0", "-1 mon"], &[("1 mon", "30 days"), ("1 day", "24:00:00")]),
    ("", "jsonb", &["1.5", "null", "[]", "{\"a\": 1}"], &[("1.5", "1.50")]),
    ("", "inet", &["10.1.2.3/24", "10.1.2.3", "::1", "0.0.0.0/0"], &[]),
    ("", "cidr", &["10.0.0.0/8", "10.0.0.0/16", "::/0"], &[]),
    ("", "macaddr", &["08:00:2b:01:02:03", "08:00:2b:01:02:04"], &[]),
    ("", "macaddr8", &["08:00:2b:01:02:03:04:05", "08:00:2b:01:02:03:04:06"], &[]),
    ("", "bit", &["0", "1"], &[]),
    ("", "bit varying", &["", "0", "00", "1"], &[]),
    ("", "money", &["0.01", "-1", "1234567.89"], &[]),
    ("", "tsvector", &["a:1", "a:2", "b", ""], &[]),
    ("", "tsquery", &["a", "b", "a & b"], &[]),
    ("", "int4range", &["empty", "[1,2)", "(,)"], &[]),
    ("", "int8range", &["empty", "[1,2)", "(,)"], &[]),
    ("", "numrange", &["empty", "[1.5,2)", "(,)"], &[("[1.5,2)", "[1.50,2.0)")]),
    ("", "tsrange", &["empty", "[2024-01-01,)"], &[]),
    ("", "tstzrange", &["empty", "[2024-01-01 00:00+00,)"], &[]),
    ("", "daterange", &["empty", "[2024-01-01,)"], &[]),
    ("", "int4multirange", &["{}", "{[1,2),[3,4)}"], &[]),
    ("", "int8multirange", &["{}", "{[1,2),[3,4)}"], &[]),
    ("", "nummultirange", &["{}", "{[1.5,2)}"], &[("{[1.5,2)}", "{[1.50,2.0)}")]),
    ("", "tsmultirange", &["{}", "{[2024-01-01,)}"], &[]),
    ("", "tstzmultirange", &["{}", "{[2024-01-01 00:00+00,)}"], &[]),
    ("", "datemultirange", &["{}", "{[2024-01-01,)}"], &[]),
    ("", "pg_lsn", &["0/0", "1/1"], &[]),
    ("", "xid8", &["0", "18446744073709551615"], &[]),
    ("", "tid", &["(0,0)", "(1,1)"], &[]),
    ("", "oid", &["0", "1", "4294967295"], &[]),
    ("", "regclass", &["pg_class", "pg_type"], &[]),
    ("", "regcollation", &["\"C\"", "\"POSIX\""], &[]),
    ("", "regconfig", &["simple", "english"], &[]),
    ("", "regdictionary", &["simple", "english_stem"], &[]),
    ("", "regnamespace", &["public", "pg_catalog"], &[]),
    ("", "regoper", &["|/", "||/"], &[]),
    ("", "regoperator", &["=(integer,integer)", "=(text,text)"], &[]),
    ("", "regproc", &["now", "pi"], &[]),
    ("", "regprocedure", &["now()", "abs(numeric)"], &[]),
    ("", "regrole", &["postgres", "pg_monitor"], &[]),
    ("", "regtype", &["integer", "text"], &[]),
    ("", "oidvector", &["1 2", "2 1", ""], &[]),
    ("", "numeric[]", &["{}", "{1.5,NULL}", "{2}"], &[("{1.5,NULL}", "{1.500,NULL}")]),
    ("", "text[]", &["{}", "{NULL}", "{\"NULL\"}"], &[]),
    ("CREATE TYPE {t}_mood AS ENUM ('sad', 'it''s ok')", "{t}_mood", &["sad", "it's ok"], &[]),
    ("CREATE DOMAIN {t}_d AS text NOT NULL CHECK (VALUE <> 'x')", "{t}_d", &["a", "A"], &[]),
    ("CREATE DOMAIN {t}_d AS citext NOT NULL", "{t}_d", &["a", "b"], &[("a", "A")]),
    (
        "CREATE TYPE {t}_pair AS (n numeric, c citext)",
        "{t}_pair",
        &["(1.5,a)", "(1.5,b)", "(,)"],
        &[("(1.5,a)", "(1.500,A)")],
    ),
    (
        "CREATE TYPE {t}_r AS RANGE (subtype = interval)",
        "{t}_r",
        &["[\"1 mon\",)", "empty"],
        &[("[\"1 mon\",)", "[\"30 days\",)")],
    ),
    ("", "text COLLATE ci", &["a", "b", "é", ""], &[("a", "A"), ("é", "e\u{301}")]),
    ("", "character varying(9) COLLATE ci", &["a", "b"], &[("a", "A")]),
    ("CREATE DOMAIN {t}_d AS text COLLATE ci", "{t}_d", &["a", "b"], &[("a", "A")]),
    ("", "text COLLATE \"C\"", &["a", "A"], &[]),
    ("", "citext", &["a", "b", "", "ß"], &[("a", "A"), ("b", "B")]),
    ("", "citext[]", &["{a}", "{b}"], &[("{a}", "{A}")]),
    ("", "hstore", &["a=>1", "b=>1", ""], &[]),
    ("", "lo", &["0", "1", "4294967295"], &[]),
    ("", "ltree", &["a.b", "a.B", ""], &[]),
    ("", "cube", &["(1,2)", "(1)", "(0)"], &[("(1)", "(1),(1)")]),
    ("", "seg", &["1.5", "2"], &[]),
    ("", "ean13", &["220123456789-7", "978-0-393-04002-9"], &[]),
    ("", "isbn13", &["978-0-393-04002-9", "978-0-11-000533-1"], &[]),
    ("", "ismn13", &["979-0-706011-56-1"], &[]),
    ("", "issn13", &["977-1436-452-00-8"], &[]),
    ("", "isbn", &["0-393-04002-X", "0-11-000533-3"], &[]),
    ("", "ismn", &["M-706011-56-1"], &[]),
    ("", "issn", &["1436-4522"], &[]),
    ("", "upc", &["220356483481"], &[]),
];

pub(super) fn key(table: &str, (before, type_name, values, twins): Keys) -> Case {
    let ddl = format!(
        "{before}; CREATE TABLE {{t}} (tenant text, k {type_name}, i int, n int, PRIMARY KEY (tenant, k))"
    );
    let mut case = Case::table(table, &ddl);
    let rows = |wanted: &dyn Fn(usize) -> bool, n: usize| -> String {
        let all = TENANTS.iter().flat_map(|tenant| {
            let of_values = values.iter().enumerate().filter(|(i, _)| wanted(*i));
            of_values
                .map(move |(i, value)| format!("('{tenant}', {}, {i}, {n})", quoted(value)))
                .collect::<Vec<_>>()
        });
        format!("INSERT INTO {{t}} VALUES {}", all.collect::<Vec<_>>().join(", "))
    };
    case.fill = vec![rows(&|_| true, 0)];
    for moment in 0..MOMENTS {
        let mut changes = Vec::new();
        for (one, other) in twins {
            let i = values.iter().position(|value| value == one).unwrap_or(usize::MAX);
            let image = if moment % 2 == 0 { other } else { one };
            // It changes twice in one window, which contains both values.
            changes.push(format!("UPDATE {{t}} SET k = {}, n = n + 1 WHERE i = {i}", quoted(image)));
        }
        // One row is deleted and inserted again, and another one only changes.
        let gone = moment % values.len();
        changes.push(format!("DELETE FROM {{t}} WHERE i = {gone}"));
        changes.push(rows(&|i| i == gone, 100 * (moment + 1)));
        changes.push(format!("UPDATE {{t}} SET n = n + 10 WHERE i = {}", (moment + 1) % values.len()));
        changes.push(format!("UPDATE {{t}} SET n = n + 10 WHERE i = {}", values.len() - 1));
        if moment + 1 == MOMENTS {
            changes.push("DELETE FROM {t} WHERE i = 1 AND tenant = 'moves'".to_owned());
        }
        case.changes[moment] = changes;
    }
    case
}

/// Returns a table for each type.
pub fn all() -> Vec<Case> {
    let known = KEYS.iter().enumerate().map(|(number, keys)| key(&format!("key_{number}"), *keys));
    known.chain(newer_versions::keys()).collect()
}

/// Returns the types of the list.
pub fn types() -> Vec<&'static str> {
    KEYS.iter().map(|keys| keys.1).collect()
}
