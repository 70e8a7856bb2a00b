//! Types of values. Each has a table of its own, with values that are hard to represent.

use super::{Case, MOMENTS, TENANTS, newer_versions, quoted};

/// Makes a table with rows for each value and NULL. Each change adds them again, rotates some and deletes others.
pub(super) fn value(table: &str, type_name: &str, before: &str, values: &[&str]) -> Case {
    let ddl = format!(
        "{before}; CREATE TABLE {{t}} (tenant text, id int, v {type_name}, PRIMARY KEY (tenant, id))"
    );
    let mut case = Case::table(table, &ddl).since(if ddl.contains("multirange") { 14 } else { 13 });
    let rows = |from: usize| -> String {
        let all = TENANTS.iter().flat_map(|tenant| {
            let nothing = format!("('{tenant}', {}, NULL)", from + 99);
            let of_values = values
                .iter()
                .enumerate()
                .map(move |(n, value)| format!("('{tenant}', {}, {})", from + n, quoted(value)));
            of_values.chain([nothing])
        });
        format!("INSERT INTO {{t}} VALUES {}", all.collect::<Vec<_>>().join(", "))
    };
    case.fill = vec![rows(0), rows(1000)];
    for moment in 0..MOMENTS {
        let rotated = values.iter().enumerate().map(|(n, value)| {
            let next = (n + moment + 1) % values.len();
            format!("UPDATE {{t}} SET v = {} WHERE id = {next}", quoted(value))
        });
        case.changes[moment] = rotated
            .chain([format!("DELETE FROM {{t}} WHERE id = {}", 1000 + moment), rows(10_000 * (moment + 1))])
            .collect();
    }
    case
}

/// A type of the server, and values of it.
pub type Values = (&'static str, &'static [&'static str]);

pub const BUILTIN: &[Values] = &[
    ("smallint", &["-32768", "0", "32767"]),
    ("integer", &["-2147483648", "0", "2147483647"]),
    ("bigint", &["-9223372036854775808", "0", "9223372036854775807"]),
    ("numeric", &["NaN", "Infinity", "-0.00", "1.50", "1.5000", "123456789012345678901234567890.123456789"]),
    ("real", &["NaN", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217"]),
    (
        "double precision",
        &["NaN", "Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "0.30000000000000004"],
    ),
    ("boolean", &["t", "f"]),
    ("text", &["", "NULL", "\\N", "\\.", "a\tb\nc\rd\\e", "\u{1}\u{7f}", "ü€𝄞", "e\u{301}", "  x  "]),
    ("character varying", &["", "ü", "trailing  "]),
    ("character", &["a", " "]),
    ("\"char\"", &["a", "", "\\", " "]),
    ("name", &["", "a name", "ü"]),
    ("bytea", &["\\x", "\\x00", "\\xdeadbeef5c27", "\\x0a0d09"]),
    ("uuid", &["00000000-0000-0000-0000-000000000000", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"]),
    (
        "date",
        &[
            "infinity",
            "-infinity",
            "4713-01-01 BC",
            "0044-03-15 BC",
            "5874897-12-31",
            "2024-02-29",
            "0001-02-03",
        ],
    ),
    ("time without time zone", &["00:00", "24:00:00", "23:59:59.999999"]),
    ("time with time zone", &["00:00+15:59", "24:00:00-15:59", "12:34:56.789-03:30"]),
    (
        "timestamp without time zone",
        &[
            "infinity",
            "-infinity",
            "4713-01-01 00:00:00 BC",
            "294276-12-31 23:59:59.999999",
            "2024-03-31 02:30",
        ],
    ),
    (
        "timestamp with time zone",
        &[
            "infinity",
            "4713-01-02 00:00:00+00 BC",
            "294276-12-30 23:59:59.999999+00",
            "1900-01-01 00:00:00+00:19:32",
        ],
    ),
    (
        "interval",
        &[
            "0",
            "1 mon -1 day 00:00:01",
            "-178000000 years",
            "178000000 years 11 mon",
            "-1 day +23:59:59.999999",
            "30 days",
            "1 mon",
        ],
    ),
    ("json", &["null", "{\"b\": 1, \"a\":  [1.50, \"\\u00e9\\u0000\"], \"b\": 2}", " [ ] "]),
    ("jsonb", &["null", "{\"b\": 1.50, \"a\": \"\\\\ \\\" \\n é\"}", "[1e400, -0, \"\"]"]),
    ("jsonpath", &["$", "lax $.a[*] ? (@.b > 1.50 && @ like_regex \"^\\\\d\")", "strict $.\"a b\""]),
    (
        "xml",
        &["", "<a b=\"1\">t&amp;ü</a>", "text <b/> text", "<?xml version=\"1.0\" encoding=\"LATIN1\"?><a/>"],
    ),
    ("inet", &["10.1.2.3/24", "::1", "::ffff:1.2.3.4/128", "0.0.0.0/0"]),
    ("cidr", &["10.1.0.0/16", "::/0", "2001:db8::/32"]),
    ("macaddr", &["08:00:2b:01:02:03", "ff:ff:ff:ff:ff:ff"]),
    ("macaddr8", &["08:00:2b:01:02:03:04:05"]),
    ("bit", &["0", "1"]),
    ("bit varying", &["", "1", "010011000111100001111100000"]),
    ("money", &["-92233720368547758.08", "0.01", "1234567.89"]),
    ("point", &["(NaN,Infinity)", "(-0,0.1)", "(1e-300,0.30000000000000004)"]),
    ("line", &["{1,-1,0.1}", "{0,-1,5e-324}"]),
    ("lseg", &["[(0,0.1),(1,1)]"]),
    ("box", &["(1,1),(0.1,0)", "(NaN,1),(0,0)"]),
    ("path", &["[(0,0),(1,0.1)]", "((0,0),(1,0.1),(2,2))"]),
    ("polygon", &["((0,0),(1,0.1),(2,2))"]),
    ("circle", &["<(0.1,0),0.30000000000000004>"]),
    ("tsvector", &["", "'a b':1A,2B 'it''s':3C,16383", "ü:1"]),
    ("tsquery", &["", "'a b' & !c:*AB | (d <-> 'it''s')", "a <3> b"]),
    ("int4range", &["empty", "(,)", "[1,10)", "(,5]"]),
    ("int8range", &["empty", "(,)", "[1,9223372036854775807)"]),
    ("numrange", &["empty", "(,)", "[1.50,1.500]", "(NaN,)", "[0.1,Infinity)"]),
    ("tsrange", &["empty", "[2024-01-01,infinity]", "(\"0044-03-15 00:00:00 BC\",)"]),
    ("tstzrange", &["empty", "[\"2024-01-01 00:00:00+05:45\",)"]),
    ("daterange", &["empty", "[2024-01-01,infinity)", "(,2024-02-29]"]),
    ("int4multirange", &["{}", "{[1,3),[5,7)}", "{(,)}"]),
    ("int8multirange", &["{}", "{[1,3),[5,7)}"]),
    ("nummultirange", &["{}", "{[1.0,1.50),(2,NaN]}"]),
    ("tsmultirange", &["{}", "{[2024-01-01,2024-02-01),[2025-01-01,)}"]),
    ("tstzmultirange", &["{}", "{[\"2024-01-01 00:00+01\",)}"]),
    ("datemultirange", &["{}", "{[2024-01-01,2024-02-01),[2025-01-01,)}"]),
    ("pg_lsn", &["0/0", "FFFFFFFF/FFFFFFFF"]),
    ("pg_snapshot", &["10:20:10,14,15"]),
    ("txid_snapshot", &["10:20:10,14,15"]),
    ("xid", &["0", "4294967295"]),
    ("xid8", &["0", "18446744073709551615"]),
    ("cid", &["0", "4294967295"]),
    ("tid", &["(0,0)", "(4294967295,65535)"]),
    ("refcursor", &["", "a cursor"]),
    ("oid", &["0", "4294967295"]),
    ("regclass", &["-", "pg_class", "4000000000"]),
    ("regcollation", &["-", "\"C\"", "4000000000"]),
    ("regconfig", &["-", "simple", "4000000000"]),
    ("regdictionary", &["-", "simple", "4000000000"]),
    ("regnamespace", &["-", "public", "4000000000"]),
    ("regoper", &["0", "|/", "4000000000"]),
    ("regoperator", &["0", "=(integer,integer)", "4000000000"]),
    ("regproc", &["-", "pi", "now", "4000000000"]),
    ("regprocedure", &["-", "abs(numeric)", "4000000000"]),
    ("regrole", &["-", "postgres", "4000000000"]),
    ("regtype", &["-", "integer[]", "4000000000"]),
];

/// Types that are made of others, with the statements that make them.
const MADE: &[(&str, &str, &[&str])] = &[
    ("", "text[]", &["{}", "{NULL,\"NULL\",\"a,b\",\"{}\",\"\\\\\"}", "[5:6][-1:0]={{a,b},{c,d}}"]),
    ("", "integer[]", &["{}", "{1,NULL}", "[0:1]={1,2}"]),
    ("", "timestamp with time zone[]", &["{infinity,\"2024-01-01 00:00+05:45\"}"]),
    ("", "interval[]", &["{\"1 mon -1 day\",NULL}"]),
    ("", "money[]", &["{1.23,NULL}"]),
    ("", "tsrange[]", &["{\"[2024-01-01,)\",empty}"]),
    ("", "int2vector", &["1 2 3"]),
    ("", "oidvector", &["1 2 3"]),
    ("", "numeric(12,2)", &["1.50", "-9999999999.99"]),
    ("", "character(5)", &["", "a", "ü  b"]),
    ("", "bit(5)", &["01010"]),
    ("", "interval day to second(3)", &["1 day 00:00:00.123"]),
    (
        "CREATE TYPE {t}_mood AS ENUM ('sad', 'it''s ok', 'a,\"b', '')",
        "{t}_mood",
        &["sad", "it's ok", "a,\"b", ""],
    ),
    ("CREATE TYPE {t}_mood AS ENUM ('sad', 'it''s, ok')", "{t}_mood[]", &["{}", "{sad,\"it's, ok\",NULL}"]),
    ("CREATE DOMAIN {t}_code AS text CHECK (VALUE <> 'none')", "{t}_code", &["", "x"]),
    (
        "CREATE DOMAIN {t}_a AS timestamptz(3); CREATE DOMAIN {t}_b AS {t}_a[] NOT NULL DEFAULT '{}'",
        "{t}_a",
        &["2024-01-01 00:00:00.123+01"],
    ),
    ("CREATE DOMAIN {t}_a AS numeric(5,1); CREATE DOMAIN {t}_b AS {t}_a[]", "{t}_b", &["{1.5,NULL}", "{}"]),
    (
        "CREATE TYPE {t}_pair AS (a int, b text, c timestamptz)",
        "{t}_pair",
        &["(,,)", "(1,\"\",)", "(1,\"x,\"\"y\\\\\",infinity)"],
    ),
    (
        "CREATE TYPE {t}_pair AS (a float8, \"B b\" text[]); CREATE TYPE {t}_nested AS (p {t}_pair, q {t}_pair[], m money)",
        "{t}_nested",
        &["(\"(0.1,\"\"{a,NULL}\"\")\",\"{\"\"(1,{})\"\"}\",1.23)"],
    ),
    (
        "CREATE TYPE {t}_texts AS RANGE (subtype = text, collation = \"C\")",
        "{t}_texts",
        &["empty", "[a,b)", "(\"x,y\",)"],
    ),
    ("CREATE TYPE {t}_times AS RANGE (subtype = time)", "{t}_times", &["[00:00,24:00]"]),
    (
        "CREATE TYPE {t}_f AS RANGE (subtype = float8, multirange_type_name = {t}_fm)",
        "{t}_fm",
        &["{}", "{[0.1,0.2)}"],
    ),
    (
        "CREATE TABLE {t}_row (a int, gone int, b date); ALTER TABLE {t}_row DROP COLUMN gone",
        "{t}_row",
        &["(1,2024-02-03)"],
    ),
    ("", "citext", &["", "aB", "ü"]),
    ("", "citext[]", &["{aB,NULL}"]),
    ("", "hstore", &["", "a=>NULL, \"b c\"=>\"x\\\"=>\", \"\"=>\"\""]),
    ("", "lo", &["0", "4294967295"]),
    ("", "ltree", &["", "a.b_c.1"]),
    ("", "lquery", &["*.a@{1,2}.!b*"]),
    ("", "ltxtquery", &["a & b*@ | !c"]),
    ("", "query_int", &["1&(2|!3)"]),
    ("", "cube", &["(1,2),(3,0.1)", "(0.30000000000000004)"]),
    ("", "seg", &["1.50 .. 2", "<1.0", "~0.10"]),
    ("", "ean13", &["220123456789-7"]),
    ("", "isbn13", &["978-0-393-04002-9"]),
    ("", "ismn13", &["979-0-706011-56-1"]),
    ("", "issn13", &["977-1436-452-00-8"]),
    ("", "isbn", &["0-393-04002-X"]),
    ("", "ismn", &["M-706011-56-1"]),
    ("", "issn", &["1436-4522"]),
    ("", "upc", &["220356483481"]),
];

/// Returns a table for each type.
pub fn all() -> Vec<Case> {
    let builtin = BUILTIN.iter().map(|(name, values)| ("", *name, *values));
    builtin
        .chain(MADE.iter().copied())
        .enumerate()
        .map(|(number, (before, type_name, values))| {
            value(&format!("value_{number}"), type_name, before, values)
        })
        .chain(newer_versions::values())
        .collect()
}

/// Returns the types of the list, without length and precision.
pub fn types() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).chain(MADE.iter().map(|(_, name, _)| *name)).collect()
}
