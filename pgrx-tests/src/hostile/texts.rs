//! Texts that try to be executed as SQL, or as something else. Each contains a word by which it is found
//! wherever it ends up.

/// No statement contains this outside of quotes, and no relation has this name.
pub const MARK: &str = "pwned";

/// Texts that are allowed as names of shards, keyspaces and namespaces.
pub const NAMES: [&str; 6] = [
    "a'; CREATE TABLE pwned_1(); --",
    "b\"; CREATE TABLE pwned_2(); --",
    "*/ CREATE TABLE pwned_3(); /*",
    "%s %I pwned_4 %% :pwned",
    "＇; pwned_5()＂ ; ] = , # e\u{301}",
    "SELECT pwned_6() AS \"x\" FROM 'y'",
];

/// Texts that are not allowed as names.
pub const NO_NAMES: [&str; 9] = [
    "$$; CREATE TABLE pwned_7(); $$",
    "$agent$; CREATE TABLE pwned_8(); $agent$",
    "\\'; CREATE TABLE pwned_9(); --",
    "x\n; CREATE TABLE pwned_10();\n--",
    "{other_shard}{split}{keys} pwned_11",
    "`pwned_12` $(pwned)",
    "\u{202e}pwned_13\u{200b}",
    "\u{1b}[2J\u{7}pwned_14",
    "x\r\nSet-Cookie: pwned_15",
];

/// Keys, tables and columns may be all of the texts above, and these.
const OTHERS: [&str; 10] = [
    "a',\"b\"}; CREATE TABLE pwned_16(); {",
    "\\.\nCREATE TABLE pwned_17();\n",
    "$1 $2 $pwned_18$ $ $",
    "NULL",
    "E'\\047; CREATE TABLE pwned_19(); --",
    "U&'\\0027 pwned_20",
    "[pwned_21,\")",
    "\\\\\\",
    "''\"\"'\"$$",
    "public\".\"pwned_22",
];

pub fn all() -> Vec<&'static str> {
    NAMES.into_iter().chain(NO_NAMES).chain(OTHERS).collect()
}

/// Quotes a name for SQL.
pub fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text for SQL, whatever it contains.
pub fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Quotes a value of a libpq connection string.
pub fn value(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}
